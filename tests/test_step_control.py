"""The stability intervals of explicit solvers, and the control of steps by them."""

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.solvers.step_control import stability_interval


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
def test_a_limit_by_the_spectral_radius_makes_a_diffrax_solve_reach_rounding_where_errors_alone_stall():
    interval = stability_interval(diffrax.Tsit5())

    @eqx.filter_jit
    def solved(eigenvalues, control, t1):
        field = lambda t, y, args: -eigenvalues * y  # noqa: E731
        limited = flowsim.SharpnessLimitedController(control, field, interval=interval)
        return [
            diffrax.diffeqsolve(
                diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, t1, None, jnp.ones(3), max_steps=10_000,
                stepsize_controller=controller,
            )
            for controller in (control, limited)
        ]  # fmt: skip

    stalled, reached = solved(np.array([1.0, 3.0, 40.0]), diffrax.PIDController(rtol=1e-6, atol=1e-8), 60.0)
    assert abs(float(stalled.ys[0][2])) > 1e-10
    assert np.abs(reached.ys[0]).max() < 1e-24
    # Every step but the last is at the limit once the transient is over.
    assert int(reached.stats["num_steps"]) <= 1.2 * 60 * 40 / (0.75 * interval) + 50
    # A large negative eigenvalue limits steps as a positive one does, where no error does.
    free, grown = solved(np.array([-50.0, 1.0, 1.0]), diffrax.PIDController(rtol=1e-2, atol=1e40), 1.0)
    assert int(grown.stats["num_steps"]) >= 50 / (0.75 * interval) > 2 * int(free.stats["num_steps"])


def test_a_solver_without_an_explicit_tableau_needs_its_interval_told():
    with pytest.raises(TypeError, match="interval"):
        stability_interval(diffrax.Kvaerno5())
