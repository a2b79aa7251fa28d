import itertools
import subprocess
import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim import Outcome
from flowsim.networks import cast, split
from flowsim.solvers import ProposedSteps


def drawn(*widths, scale=0.5, seed=0):
    return flowsim.DeepLinear.gaussian(widths=list(widths), scale=scale, key=jax.random.key(seed))


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
    from scipy.integrate import solve_ivp

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


def test_a_flow_is_that_of_scipy(mlp, problem, mlp_flow):
    time = float(mlp_flow.times[np.searchsorted(-np.asarray(mlp_flow.excess_risk), -0.1 * mlp_flow.excess_risk[0])])
    flow = flowsim.integrate(mlp, problem, t1=time, rtol=1e-10)
    weights = np.concatenate([np.ravel(weight) for weight in flow.network.weights])
    np.testing.assert_allclose(weights, scipy_limit(mlp, problem, time), atol=1e-8)


def test_a_flow_reaches_its_limit_and_its_records_see_the_plateau_the_fast_phase_and_the_approach(mlp_flow):
    risk = np.asarray(mlp_flow.excess_risk) / float(mlp_flow.excess_risk[0])
    assert mlp_flow.outcome is Outcome.CONVERGED
    assert mlp_flow.converged is True
    assert float(mlp_flow.gradient_norm[-1]) <= 1e-8
    assert float(mlp_flow.excess_risk[-1]) < 1e-15
    assert float(mlp_flow.time) == float(mlp_flow.times[-1])
    assert 50 <= len(risk) <= 128
    assert (np.diff(mlp_flow.times) > 0).all()
    assert (risk > 0.9).sum() >= 3  # the whole of a short plateau: the first steps are far apart
    assert ((risk < 0.9) & (risk > 0.1)).sum() >= 10
    assert (risk < 1e-3).sum() >= 10
    assert (np.diff(risk) < 0).all()


@pytest.mark.slow
def test_twice_as_many_records_are_made_where_they_are_asked_for(mlp, problem, mlp_flow):
    flow = flowsim.integrate(mlp, problem, records=2 * len(mlp_flow.times))
    assert len(mlp_flow.times) < len(flow.times) <= 2 * len(mlp_flow.times)
    np.testing.assert_allclose(flow.risk[-1], mlp_flow.risk[-1], atol=1e-12)


@pytest.mark.slow
def test_records_are_thinned_when_there_are_too_many(problem):
    flow = flowsim.integrate(drawn(5, 5, 1), problem, solver=diffrax.Heun(), rtol=1e-8)
    assert int(flow.steps) > 1000
    assert 64 <= len(flow.times) <= 128
    assert (np.diff(flow.times) > 0).all()
    assert np.isfinite(flow.risk).all()


def test_balancedness_is_conserved_to_rtol(mlp, problem):
    drifts = [drift(mlp, flowsim.integrate(mlp, problem, rtol=rtol).network) for rtol in (1e-4, 1e-6, 1e-8, 1e-10)]
    assert drifts[1] < 1e-4 * np.linalg.norm(flat(mlp))
    slope = np.polyfit(np.log10([1e-4, 1e-6, 1e-8, 1e-10]), np.log10(drifts), 1)[0]
    assert 0.7 < slope < 1.3


@pytest.mark.slow
def test_any_adaptive_diffrax_solver_reaches_the_same_limit(problem):
    network = drawn(5, 5, 1)
    flow = flowsim.integrate(network, problem, solver=diffrax.Kvaerno5())
    assert flow.converged
    assert flow.gradients is None  # an implicit solver of others does not say what it took
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


def test_an_unknown_minimum_is_no_criterion():
    problem = flowsim.EmpiricalRisk(np.ones((2, 1)), np.ones(2))
    network = flowsim.Perceptron([np.ones((1, 1))] * 2, activation="tanh")
    with pytest.raises(ValueError, match="minimal_risk"):
        flowsim.integrate(network, problem, stopping=flowsim.Stopping(excess_risk=1e-3))


@pytest.mark.slow
def test_a_plateau_with_a_tiny_gradient_is_not_taken_for_the_limit(problem):
    network = drawn(*[5] * 10, 1, scale=0.01)
    flow = flowsim.integrate(network, problem)
    assert float(flow.gradient_norm[0]) < 1e-8
    assert float(flow.time) > 1e10
    assert flow.converged
    assert float(flow.excess_risk[-1]) < 1e-14


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
    flowsim.integrate(drawn(*[5] * 10, 1, scale=0.3, seed=9), problem)
    before = compiled()
    another = drawn(*[5] * 10, 1, scale=0.3, seed=9)
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
        ({"rtol": 1e-16}, "finer than float64"),
        ({"atol": -1.0}, "atol"),
        ({"t1": -1.0}, "t1"),
        ({"max_steps": 1.5}, "max_steps"),
        ({"ts": [1.0, 1.0]}, "increasing"),
        ({"ts": [-1.0]}, "zero or more"),
        ({"records": 1}, "two or more"),
        ({"records": 9, "ts": []}, "give one"),
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
