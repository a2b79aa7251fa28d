"""The stability intervals of explicit solvers, and the control of steps by them."""

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.solvers.step_control import stability_interval


def quadratic(eigenvalues):
    """The field of R(y) = ½ Σ λ y²."""
    return lambda t, y, args: -jnp.asarray(eigenvalues) * y


@pytest.mark.parametrize(
    ("solver", "expected"),
    [
        ("Heun", 2.0),  # r(z) = 1 + z + z²/2
        ("Bosh3", 2.5127453266),  # the real root of 1 − x + x²/2 − x³/6 = −1
        ("Dopri5", 3.3065678926),  # Hairer, Nørsett and Wanner (1993), section II
    ],
)
def test_stability_interval_is_that_of_the_stability_polynomial(solver, expected):
    assert stability_interval(getattr(diffrax, solver)()) == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
def test_a_step_just_inside_the_interval_decays_and_just_outside_it_grows():
    solver = diffrax.Tsit5()

    def amplification(x):
        term = diffrax.ODETerm(quadratic([x]))
        state = solver.init(term, 0.0, 1.0, jnp.ones(1), None)
        return abs(float(solver.step(term, 0.0, 1.0, jnp.ones(1), None, state, False)[0][0]))

    edge = stability_interval(solver)
    assert amplification(edge * 0.999) < 1 < amplification(edge * 1.001)


def solve(controller, field, y0, t1):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Tsit5(),
        t0=0.0,
        t1=t1,
        dt0=None,
        y0=y0,
        stepsize_controller=controller,
        max_steps=10_000,
    )


@pytest.mark.slow
def test_the_limit_makes_a_plain_diffrax_solve_reach_rounding_where_errors_alone_stall():
    eigenvalues, y0 = np.array([1.0, 3.0, 40.0]), jnp.ones(3)
    plain = diffrax.PIDController(rtol=1e-6, atol=1e-8)
    limited = flowsim.SharpnessLimitedController(
        plain, quadratic(eigenvalues), interval=stability_interval(diffrax.Tsit5())
    )
    stalled, reached = (solve(controller, quadratic(eigenvalues), y0, 60.0) for controller in (plain, limited))
    assert abs(float(stalled.ys[0][2])) > 1e-10
    assert np.abs(reached.ys[0]).max() < 1e-24
    # Every step but the last is at the limit once the transient is over.
    steps = int(reached.stats["num_steps"])
    assert steps <= 1.2 * 60 * 40 / (0.75 * stability_interval(diffrax.Tsit5())) + 50


@pytest.mark.slow
def test_the_limit_follows_negative_curvature_too():
    """The spectral radius counts: a large negative eigenvalue limits the step like a positive one."""
    field = quadratic([-50.0, 1.0])
    controller = flowsim.SharpnessLimitedController(
        diffrax.PIDController(rtol=1e-2, atol=1e6), field, interval=2.0, safety=0.5
    )
    solution = solve(controller, field, jnp.ones(2), 1.0)
    assert int(solution.stats["num_steps"]) >= 50


def test_a_solver_without_an_explicit_tableau_needs_its_interval_told():
    with pytest.raises(TypeError, match="interval"):
        stability_interval(diffrax.Kvaerno5())
