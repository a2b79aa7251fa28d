"""Linearly implicit steps with the whole Hessian: closed forms, SciPy, saddles, and what they cost."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from test_solvers import fixed_steps, flat

import flowsim
from flowsim.solvers import HessianExtrapolation, LowRankExtrapolation
from flowsim.solvers.extrapolation import Allowed
from flowsim.solvers.field import gradient_field
from flowsim.solvers.step_control import growth

NEVER = flowsim.Stopping(gradient_norm=None)


def whitened():
    """Return a regression on whitened inputs whose regressor has the singular values 3, 2, 1 and ½."""
    X = np.random.default_rng(0).standard_normal((60, 4))
    X = X @ np.linalg.inv(np.linalg.cholesky(X.T @ X / 60)).T
    return flowsim.LinearRegression(X, X * np.array([3.0, 2.0, 1.0, 0.5]))


def deep(depth, scale):
    return flowsim.DeepLinear.gaussian(widths=[4] * (depth + 1), scale=scale, key=jax.random.key(1))


def flow(function, start, t1, **options):
    """Return the flow of a risk of one vector at `t1`, by the solver under test."""
    risk = flowsim.Risk(lambda weights: function(weights["w"]))
    options = {"solver": HessianExtrapolation(), "stopping": NEVER, "ts": [], **options}
    return flowsim.integrate({"w": jnp.asarray(start)}, risk, t1=t1, **options)


def cubic_stiff_and_growing(t, y, args):
    """The field of x⁴/4, whose flow is x₀/√(1 + 2x₀²t), beside a stiff direction and one that grows as eᵗ."""
    return -jnp.stack([y[0] ** 3, 1e4 * y[1], -y[2]])


@pytest.mark.parametrize(("columns", "kept"), [(4, 1), (6, 8)])
def test_the_order_is_that_of_the_columns_with_a_hessian_of_any_age(columns, kept):
    solver, errors = HessianExtrapolation(1e-30, 1e-30, columns=columns, kept=kept, still=jnp.inf), []
    for count in (32, 64):
        y, _ = fixed_steps(solver, cubic_stiff_and_growing, jnp.array([1.0, 0.0, 0.0]), 2.0, count)
        errors.append(float(jnp.abs(y[0] - 5**-0.5)))
    assert columns - 0.5 < np.log2(errors[0] / errors[1]) < columns + 1


def test_a_step_at_which_the_linear_system_would_be_singular_is_no_exception():
    """I + hH has the eigenvalue zero for a step of length one."""
    solver = HessianExtrapolation(1e-30, 1e-30, columns=6, kept=8, still=jnp.inf)
    y, _ = fixed_steps(solver, cubic_stiff_and_growing, jnp.array([0.0, 1.0, 1.0]), 1.0, 1)
    assert float(y[2]) == pytest.approx(np.exp(1.0), rel=1e-3)
    assert abs(float(y[1])) < 1e-3


@pytest.mark.slow
def test_what_grows_is_not_damped_however_small_it_is():
    """Two e-folds of 32 are lost below atol. An L-stable method takes exp(μh) for nothing in steps with μh ≫ 1."""
    ends = [flow(lambda w: 5e5 * w[1] ** 2 - w[0] ** 2 / 2, [np.exp(3 - t), 1e-3], t) for t in (10.0, 35.0)]
    first, second = (float(end.network["w"][0]) / np.exp(3) for end in ends)
    assert first == pytest.approx(1, rel=1e-4)
    assert np.exp(-2) < second < 1.1


@pytest.mark.slow
def test_a_step_out_of_the_domain_is_too_long():
    """The flow of w − 2√w from w = 10⁻⁸: its gradient is NaN below zero, and it ends at one."""
    end = flow(lambda w: jnp.sum(w - 2 * jnp.sqrt(w)) + 5e3 * jnp.sum(w - w[0]) ** 2, [1e-8, 1e-8], 40.0)
    np.testing.assert_allclose(end.network["w"], 1, atol=1e-5)


@pytest.mark.slow
def test_the_work_is_one_gradient_for_each_substep_and_a_product_for_each_weight():
    evaluated = []

    def function(w):
        return jnp.sum(w**4) / 4 + 500 * w[0] ** 2

    field = lambda t, y, args: -jax.grad(function)(y)  # noqa: E731

    def counting(t, y, args):
        jax.debug.callback(lambda: evaluated.append(1))
        return field(t, y, args)

    solver, term, y = HessianExtrapolation(1e-6, 1e-9, kept=2, still=jnp.inf), diffrax.ODETerm(counting), jnp.ones(5)
    state = solver.init(term, 0.0, 0.1, y, None)
    for number in range(4):
        y, _, _, state, _ = solver.step(term, jnp.array(0.0), jnp.array(0.1), y, None, state, False)
        assert state.work.products == 5 * (number // 2 + 1)
    jax.effects_barrier()
    # The first evaluation of f belongs to no step, and each of the two linearizations holds one.
    assert len(evaluated) - 1 - 2 == state.work.gradients


@pytest.mark.slow
def test_plateaus_from_saddle_to_saddle_are_passed_in_few_steps():
    """`LowRankExtrapolation` alone takes 4468 attempts at depth 4 and scale 10⁻³; the default turns to the Hessian."""
    run = flowsim.integrate(deep(4, 1e-3), whitened(), ts=[])
    assert (run.method, run.converged) == ("StiffnessSwitching", True)
    assert run.steps + run.rejected_steps <= 1000
    assert run.rejected_steps < run.steps / 3
    assert float(run.excess_risk[-1]) < 1e-10


@jax.jit
def next_attempt(allowed, length, size):
    """Return the next length and what is known then, after a step of order six with an error of this size."""
    return allowed.after(length, size, growth(size, 6))


def test_towards_the_end_of_a_plateau_few_steps_are_rejected():
    """Steps whose error is ((h / 0.4) / (1 − t))⁶, as they would be towards x = (1 − t)⁻ᵏ."""
    time, length, kept, rejected = 0.0, 0.1, 0, 0
    allowed = Allowed(jnp.asarray(np.inf))
    while 1 - time > 1e-8:
        size = (length / (1 - time) / 0.4) ** 6
        time, kept, rejected = (time + length, kept + 1, rejected) if size <= 1 else (time, kept, rejected + 1)
        length, allowed = next_attempt(allowed, length, size)
        length = float(length)
    assert kept < 90
    assert rejected <= 3


def test_after_a_step_that_leads_nowhere_a_shorter_one_follows():
    length, allowed = next_attempt(Allowed(jnp.asarray(np.inf)), 1.0, np.inf)
    assert length == Allowed.lost
    allows, (onward, _) = 0.9 * Allowed.lost, jax.jit(Allowed.after)(allowed, length, 0.5, 0.9)
    assert onward == pytest.approx(allows * allows)


@pytest.mark.slow
def test_where_nothing_holds_its_steps_back_a_linear_network_takes_low_rank_ones_alone():
    network, problem = deep(2, 1.0), whitened()
    run = flowsim.integrate(network, problem, ts=[])
    alone = flowsim.integrate(network, problem, ts=[], solver=LowRankExtrapolation(followed=0))
    assert (run.steps, run.gradients, run.products) == (alone.steps, alone.gradients, alone.products)
    np.testing.assert_allclose(flat(run.network), flat(alone.network), rtol=1e-12)


@pytest.mark.parametrize("curved", [1.0, -0.05])
@pytest.mark.slow
def test_a_factor_of_the_hessian_steps_as_its_eigenvectors_do(curved):
    """A direction that curves downwards by little is implicit with a factor, and explicit with eigenvectors."""
    rates = np.append(np.geomspace(1e-3, 1e3, 9), curved)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((10, 10)))[0]
    field = lambda t, y, args: -turn @ (rates * (turn.T @ y)) - 0.1 * y**3  # noqa: E731
    options = {"still": 0.0, "frozen_up_to": 10.0}
    solvers = HessianExtrapolation(1e-6, 1e-9, **options), HessianExtrapolation(1e-6, 1e-9, seen=0.0, **options)
    factor, eigenvectors = (fixed_steps(solver, field, jnp.linspace(0.5, 1, 10), 1.0, 4)[0] for solver in solvers)
    np.testing.assert_allclose(factor, eigenvectors, rtol=1e-10 if curved > 0 else 1e-6)


@pytest.mark.slow
def test_a_flow_from_saddle_to_saddle_is_that_of_scipy():
    import scipy.integrate

    network, problem = deep(3, 1e-2), whitened()
    field, weights = gradient_field(network, problem)
    start, unravel = ravel_pytree(weights)
    slope = jax.jit(lambda t, y: ravel_pytree(field(t, unravel(y), None))[0])
    slopes = jax.jit(jax.jacfwd(slope, argnums=1))
    end = scipy.integrate.solve_ivp(slope, (0, 90.0), start, "LSODA", jac=slopes, rtol=1e-12, atol=1e-14).y[:, -1]
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8):
        run = flowsim.integrate(network, problem, t1=90.0, ts=[], rtol=rtol, stopping=NEVER)
        errors.append(np.linalg.norm(flat(run.network) - end) / np.linalg.norm(end))
    assert errors[1] < 2e-5
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


@pytest.mark.slow
def test_a_risk_that_knows_no_outputs_turns_to_its_hessian_where_it_is_stiff():
    condition, start = 1e12, np.ones(20)
    rates = np.geomspace(1 / condition, 1, 20)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    end = flow(lambda w: jnp.sum(rates * (turn.T @ w) ** 2) / 2, turn @ start, condition, solver=None)
    assert end.method == "StiffnessSwitching"
    assert end.products > 0
    assert end.gradients < 5000
    np.testing.assert_allclose(turn.T @ end.network["w"], np.exp(-rates * condition), atol=2e-5)


@pytest.mark.parametrize(("options", "message"), [({"columns": 20}, "columns"), ({"kept": 0}, "kept")])
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        HessianExtrapolation(**options)
