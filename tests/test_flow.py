import itertools
import re
import subprocess
import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_solvers import flat

import flowsim
from flowsim import Outcome
from flowsim.curvature import resolve_rtol
from flowsim.dynamics import GradientFlow
from flowsim.dynamics.learning_rates.learning_rate import check_learning_rate
from flowsim.dynamics.stopping import stopping_for
from flowsim.networks import cast
from flowsim.solvers import ProposedSteps


def drawn(*widths, scale=0.5, seed=0, **options):
    return flowsim.DeepLinear.gaussian(widths=list(widths), scale=scale, key=jax.random.key(seed), **options)


def scipy_limit(network, problem, time):
    """The flow at `time` by SciPy's DOP853 at rtol 1e-12, on the gradient as the paper writes it."""
    shapes = [weight.shape for weight in network.weights]
    sizes = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    covariance, optimum = np.asarray(problem.covariance), np.asarray(problem.optimum)

    def field(_, vector):
        weights = [part.reshape(shape) for part, shape in zip(np.split(vector, sizes), shapes, strict=True)]
        below = list(itertools.accumulate(weights, lambda product, weight: weight @ product, initial=np.eye(5)))
        above = list(itertools.accumulate(weights[::-1], np.matmul, initial=np.eye(1)))[-2::-1]
        pull = 2 * (below[-1] - optimum) @ covariance
        gradients = [np.outer(up, pull @ down.T) for up, down in zip(above, below[:-1], strict=True)]
        return -np.concatenate(gradients, axis=None)

    return solve_ivp(field, (0, time), flat(network), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]


def imbalances(network):
    """Return W_{k+1}ᵀW_{k+1} − W_kW_kᵀ for all k, in a row."""
    pairs = itertools.pairwise(network.weights)
    return np.concatenate([np.ravel(above.T @ above - below @ below.T) for below, above in pairs])


def test_a_flow_is_that_of_scipy(mlp, problem, mlp_flow):
    time = float(mlp_flow.times[np.searchsorted(-np.asarray(mlp_flow.excess_risk), -0.1 * mlp_flow.excess_risk[0])])
    flow = flowsim.integrate(mlp, problem, t1=time, rtol=1e-10)
    np.testing.assert_allclose(flat(flow.network), scipy_limit(mlp, problem, time), atol=1e-8)


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


def test_balancedness_is_conserved_to_rtol(mlp, problem):
    tolerances = np.array([1e-4, 1e-6, 1e-8, 1e-10])
    ends = [flowsim.integrate(mlp, problem, rtol=rtol).network for rtol in tolerances]
    drifts = [np.linalg.norm(imbalances(end) - imbalances(mlp)) for end in ends]
    assert drifts[1] < 1e-4 * np.linalg.norm(flat(mlp))
    slope = np.polyfit(np.log10(tolerances), np.log10(drifts), 1)[0]
    assert 0.7 < slope < 1.3


@pytest.mark.slow
def test_records_are_thinned_to_as_many_as_are_asked_for_or_half_of_them(problem):
    flow = flowsim.integrate(drawn(5, 5, 1), problem, solver=diffrax.Heun(), rtol=1e-8, records=256)
    assert int(flow.steps) > 1000
    assert 128 <= len(flow.times) <= 256
    assert (np.diff(flow.times) > 0).all()
    assert np.isfinite(flow.risk).all()


@pytest.mark.slow
def test_any_adaptive_diffrax_solver_reaches_the_same_limit(problem):
    network = drawn(5, 5, 1)
    flow = flowsim.integrate(network, problem, solver=diffrax.Kvaerno5())
    assert flow.converged
    assert flow.gradients is None  # an implicit solver of others does not say what it took
    np.testing.assert_allclose(flat(flow.network), flat(flowsim.integrate(network, problem).network), atol=1e-5)


@pytest.mark.slow
def test_all_that_is_recorded_is_so_exactly_at_the_times_asked_for_and_at_the_end(mlp, problem, mlp_flow):
    options = {"weights": True, "sharpness": True, "diagnostics": {"first": lambda network: network.weights[0]}}
    flow = flowsim.integrate(mlp, problem, ts=[0.0, 0.3, 5.0, 1e6], **options)
    np.testing.assert_array_equal(flow.times[:3], [0.0, 0.3, 5.0])
    assert flow.times.shape == (4,)
    assert flow.outcome is Outcome.CONVERGED
    np.testing.assert_allclose(flat(flow.network), flat(mlp_flow.network), atol=1e-6)
    np.testing.assert_array_equal(flow.weights.stacks[0][-1], flow.network.stacks[0])
    assert flow.diagnostics["first"].shape == (4, 5, 5)
    ends = [flowsim.sharpness(mlp, problem), flow.final_sharpness]
    np.testing.assert_allclose(flow.sharpness[np.array([0, -1])], ends, rtol=1e-10)


def test_time_and_step_limits_end_the_run_and_are_named(mlp, problem):
    short = flowsim.integrate(mlp, problem, t1=0.5)
    assert short.outcome is Outcome.TIME_LIMIT
    assert float(short.time) == 0.5
    few = flowsim.integrate(mlp, problem, max_steps=7)
    assert few.outcome is Outcome.STEP_LIMIT
    assert int(few.steps) + int(few.rejected_steps) == 7
    assert flowsim.integrate(mlp, problem, t1=0.0).outcome is Outcome.TIME_LIMIT


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
    assert batch.outcome.tolist() == [Outcome.CONVERGED] * 3
    assert (batch.outcome == Outcome.CONVERGED).all()


def test_times_of_records_may_be_those_of_a_program():
    @jax.jit
    def recorded(end):
        return flowsim.integrate(jnp.ones(1), flowsim.Risk(lambda w: w[0] ** 2 / 2), ts=jnp.arange(3) * end / 2, t1=end)

    np.testing.assert_allclose(np.exp(-recorded(1.0).times) ** 2 / 2, recorded(1.0).risk, rtol=1e-5)


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_least_number_that_a_refusal_names_is_accepted(dtype):
    start, risk = jnp.ones(3, dtype), flowsim.Risk(lambda w: jnp.sum((w - 3) ** 2))
    runs = (
        lambda least: GradientFlow(rtol=least).checked(start.dtype),
        lambda least: stopping_for(flowsim.Stopping(gradient_norm=least), risk, start.dtype),
        lambda least: check_learning_rate(least, start.dtype),
        lambda least: resolve_rtol(least, start.dtype),
    )
    for run in runs:
        with pytest.raises(ValueError, match="or more") as caught:
            run(1e-310)
        (named,) = re.findall(r"([\d.]+(?:e-\d+)?) or more", str(caught.value))
        run(float(named))


def test_half_precision_has_tolerances_that_it_resolves():
    flow = flowsim.integrate(jnp.ones(3, "float16"), flowsim.Risk(lambda w: jnp.sum((w - 3) ** 2)))
    assert flow.outcome is flowsim.Outcome.CONVERGED


CONTROL = diffrax.PIDController(rtol=1e-6, atol=1e-9)


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
        ({"stepsize_controller": CONTROL, "rtol": 1e-6}, "give rtol and atol to it"),
        ({"stepsize_controller": diffrax.PIDController(rtol=1e-6, atol=1e-9, step_ts=[1.0])}, "ts="),
        ({"stepsize_controller": CONTROL}, "the default solver chooses its steps itself: give rtol and atol to"),
        ({"stepsize_controller": diffrax.ConstantStepSize()}, "ConstantStepSize"),
        ({"solver": diffrax.Euler()}, "no error estimate"),
        ({"solver": diffrax.HalfSolver(diffrax.Euler())}, "tableau"),
        (
            {"solver": diffrax.Tsit5(), "stepsize_controller": ProposedSteps(rtol=1e-6, atol=1e-9)},
            r"Tsit5 proposes no steps.*: use diffrax\.PIDController",
        ),
        ({"sharpness": True, "diagnostics": {"sharpness": lambda network: 0.0}}, "another name"),
        ({"diagnostics": {"norm": 3}}, "diagnostics"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused(options, message, mlp, problem):
    with pytest.raises((ValueError, TypeError), match=message):
        flowsim.integrate(mlp, problem, **options)


def test_what_cannot_be_right_with_a_network_is_refused(mlp, problem):
    broken = eqx.tree_at(lambda n: n.stacks[0], mlp, replace_fn=lambda stack: stack.at[0, 0, 0].set(jnp.inf))
    single, bent = cast(mlp, jnp.float32), flowsim.Perceptron([np.ones((1, 1))] * 2, activation="tanh")
    samples = flowsim.EmpiricalRisk(np.ones((2, 1)), np.ones(2))
    for network, risk, options, message in (
        (broken, problem, {}, "not finite"),
        (single, problem, {"rtol": 1e-9}, "use float64"),
        (single, problem, {"stopping": flowsim.Stopping(gradient_norm=1e-9)}, "use float64"),
        (bent, samples, {"stopping": flowsim.Stopping(excess_risk=1e-3)}, "minimal_risk"),
    ):
        with pytest.raises(ValueError, match=message):
            flowsim.integrate(network, risk, **options)
    with pytest.raises(ValueError, match="gradient_norm"):
        flowsim.Stopping(gradient_norm=-1.0)


@pytest.mark.slow
def test_importing_flowsim_changes_no_setting_of_jax():
    code = (
        "import jax; before = dict(jax.config.values); import flowsim; "
        "assert dict(jax.config.values) == before; assert not jax.config.jax_enable_x64"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
