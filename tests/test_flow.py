import itertools
import subprocess
import sys
from functools import partial

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import flowsim
from flowsim import Outcome
from flowsim.networks import cast, split
from flowsim.solvers import ProposedSteps

slow = partial(pytest.param, marks=pytest.mark.slow)

KEY = jax.random.key(0)


def flat(network):
    return np.asarray(ravel_pytree(split(network)[0])[0])


def plain_gradient(weights, projection, covariance, optimum):
    """∇R of a deep linear network in NumPy, from the formula of the paper."""
    regressor = projection
    above = [projection]
    for weight in reversed(weights):
        regressor = weight.T @ regressor
        above.append(regressor)
    below, gradients = 2 * covariance @ (regressor - optimum), []
    for weight, vector in zip(weights, reversed(above[:-1]), strict=True):
        gradients.append(np.outer(vector, below))
        below = weight @ below
    return gradients


def scipy_limit(network, problem, time):
    """The flow at `time` by SciPy's DOP853 at rtol 1e-12, on the plain gradient."""
    weights = [np.asarray(weight) for weight in network.weights]
    sizes = np.cumsum([weight.size for weight in weights])[:-1]
    projection = np.ones(1) if network.projection is None else np.asarray(network.projection)

    def field(_, vector):
        parts = [part.reshape(w.shape) for part, w in zip(np.split(vector, sizes), weights, strict=True)]
        gradients = plain_gradient(parts, projection, np.asarray(problem.covariance), np.asarray(problem.optimum))
        return -np.concatenate([gradient.ravel() for gradient in gradients])

    start = np.concatenate([weight.ravel() for weight in weights])
    return solve_ivp(field, (0, time), start, method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]


def balance(network):
    weights = network.weights
    return [above.T @ above - below @ below.T for below, above in itertools.pairwise(weights)]


def drift(start, end):
    return max(np.linalg.norm(a - b) for a, b in zip(balance(start), balance(end), strict=True))


@pytest.mark.slow
def test_one_layer_follows_the_closed_form(problem):
    """π(t) = w* + exp(−2Σt) (π(0) − w*)."""
    ts = np.array([0.0, 0.1, 1.0, 3.0])
    flow = flowsim.integrate(flowsim.DeepLinear([np.ones((1, 5))]), problem, ts=ts, weights=True, rtol=1e-10)
    covariance, optimum = np.asarray(problem.covariance), np.asarray(problem.optimum)
    expected = [optimum + expm(-2 * covariance * t) @ (1 - optimum) for t in ts]
    np.testing.assert_allclose(flow.weights.stacks[0][:4, 0, 0], expected, atol=1e-9)


@pytest.mark.slow
def test_two_balanced_scalar_layers_follow_the_logistic_curve():
    """a = b = √u with u' = 4u(1 − u), so u = 1/(1 + (1/u₀ − 1) e^{−4t})."""
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    start = 0.01
    network = flowsim.DeepLinear([np.full((1, 1), start**0.5)] * 2)
    ts = np.linspace(0, 3, 13)
    flow = flowsim.integrate(network, problem, ts=ts, weights=True, rtol=1e-10)
    logistic = 1 / (1 + (1 / start - 1) * np.exp(-4 * ts))
    np.testing.assert_allclose(np.prod(flow.weights.stacks[0][:13], axis=1).ravel(), logistic, atol=1e-8)
    np.testing.assert_allclose(flow.squared_distance[:13], (1 - logistic) ** 2, atol=1e-8)


@pytest.mark.parametrize("name", ["residual", slow("mlp")])
@pytest.mark.slow
def test_the_limit_agrees_with_scipy_and_better_with_a_finer_tolerance(name, problem, request):
    network = request.getfixturevalue(name)
    fine = flowsim.Stopping(gradient_norm=1e-13)
    runs = [flowsim.integrate(network, problem, rtol=rtol, stopping=fine) for rtol in (1e-4, 1e-6, 1e-8, 1e-10)]
    weights = np.concatenate([np.ravel(weight) for weight in runs[-1].network.weights])
    reference = scipy_limit(network, problem, float(runs[-1].time))
    assert np.linalg.norm(weights - reference) / np.linalg.norm(reference) < 1e-9
    errors = [np.linalg.norm(flat(run.network) - flat(runs[-1].network)) / np.linalg.norm(reference) for run in runs]
    assert errors[1] < 1e-6
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


@pytest.mark.parametrize("name", ["residual_flow", "mlp_flow"])
@pytest.mark.slow
def test_default_settings_reach_the_limit_and_say_so(name, request):
    flow = request.getfixturevalue(name)
    assert flow.outcome is Outcome.CONVERGED
    assert flow.converged is True
    assert float(flow.gradient_norm[-1]) <= 1e-8
    assert float(flow.excess_risk[-1]) < 1e-15
    assert float(flow.time) == float(flow.times[-1])


def test_default_records_see_the_plateau_the_fast_phase_and_the_approach(mlp_flow):
    risk = np.asarray(mlp_flow.excess_risk) / float(mlp_flow.excess_risk[0])
    assert 50 <= len(risk) <= 128
    assert (np.diff(mlp_flow.times) > 0).all()
    assert (risk > 0.9).sum() >= 3  # the whole of a short plateau: the first steps are far apart
    assert ((risk < 0.9) & (risk > 0.1)).sum() >= 10
    assert (risk < 1e-3).sum() >= 10


@pytest.mark.slow
def test_twice_as_many_records_are_made_where_they_are_asked_for(mlp, problem, mlp_flow):
    flow = flowsim.integrate(mlp, problem, records=2 * len(mlp_flow.times))
    assert len(mlp_flow.times) < len(flow.times) <= 2 * len(mlp_flow.times)
    np.testing.assert_allclose(flow.risk[-1], mlp_flow.risk[-1], atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"), [({"records": 1}, "two or more"), ({"records": 9, "ts": []}, "give one")]
)
def test_a_wrong_number_of_records_is_refused(options, message, mlp, problem):
    with pytest.raises(ValueError, match=message):
        flowsim.integrate(mlp, problem, **options)


@pytest.mark.slow
def test_a_run_of_a_solver_of_diffrax_goes_on_in_a_second_call(mlp, problem, monkeypatch):
    options = {"solver": diffrax.Tsit5(), "t1": 1.0, "ts": []}
    whole = flowsim.integrate(mlp, problem, **options)
    monkeypatch.setattr("flowsim.dynamics.driver.CallLength.first", lambda *_, **__: 2)
    cut = flowsim.integrate(mlp, problem, **options)
    assert int(cut.steps) == int(whole.steps) > 4
    np.testing.assert_array_equal(cut.risk, whole.risk)


@pytest.mark.slow
def test_records_are_thinned_when_there_are_too_many(residual, problem):
    flow = flowsim.integrate(residual, problem, solver=diffrax.Heun())
    assert int(flow.steps) > 1000
    assert 64 <= len(flow.times) <= 128
    assert (np.diff(flow.times) > 0).all()
    assert np.isfinite(flow.risk).all()


def test_risk_never_rises_along_the_flow(mlp_flow):
    assert (np.diff(mlp_flow.excess_risk) < 0).all()


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.4, 0.6]))
def test_balancedness_is_conserved(problem, seed, scale):
    network = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=scale, key=jax.random.key(seed))
    flow = flowsim.integrate(network, problem)
    assert drift(network, flow.network) < 1e-4 * max(1.0, np.linalg.norm(flat(network)))


def test_the_drift_of_balancedness_follows_rtol(mlp, problem):
    drifts = [drift(mlp, flowsim.integrate(mlp, problem, rtol=rtol).network) for rtol in (1e-4, 1e-6, 1e-8, 1e-10)]
    slope = np.polyfit(np.log10([1e-4, 1e-6, 1e-8, 1e-10]), np.log10(drifts), 1)[0]
    assert 0.7 < slope < 1.3


@pytest.mark.parametrize("solver", [slow(diffrax.Dopri8()), diffrax.Bosh3(), slow(diffrax.Kvaerno5())])
@pytest.mark.slow
def test_any_adaptive_diffrax_solver_reaches_the_same_limit(solver, problem):
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.5, key=KEY)
    flow = flowsim.integrate(network, problem, solver=solver)
    assert flow.converged
    np.testing.assert_allclose(flat(flow.network), flat(flowsim.integrate(network, problem).network), atol=1e-5)


@pytest.mark.slow
def test_times_asked_for_are_reached_exactly_and_the_end_is_added(mlp, problem, mlp_flow):
    flow = flowsim.integrate(mlp, problem, ts=[0.0, 0.3, 5.0, 1e6], weights=True)
    np.testing.assert_array_equal(flow.times[:3], [0.0, 0.3, 5.0])
    assert flow.times.shape == (4,)
    assert flow.outcome is Outcome.CONVERGED
    np.testing.assert_allclose(flat(flow.network), flat(mlp_flow.network), atol=1e-6)
    np.testing.assert_array_equal(flow.weights.stacks[0][-1], flow.network.stacks[0])


@pytest.mark.slow
def test_diagnostics_and_sharpness_are_recorded_at_the_same_times(mlp, problem):
    flow = flowsim.integrate(
        mlp, problem, ts=[0.0, 1.0], sharpness=True, diagnostics={"first": lambda network: network.weights[0]}
    )
    assert flow.diagnostics["first"].shape == (3, 5, 5)
    np.testing.assert_allclose(flow.sharpness[0], flowsim.sharpness(mlp, problem), rtol=1e-10)
    np.testing.assert_allclose(flow.sharpness[-1], flow.final_sharpness, rtol=1e-10)


def test_time_and_step_limits_end_the_run_and_are_named(mlp, problem):
    short = flowsim.integrate(mlp, problem, t1=0.5)
    assert short.outcome is Outcome.TIME_LIMIT
    assert float(short.time) == 0.5
    few = flowsim.integrate(mlp, problem, max_steps=7)
    assert few.outcome is Outcome.STEP_LIMIT
    assert int(few.steps) + int(few.rejected_steps) == 7
    assert flowsim.integrate(mlp, problem, t1=0.0).outcome is Outcome.TIME_LIMIT


@pytest.mark.slow
def test_excess_risk_can_end_the_run(mlp, problem):
    flow = flowsim.integrate(mlp, problem, stopping=flowsim.Stopping(excess_risk=1e-3))
    assert flow.outcome is Outcome.RISK_REACHED
    assert flow.outcome.as_asked
    assert not flow.converged
    assert float(flow.excess_risk[-1]) <= 1e-3 < float(flow.excess_risk[-2])


@pytest.mark.parametrize("run", [flowsim.integrate, lambda *a: flowsim.descend(*a, learning_rate=0.1, steps=9)])
@pytest.mark.slow
def test_the_zero_network_is_a_saddle_and_does_not_move(run, problem):
    network = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.0, key=KEY)
    result = run(network, problem)
    assert result.outcome is Outcome.STATIONARY
    assert not result.converged
    assert result.final_sharpness == 0


@pytest.mark.slow
def test_the_zero_network_does_not_move_on_an_empirical_risk_either():
    problem = flowsim.EmpiricalRisk(np.ones((20, 3)), np.ones(20))
    network = flowsim.Perceptron.gaussian(widths=[3, 3, 1], scale=0.0, activation="tanh", key=KEY)
    assert flowsim.integrate(network, problem, t1=1.0).outcome is Outcome.STATIONARY


@pytest.mark.slow
def test_a_plateau_of_a_nonlinear_network_is_not_taken_for_the_limit():
    X = np.random.default_rng(0).standard_normal((20, 3))
    problem = flowsim.EmpiricalRisk(X, np.tanh(X @ [0.5, -0.3, 0.2]))
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 4, 4, 1], scale=0.01, activation="tanh", key=KEY)
    flow = flowsim.integrate(network, problem, stopping=flowsim.Stopping(gradient_norm=1e-4))
    assert flow.gradient_norm[0] < 1e-4
    assert flow.outcome is Outcome.GRADIENT_REACHED  # the risk falls towards no weights in sight
    assert flow.outcome.as_asked
    assert flow.risk[-1] < flow.risk[0] / 50


def test_an_unknown_minimum_is_no_criterion():
    problem = flowsim.EmpiricalRisk(np.ones((2, 1)), np.ones(2))
    network = flowsim.Perceptron.gaussian(widths=[1, 1, 1], scale=1.0, activation="tanh", key=KEY)
    with pytest.raises(ValueError, match="minimal_risk"):
        flowsim.integrate(network, problem, stopping=flowsim.Stopping(excess_risk=1e-3))


@pytest.mark.slow
def test_a_plateau_with_a_tiny_gradient_is_not_taken_for_the_limit(problem):
    network = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.01, key=KEY)
    flow = flowsim.integrate(network, problem)
    assert float(flow.gradient_norm[0]) < 1e-8
    assert float(flow.time) > 1e10
    assert flow.converged
    assert float(flow.excess_risk[-1]) < 1e-14


@pytest.mark.slow
def test_a_start_at_the_minimum_has_converged_at_time_zero():
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))
    flow = flowsim.integrate(flowsim.DeepLinear([np.ones((1, 1))] * 3), problem)
    assert flow.outcome is Outcome.CONVERGED
    assert float(flow.time) == 0


@pytest.mark.parametrize(("n", "d"), [(4, 9), slow(30, 1)])
@pytest.mark.slow
def test_underdetermined_data_and_width_one_converge(n, d):
    generator = np.random.default_rng(0)
    problem = flowsim.LinearRegression(generator.standard_normal((n, d)), generator.standard_normal(n))
    network = flowsim.DeepLinear.gaussian(widths=[d, d, d, 1], scale=0.7, key=KEY)
    flow = flowsim.integrate(network, problem)
    assert flow.converged
    assert float(flow.excess_risk[-1]) < 1e-14


@pytest.mark.slow
def test_several_outputs_converge(problem):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((40, 4))
    Y = X @ np.eye(4) + 0.3 * generator.standard_normal((40, 4))
    several = flowsim.LinearRegression(X, Y)
    network = flowsim.DeepLinear.residual(width=4, depth=6, scale=0.3, key=KEY)
    flow = flowsim.integrate(network, several)
    assert flow.converged
    assert float(several.squared_distance(flow.network)) < 1e-14


@pytest.mark.slow
def test_a_nonlinear_network_reaches_a_minimum():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((20, 3))
    problem = flowsim.EmpiricalRisk(X, np.tanh(X @ np.ones(3)))
    network = flowsim.Perceptron.gaussian(widths=[3, 3, 1], scale=0.8, activation="tanh", key=KEY)
    flow = flowsim.integrate(network, problem, stopping=flowsim.Stopping(gradient_norm=1e-5))
    assert flow.converged
    assert np.isnan(flow.squared_distance).all()
    hessian = jax.jit(jax.hessian(_risk_of(flow.network, problem)))(flat(flow.network))
    assert np.linalg.eigvalsh(np.asarray(hessian))[0] > -1e-3


class Mixture(eqx.Module):
    """A model of a user's own: a function, a number and a name among its leaves, and a fixed array."""

    weight: jax.Array
    offset: flowsim.Fixed
    activation: object
    power: int
    name: str

    def __call__(self, x):
        return jnp.sum(self.activation(self.weight @ x) ** self.power) + self.offset.value


@pytest.mark.slow
def test_a_model_of_the_users_own_flows_and_what_is_fixed_stays():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((15, 3))
    problem = flowsim.EmpiricalRisk(X, X[:, 0] ** 2)
    start = Mixture(0.5 * jnp.eye(3), flowsim.Fixed(jnp.array(0.25)), jnp.tanh, 2, "mine")
    flow = flowsim.integrate(start, problem, t1=5.0, ts=[1.0], sharpness=True)
    assert flow.outcome is Outcome.TIME_LIMIT
    assert float(flow.risk[-1]) < float(problem(start))
    assert float(flow.network.offset.value) == 0.25
    assert flow.network.activation is jnp.tanh
    gd = flowsim.descend(start, problem, learning_rate=0.01, steps=500)
    assert abs(float(gd.risk[-1]) - float(flow.risk[-1])) < 0.01


def _risk_of(network, problem):
    weights, rest = split(network)
    unravel = ravel_pytree(weights)[1]
    return lambda vector: problem(eqx.combine(unravel(vector), rest))


@pytest.mark.slow
def test_jit_and_vmap_give_the_same_runs(problem):
    keys = jax.random.split(jax.random.key(2), 3)

    def one(key):
        return flowsim.integrate(flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.5, key=key), problem)

    batch = eqx.filter_jit(eqx.filter_vmap(one))(keys)
    assert bool(batch.converged.all())
    for lane, key in enumerate(keys):
        alone = one(key)
        np.testing.assert_allclose(batch.network.stacks[0][lane], alone.network.stacks[0], rtol=1e-12)
        assert int(batch.count[lane]) == len(alone.times)
        np.testing.assert_allclose(batch.risk[lane, : len(alone.times)], alone.risk, rtol=1e-9)
        assert np.isnan(batch.times[lane, len(alone.times) :]).all()
    assert batch.outcome.tolist() == [flowsim.Outcome.CONVERGED] * 3
    assert (batch.outcome == flowsim.Outcome.CONVERGED).all()


def test_a_second_run_with_the_same_shapes_does_not_compile(problem, mlp_flow, compiled):
    other = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.3, key=jax.random.key(9))
    flowsim.integrate(other, problem)
    before = compiled()
    another = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.3, key=jax.random.key(9))
    flowsim.integrate(another, problem, rtol=1e-7, t1=100.0, stopping=flowsim.Stopping(gradient_norm=1e-9))
    assert compiled() == before


@pytest.mark.slow
def test_single_precision_converges_at_tolerances_of_its_own(mlp, problem, mlp_flow):
    flow = flowsim.integrate(cast(mlp, jnp.float32), problem)
    assert flow.converged
    assert flow.times.dtype == flow.network.stacks[0].dtype == jnp.float32
    np.testing.assert_allclose(flat(flow.network), flat(mlp_flow.network), atol=2e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": 0.0}, "0 < rtol < 1"),
        ({"rtol": 1e-16}, "finer than float64"),
        ({"atol": -1.0}, "atol"),
        ({"t1": -1.0}, "t1"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"ts": [1.0, 1.0]}, "increasing"),
        ({"ts": [-1.0]}, "zero or more"),
        ({"ts": [[1.0]]}, "increasing"),
        (
            {"stepsize_controller": diffrax.PIDController(rtol=1e-6, atol=1e-9), "rtol": 1e-6},
            "give rtol and atol to it",
        ),
        ({"stepsize_controller": diffrax.PIDController(rtol=1e-6, atol=1e-9, step_ts=[1.0])}, "ts="),
        ({"sharpness": True, "diagnostics": {"sharpness": lambda network: 0.0}}, "another name"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused(options, message, mlp, problem):
    with pytest.raises(ValueError, match=message):
        flowsim.integrate(mlp, problem, **options)


def test_tolerances_beyond_single_precision_are_refused_with_the_remedy(mlp, problem):
    single = cast(mlp, jnp.float32)
    with pytest.raises(ValueError, match="use float64"):
        flowsim.integrate(single, problem, rtol=1e-9)
    with pytest.raises(ValueError, match="use float64"):
        flowsim.integrate(single, problem, stopping=flowsim.Stopping(gradient_norm=1e-9))


def test_other_misuse_is_refused(mlp, problem):
    broken = eqx.tree_at(lambda n: n.stacks[0], mlp, replace_fn=lambda stack: stack.at[0, 0, 0].set(jnp.inf))
    with pytest.raises(ValueError, match="not finite"):
        flowsim.integrate(broken, problem)
    with pytest.raises(TypeError, match="diagnostics"):
        flowsim.integrate(mlp, problem, diagnostics={"norm": 3})
    with pytest.raises(ValueError, match="gradient_norm"):
        flowsim.Stopping(gradient_norm=-1.0)
    with pytest.raises(TypeError, match="no error estimate"):
        flowsim.integrate(mlp, problem, solver=diffrax.Euler())
    with pytest.raises(TypeError, match="the default solver chooses its steps itself: give rtol and atol to integrate"):
        flowsim.integrate(mlp, problem, stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-9))
    with pytest.raises(TypeError, match=r"Tsit5 proposes no steps.*: use diffrax\.PIDController"):
        flowsim.integrate(mlp, problem, solver=diffrax.Tsit5(), stepsize_controller=ProposedSteps(rtol=1e-6, atol=1e-9))
    with pytest.raises(TypeError, match="tableau"):
        flowsim.integrate(mlp, problem, solver=diffrax.HalfSolver(diffrax.Euler()))
    with pytest.raises(TypeError, match="ConstantStepSize"):
        flowsim.integrate(mlp, problem, stepsize_controller=diffrax.ConstantStepSize())


@pytest.mark.slow
def test_importing_flowsim_changes_no_setting_of_jax():
    code = (
        "import jax; before = dict(jax.config.values); import flowsim; "
        "assert dict(jax.config.values) == before; assert not jax.config.jax_enable_x64"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
