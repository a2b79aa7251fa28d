"""The solvers made for gradient flows, inside and outside flowsim."""

import dataclasses
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import flowsim
from flowsim.curvature import gauss_newton_passes
from flowsim.problems.tracing import check_weights
from flowsim.solvers import (
    HessianExtrapolation,
    LowRankExtrapolation,
    Proposal,
    ProposedSteps,
    ProposingSolver,
    RungeKuttaChebyshev,
    StabilitySwitching,
    StiffnessSwitching,
    default_solver,
)
from flowsim.solvers.explicit_methods import explicit_methods, explicit_step, fourth_order
from flowsim.solvers.field import Measured, gradient_field
from flowsim.solvers.solver import no_work
from flowsim.solvers.step_control import ErrorScale, SpectralRadius, growth

RATES = np.logspace(0, 4, 30)


def stiff_field(t, y, args):
    """Return y' for a stiff system with solution cos t in every component, rates up to 1e4 and a nonlinear term."""
    return -RATES * (y - jnp.cos(t)) - jnp.sin(t) + 0.1 * (jnp.sin(y) - jnp.sin(jnp.cos(t)))


def fixed_steps(solver, field, y0, end, count):
    """Return the state and the solver's state after `count` equal steps, of any number in one program."""
    return _fixed_steps(solver, diffrax.ODETerm(field), y0, np.asarray(end / count), np.asarray(count))


@eqx.filter_jit
def _fixed_steps(solver, term, y0, h, count):
    def body(i, carry):
        y, state = carry
        y, _, _, state, _ = solver.step(term, i * h, (i + 1) * h, y, None, state, False)
        return y, state

    return jax.lax.fori_loop(0, count, body, (y0, solver.init(term, 0.0, h, y0, None)))


def conditioned(kappa, *, width=5, depth=10):
    """Return a residual network and noiseless data whose covariance has this condition number."""
    rng = np.random.default_rng(3)
    left, _, right = np.linalg.svd(rng.standard_normal((50, width)), full_matrices=False)
    X = left @ np.diag(np.sqrt(50 * np.geomspace(1, 1 / kappa, width))) @ right
    projection, optimum = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, width)))
    options = {"scale": 0.5, "projection": projection, "key": jax.random.key(0)}
    return flowsim.DeepLinear.residual(width=width, depth=depth, **options), flowsim.LinearRegression(X, X @ optimum)


def flat(network):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))])


def test_chebyshev_has_order_two_where_the_problem_is_stiff():
    errors = []
    for count in (20, 40, 80):  # steps of a length times rate of 250 or more
        y, state = fixed_steps(RungeKuttaChebyshev(1e-6, 1e-6), stiff_field, np.ones(30), 2.0, count)
        assert state.work.gradients / count >= 20  # stages
        errors.append(np.abs(y - np.cos(2.0)).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 2, atol=0.1)


def all_rows(field, columns):
    """Return the solver with a tolerance that it never meets, so that it always uses all of its columns."""
    return LowRankExtrapolation(field.gauss_newton, 1e-30, 1e-30, columns=columns)


@pytest.mark.slow
def test_extrapolation_has_the_order_of_its_columns_where_the_problem_is_stiff():
    network, problem = conditioned(1e4)
    settled = flowsim.integrate(network, problem, t1=30.0, ts=[], rtol=1e-10).network
    field, weights = gradient_field(settled, problem)
    exact = flat(fixed_steps(all_rows(field, 6), field, weights, 100.0, 256)[0])
    ends = [fixed_steps(all_rows(field, 4), field, weights, 100.0, count)[0] for count in (8, 16)]
    errors = [np.linalg.norm(flat(end) - exact) for end in ends]
    assert 100.0 / 16 * flowsim.sharpness(settled, problem) > 100
    assert np.log2(errors[0] / errors[1]) > 4 - 0.5


def test_extrapolation_has_its_order_with_a_matrix_that_is_far_off():
    nothing = lambda y: flowsim.curvature.GaussNewton.of_rows(jnp.zeros((1, 2)))  # noqa: E731
    swing = lambda t, y, args: jnp.stack([y[1], -y[0]])  # noqa: E731
    errors = []
    for count in (8, 16):
        solver = LowRankExtrapolation(nothing, 1e-30, 1e-30, columns=6)
        y, _ = fixed_steps(solver, swing, np.array([1.0, 0.0]), 2.0, count)
        errors.append(np.hypot(y[0] - np.cos(2.0), y[1] + np.sin(2.0)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(6, abs=0.6)


@pytest.mark.parametrize("kink", [1.01, 1.06, 1.099, np.inf])
@pytest.mark.parametrize("solver", [LowRankExtrapolation, HessianExtrapolation])
def test_a_kink_anywhere_in_a_step_shows_in_its_error(solver, kink):
    """The rows evaluate f up to the beginning of their last substep: with a kink at 1.099, f is constant there."""

    def f(t, y, args):
        return 1 + 100 * jnp.maximum(y - kink, 0)

    solver = solver(rtol=1e-6, atol=0.0)
    solver = dataclasses.replace(solver, measure=lambda y: Measured(f(0.0, y, None), jnp.zeros(())))
    if isinstance(solver, LowRankExtrapolation):
        nothing = flowsim.curvature.GaussNewton.of_rows(jnp.zeros((1, 1)))
        solver = dataclasses.replace(solver, curvature=lambda y: nothing)
    terms, start, end, y0 = diffrax.ODETerm(f), jnp.array(0.0), jnp.array(0.1), jnp.ones(1)
    state = solver.init(terms, start, end, y0, None)
    y1, proposal, *_ = solver.step(terms, start, end, y0, None, state, False)
    if np.isinf(kink):
        assert proposal.size < 1
        assert y1 == pytest.approx(1.1)
    else:
        assert proposal.size > 1


@pytest.mark.slow
def test_a_solver_works_in_diffeqsolve(problem):
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.5, key=jax.random.key(0))
    field, weights = gradient_field(network, problem)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        LowRankExtrapolation(field.gauss_newton, 1e-6, 1e-9),
        0.0,
        20.0,
        None,
        weights,
        stepsize_controller=ProposedSteps(rtol=1e-6, atol=1e-9),
        saveat=diffrax.SaveAt(t1=True, ts=[5.0]),
    )
    end = jax.tree.map(lambda leaf: leaf[-1], solution.ys)
    expected = flowsim.integrate(network, problem, t1=20.0, stopping=flowsim.Stopping(None), rtol=1e-10)
    np.testing.assert_allclose(flat(end), flat(expected.network), atol=1e-5)


@pytest.mark.slow
def test_switching_stabilizes_when_the_flow_is_stiff():
    network, problem = conditioned(1e4, depth=3)
    stopping = flowsim.Stopping(gradient_norm=None, excess_risk=1e-9)
    switching = flowsim.integrate(network, problem, solver=StabilitySwitching(), stopping=stopping, ts=[])
    explicit = flowsim.integrate(network, problem, solver=diffrax.Tsit5(), stopping=stopping, ts=[])
    assert switching.outcome is explicit.outcome is flowsim.Outcome.RISK_REACHED
    assert explicit.gradients == 6 * (explicit.steps + explicit.rejected_steps) + explicit.steps + 1
    assert switching.gradients < explicit.gradients / 5
    np.testing.assert_allclose(flat(switching.network), flat(explicit.network), atol=2e-4)


@pytest.mark.slow
def test_steps_of_the_default_hardly_depend_on_the_condition_number():
    runs = []
    for kappa in (1e2, 1e8):
        network, problem = conditioned(kappa)
        stopping = flowsim.Stopping(gradient_norm=None, excess_risk=1e-12 / kappa)
        runs.append(flowsim.integrate(network, problem, stopping=stopping, rtol=1e-5, ts=[]))
    assert all(run.outcome is flowsim.Outcome.RISK_REACHED for run in runs)
    assert runs[1].steps < 3 * runs[0].steps
    assert runs[1].rejected_steps <= 5


@pytest.mark.slow
def test_stiff_limits_get_closer_with_the_tolerance():
    kappa = 1e6
    network, problem = conditioned(kappa)
    # The smallest eigenvalue of Σ is 1/κ, so the regressor is within √(1e-20) of its limit at the end, and the weights,
    # in relative terms, nearer still. At 1e-12 what the runs left to go hid the error of the smallest tolerance, by an
    # amount that rounding decided.
    stopping = flowsim.Stopping(gradient_norm=None, excess_risk=1e-20 / kappa)
    errors = []
    exact = flat(flowsim.integrate(network, problem, stopping=stopping, rtol=1e-11, ts=[]).network)
    for rtol in (1e-4, 1e-6, 1e-8):
        run = flowsim.integrate(network, problem, stopping=stopping, rtol=rtol, ts=[])
        errors.append(np.linalg.norm(flat(run.network) - exact) / np.linalg.norm(exact))
    assert errors[0] < 1e-4
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_the_default_follows_the_rank_of_the_problem_and_the_size_of_its_jacobian(problem):
    linear = flowsim.DeepLinear([np.eye(5), np.ones((1, 5))])
    model = flowsim.Perceptron([np.ones((4, 5)), np.ones((1, 4))], activation="tanh")
    wide = flowsim.Perceptron([np.ones((200, 5)), np.ones((1, 200))], activation="tanh")

    class Opaque(flowsim.Problem):
        inner: flowsim.EmpiricalRisk

        def __call__(self, network):
            return self.inner(network)

    def default(network, problem):
        field, weights = gradient_field(network, problem)
        return type(default_solver(field, weights, jnp.array(1e-6), jnp.array(1e-9)))

    rng = np.random.default_rng(0)
    small, large = (flowsim.EmpiricalRisk(rng.standard_normal((n, 5)), rng.standard_normal(n)) for n in (50, 600))
    assert default(linear, problem) is LowRankExtrapolation
    assert default(model, small) is StiffnessSwitching
    for problem in (large, Opaque(small)):
        assert default(wide, problem) is StabilitySwitching
        assert default(model, problem) is StiffnessSwitching
    # A Jacobian too large to be stored costs a pass for each sample, and is no default.
    larger = flowsim.Perceptron([np.ones((100, 50)), np.ones((100, 100)), np.ones((1, 100))])
    X = rng.standard_normal((400, 50))
    for samples, passes in ((400, 400), (100, 1)):
        field, weights = gradient_field(larger, flowsim.EmpiricalRisk(X[:samples], X[:samples, 0]))
        assert gauss_newton_passes(weights, field.problem, field.network) == passes
    assert default(larger, flowsim.EmpiricalRisk(X, X[:, 0])) is StabilitySwitching


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RungeKuttaChebyshev(1e-6, 1e-9, max_stages=1), "max_stages"),
        (lambda: LowRankExtrapolation(None, 1e-6, 1e-9, columns=20), "columns"),
        (lambda: LowRankExtrapolation(None, 1e-6, 1e-9, followed=-1), "followed"),
        (lambda: proposed(jnp.zeros(1)), r"use diffrax\.PIDController"),  # what proposes nothing
    ],
)
def test_what_cannot_be_right_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def proposed(proposal):
    y = np.zeros(1)
    return ProposedSteps(rtol=1e-3, atol=1e-6).adapt_step_size(4.0, 5.0, y, y, None, proposal, 1, None)


@pytest.mark.parametrize(
    ("size", "factor", "accepted", "length"),
    [
        (0.5, 2.0, True, 2.0),
        (0.0, 50.0, True, 10.0),
        (1.1, 0.5, False, 0.5),
        (2.0, 3.0, False, 0.9),
        (np.inf, 0.0, False, 0.2),
        (0.5, np.nan, False, 0.2),
    ],
)
def test_proposed_steps_are_taken_within_limits_and_what_is_unknown_is_too_long(size, factor, accepted, length):
    keep, begin, end, *_ = proposed(Proposal(jnp.array(size), jnp.array(factor)))
    assert bool(keep) == accepted
    assert begin == (5.0 if accepted else 4.0)
    assert float(end - begin) == pytest.approx(length)


@pytest.fixture(scope="module")
def fourth():
    """The rows of the table of methods that are stabilized ones of order four."""
    return range(1, 1 + len(fourth_order(jnp.dtype(float)).reach))


@jax.jit
def linear_step(method, eigenvalues):
    """Return R(z) of a method of the table for all z at once."""
    ones = jnp.ones_like(eigenvalues)
    field = lambda c, y: Measured(eigenvalues * y, jnp.array(0.0))  # noqa: E731
    return explicit_step(field, ones, eigenvalues, jnp.array(1.0), method, SpectralRadius.unknown(ones))[0]


def test_stabilized_steps_of_order_four_damp_their_interval_and_agree_with_the_exponential(fourth):
    small = np.array([-0.02, -0.04])
    for method in (fourth[0], fourth[4], fourth[10], fourth[-1]):
        inside = np.linspace(-explicit_methods().reach[method], -0.06, 3999)
        factors = np.asarray(linear_step(np.array(method), np.append(inside, small)))
        assert np.max(np.abs(factors[:-2])) < 0.955
        error = np.abs(factors[-2:] - np.exp(small))
        assert np.log2(error[1] / error[0]) == pytest.approx(5, abs=0.1)


def swirl(t, y, np=np):
    return np.stack([np.sin(y[1]) * y[0] + np.cos(3 * t), np.cos(y[0]) + 0.3 * y[1] * y[0] * t])


def test_steps_of_the_table_have_their_order_on_a_nonlinear_equation_in_time(fourth):
    @jax.jit
    def integrated(method, count, y):
        h = 1 / count

        def step(k, carry):
            y, away = carry
            measured = lambda c, y: Measured(swirl((k + c) * h, y, jnp), jnp.sum(y))  # noqa: E731
            first = swirl(k * h, y, jnp)
            y, end, *_ = explicit_step(measured, y, first, h, method, SpectralRadius.unknown(y))
            off = jnp.append(end.slope - swirl((k + 1) * h, y, jnp), end.objective - jnp.sum(y))
            return y, jnp.maximum(away, jnp.max(jnp.abs(off)))

        return jax.lax.fori_loop(0, count, step, (y, jnp.zeros(())))

    start = np.array([0.7, 0.4])
    end = scipy.integrate.solve_ivp(swirl, (0, 1), start, "DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    for method, order in [(0, 5), (fourth[0], 4), (fourth[5], 4), (fourth[14], 4), (40, 2)]:
        (coarse, away), (fine, _) = (integrated(np.array(method), np.array(count), start) for count in (10, 20))
        assert away < 1e-13  # what was measured belongs to the end of the step
        errors = [np.max(np.abs(y - end)) for y in (coarse, fine)]
        assert np.log2(errors[0] / errors[1]) > order - 0.4


@pytest.mark.slow
def test_single_precision_takes_no_steps_whose_rounding_would_blow_up(fourth):
    method = len(fourth_order(jnp.dtype(jnp.float32)).reach)
    z = jnp.linspace(-explicit_methods().reach[method], 0, 2001, dtype=jnp.float32)
    exact = linear_step(np.array(method), z.astype(float))
    assert jnp.max(jnp.abs(linear_step(np.array(method), z) - exact)) < 1e-2
    assert method < len(fourth)


@pytest.mark.slow
def test_a_gradient_that_jumps_is_recognized_and_not_ground_to_dust():
    network, problem = small_mlp(jax.nn.relu)
    with pytest.warns(UserWarning, match="the gradient jumps on the way, as that of a ReLU network does"):
        flow = flowsim.integrate(network, problem, t1=3.0, ts=[], solver=StabilitySwitching())
    assert 1 < flow.loosened <= 3e-4 / 1e-6 * (1 + 1e-9)
    assert flow.gradients < 600
    exact = flowsim.integrate(network, problem, t1=3.0, ts=[], solver=diffrax.Tsit5(), rtol=1e-5)
    np.testing.assert_allclose(flat(flow.network), flat(exact.network), atol=2e-2)


@pytest.mark.slow
def test_neither_a_jump_of_a_second_derivative_nor_the_end_of_a_plateau_is_taken_for_a_jump_of_the_gradient():
    """Of twelve factors ρ grows from 1e-6 to 12 within a few steps, while those are tried again and again."""
    network = eqx.nn.MLP(5, "scalar", 20, 2, lambda x: jax.nn.relu(x) ** 2, key=jax.random.key(0))
    X = np.random.default_rng(0).standard_normal((20, 5))
    problem = flowsim.EmpiricalRisk(X, np.sin(X.sum(axis=1) / 2))
    assert flowsim.integrate(network, problem, t1=20.0, ts=[], solver=StabilitySwitching()).loosened == 1
    problem = flowsim.Risk(lambda w: (1 - jnp.prod(w)) ** 2 / 2)
    flow = flowsim.integrate(jnp.linspace(0.15, 0.25, 12), problem, solver=StabilitySwitching(), ts=[])
    assert (flow.outcome, flow.loosened) == (flowsim.Outcome.CONVERGED, 1)
    assert flow.gradients < 3000  # it is not stepped with the curvature of the plateau
    assert abs(float(jnp.prod(flow.network)) - 1) < 1e-6


@pytest.mark.slow
def test_differences_of_the_field_find_its_spectral_radius():
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    symmetric = turn @ np.diag([-3.0, 0.1, 2.0, 5.0]) @ turn.T

    @jax.jit
    def radius(y, size):
        one, matrix = jnp.array(1, y.dtype), jnp.asarray(symmetric, y.dtype)
        field = lambda c, y: Measured(matrix @ y - size, jnp.array(0, y.dtype))  # noqa: E731
        return explicit_step(field, y, field(0, y).slope, one, jnp.array(0), SpectralRadius.unknown(y), 30)[3].value

    for dtype, size in ((jnp.float64, 0.0), (jnp.float64, 1e6), (jnp.float32, 1e6)):
        y = jnp.array([1.0, -2.0, 0.5, 1.0], dtype)
        assert float(radius(size * y, jnp.array(size, dtype))) == pytest.approx(5, rel=1e-2)


@pytest.mark.slow
def test_a_program_with_explicit_steps_traces_the_network_once():
    """For the gradient; the radius and the records need no other pass, and memory was known with the weights' check."""
    traced = []

    class Counting(eqx.Module):
        weights: jax.Array

        def __call__(self, x):
            traced.append(x)
            return jnp.tanh(self.weights @ x)

    X = jnp.asarray(np.random.default_rng(0).standard_normal((12, 4)))
    problem = flowsim.EmpiricalRisk(X, jnp.sin(X.sum(axis=1)))
    network = check_weights(Counting(jnp.ones(4)), problem)
    traced.clear()
    flow = flowsim.integrate(network, problem, t1=30.0, solver=StabilitySwitching(), weights=True)
    assert len(traced) == 1
    assert flow.products == 0 < flow.gradients - 6 * (flow.steps + flow.rejected_steps) - 1  # the power iteration
    np.testing.assert_allclose(flow.risk, eqx.filter_vmap(problem)(flow.weights), rtol=1e-13)


class HeunByProposals(ProposingSolver):
    """Heun's method as a solver that proposes its steps, and keeps the slope where it is but not the objective."""

    rtol: float | jax.Array | None = None
    atol: float | jax.Array | None = None
    interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation

    def order(self, terms):
        return 2

    def init(self, terms, t0, t1, y0, args):
        return terms.vf(t0, y0, args)

    def work(self, solver_state):
        return no_work()

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        h, k0 = t1 - t0, solver_state
        k1 = terms.vf(t1, y0 + h * k0, args)
        y1 = y0 + h / 2 * (k0 + k1)
        size = ErrorScale.of(y0, h * k0, self.rtol, self.atol).sizes(y1, h / 2 * (k1 - k0)).in_tolerance[0]
        dense = {"y0": y0, "y1": y1, "k0": h * k0, "k1": h * k1}
        return y1, Proposal(size, growth(size, 2)), dense, terms.vf(t1, y1, args), diffrax.RESULTS.successful


@pytest.mark.slow
def test_a_solver_that_keeps_no_objective_has_the_risk_in_its_records():
    problem = flowsim.Risk(lambda w: jnp.sum(w**4) / 4)
    flow = flowsim.integrate(jnp.array([1.0, -2.0]), problem, t1=1.0, solver=HeunByProposals(), weights=True)
    np.testing.assert_allclose(flow.risk, jax.vmap(problem)(flow.weights), rtol=1e-13)
    np.testing.assert_allclose(flow.weights[-1], np.array([1, -2]) / np.sqrt(1 + 2 * np.array([1, 4])), rtol=1e-4)


@pytest.mark.slow
def test_a_jacobian_counts_as_the_passes_over_the_data_that_it_takes():
    network, problem = small_mlp()
    flow = flowsim.integrate(network, problem, t1=5.0, ts=[], solver=LowRankExtrapolation(followed=0))
    assert flow.products == 1 + flow.steps + flow.rejected_steps


@pytest.mark.slow
def test_flows_on_one_line_share_the_warning_that_the_gradient_jumps():
    problem = flowsim.Risk(lambda w: jnp.abs(w[0]) + w[0] ** 2 / 20 + (w[1] - 1) ** 2 / 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        flows = [flowsim.integrate(jnp.array([0.5, 2.0]), problem, t1=2.0, ts=[], rtol=rtol) for rtol in (1e-6, 1e-5)]
    assert 1 < flows[0].loosened != flows[1].loosened > 1
    assert len(caught) == 1


@pytest.mark.slow
def test_a_valley_along_a_jump_is_followed_without_crossing_it_in_dust():
    """dy/dt = −(sign y₁ + y₁/10, y₂ − 1): to rounding y₁ stays at its jump, which a fine step crosses each time."""
    problem = flowsim.Risk(lambda w: jnp.abs(w[0]) + w[0] ** 2 / 20 + (w[1] - 1) ** 2 / 2)
    options = {"t1": 10.0, "ts": [], "stopping": flowsim.Stopping(None)}
    with pytest.warns(UserWarning, match="the gradient jumps on the way"):
        flow = flowsim.integrate(jnp.array([0.5, -3.0]), problem, **options)
    assert flow.gradients < 50_000  # six million without
    np.testing.assert_allclose(flow.network, [0, 1 - 4 * np.exp(-10)], atol=1e-2)


def small_mlp(activation=jnp.tanh):
    network = eqx.nn.MLP(5, 1, 20, 2, activation, key=jax.random.key(0))
    X, y = np.random.default_rng(0).standard_normal((50, 5)), np.random.default_rng(1).standard_normal((50, 1))
    return network, flowsim.EmpiricalRisk(X, y)


@pytest.mark.slow
def test_a_flow_that_grows_stiff_turns_to_the_low_rank_solver_and_back_where_steps_are_short():
    network, problem = small_mlp()
    options = {"t1": 500.0, "ts": np.linspace(1e6, 2e6, 401)}  # records that no run reaches: one program for all
    ours = flowsim.integrate(network, problem, **options)
    explicit = flowsim.integrate(network, problem, solver=StabilitySwitching(), t1=500.0, ts=[])
    assert ours.steps < 0.5 * explicit.steps
    assert ours.gradients < 0.5 * explicit.gradients
    assert ours.products > 0
    np.testing.assert_allclose(flat(ours.network), flat(explicit.network), rtol=1e-4, atol=1e-5)
    # Records so close that accuracy is for nothing: explicit steps are cheaper, and the low-rank ones, of which each
    # takes a product or more, are given up after some twenty.
    before = flowsim.integrate(network, problem, **options | {"t1": 60.0})
    close = flowsim.integrate(network, problem, t1=62.0, ts=np.linspace(60, 62, 401))
    assert (close.outcome, close.time) == (flowsim.Outcome.TIME_LIMIT, 62)
    assert close.steps > before.steps + 390
    assert close.products < before.products + 100


@pytest.mark.slow
def test_a_linear_model_at_zero_raises_the_order_of_its_steps():
    X = np.random.default_rng(0).standard_normal((50, 5))
    labels = np.where(X @ np.arange(1, 6) + 3 * np.random.default_rng(2).standard_normal(50) > 0, 1, -1)
    network = jax.tree.map(jnp.zeros_like, eqx.nn.Linear(5, 1, use_bias=False, key=jax.random.key(0)))
    problem = flowsim.EmpiricalRisk(X, labels[:, None], flowsim.losses.Logistic())
    flow = flowsim.integrate(network, problem, t1=10.0, ts=[], solver=LowRankExtrapolation())
    assert flow.steps < 20
