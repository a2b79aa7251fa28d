"""Where runs end: what is said of it, beside saddles, plateaus and valleys, and the sharpness of the flow's limit."""

import dataclasses
import os
import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose
from test_flow import drawn
from test_separable import MIXED, X, of_signs
from test_solvers import flat

import flowsim
from flowsim import EmpiricalRisk, LinearRegression, Outcome, Risk, Stopping
from flowsim.curvature import extreme_eigenpairs, local_quadratic_model
from flowsim.dynamics import outcome_by_curvature, stopping_for
from flowsim.losses import Logistic
from flowsim.networks import DeepLinear, Perceptron, cast, split, weight_dtype


class Landscape(eqx.Module):
    """A risk of two weights whose terms are data: one program for all of them.

    `wells` alone have minima at y = ±1 and a saddle between, `fall`, `slope` and `step` no minimizer, `bell` a plateau
    around one, `far` one at a large y, and `product` is that of two scalar layers.
    """

    bowl: jax.Array
    wells: jax.Array
    product: jax.Array
    fall: jax.Array
    slope: jax.Array
    bell: jax.Array
    step: jax.Array
    far: jax.Array

    def __call__(self, weights):
        x, y = weights
        below = self.fall * jnp.logaddexp(0, -x) + self.slope * x + self.step * jax.nn.sigmoid(x)
        below += self.bell * (1 - jnp.exp(-(x**2))) + self.far * (y - 1e7) ** 2 / 2
        return self.bowl * (x - 1) ** 2 / 2 + self.wells * (y**2 - 1) ** 2 / 4 + self.product * (x * y - 1) ** 2 + below


def landscape(**terms):
    names = [field.name for field in dataclasses.fields(Landscape)]
    return Risk(Landscape(*(np.array(float(terms.get(name, 0))) for name in names)))


# Start, terms of the risk, options of the run, and its outcome.
BOWL, FALL = {"bowl": 1, "wells": 1}, {"fall": 1, "wells": 1}
LOOSE = Stopping(gradient_norm=1e-2)
FLOWS = {
    "a minimum": ([3, 0.5], BOWL, {}, Outcome.CONVERGED),
    "a start at a minimum": ([1, 1], BOWL, {}, Outcome.CONVERGED),
    "a saddle": ([3, 0], BOWL, {}, Outcome.STATIONARY),
    "a saddle of a stiff valley": ([3, 0], {"bowl": 1e9, "wells": 1}, {}, Outcome.STATIONARY),
    "past a saddle": ([3, 1e-10], BOWL, {}, Outcome.CONVERGED),
    "past a saddle of a stiff valley": ([3, 1e-10], {"bowl": 1e6, "wells": 1}, {}, Outcome.CONVERGED),
    "two layers at zero": ([0, 0], {"product": 1}, {}, Outcome.STATIONARY),
    "two layers from next to zero": ([1e-9, 2e-9], {"product": 1}, {}, Outcome.CONVERGED),
    "a logistic fall": ([0, 0.5], FALL, {}, Outcome.NO_MINIMIZER),
    "a logistic fall, loosely": ([0, 0.5], FALL, {"stopping": LOOSE}, Outcome.NO_MINIMIZER),
    "a logistic fall held back": ([0, 0.5], {"fall": 2, "slope": 1, "wells": 1}, {}, Outcome.CONVERGED),
    "a risk without a bound": ([0, 0.5], {"slope": 1, "wells": 1}, {}, Outcome.NO_MINIMIZER),
    "a plateau of a bell": ([5, 0.5], {"bell": 1, "wells": 1}, {}, Outcome.CONVERGED),
    "a plateau of a step, left after a time of e²⁵": ([25, 0.5], {"step": 1, "wells": 1}, {}, Outcome.NO_MINIMIZER),
    "growth beside a large weight": ([0, 0], {"fall": 1, "far": 1}, {}, Outcome.NO_MINIMIZER),
    "a short time": ([3, 0.5], BOWL, {"t1": 0.5}, Outcome.TIME_LIMIT),
    "few steps": ([3, 0.5], BOWL, {"max_steps": 7}, Outcome.STEP_LIMIT),
}


@pytest.mark.parametrize("case", FLOWS)
def test_a_flow_ends_as_its_landscape_has_it(case):
    start, terms, options, outcome = FLOWS[case]
    run = flowsim.integrate(np.array(start, float), landscape(**terms), ts=[], **options)
    assert run.outcome is outcome
    if outcome is Outcome.CONVERGED:
        first = 2 * terms.get("bowl", 0)  # in large units a gradient that fell by twelve digits is small
        assert float(run.gradient_norm[-1]) <= max(1e-8, 1e-12 * first)
        x, y = np.asarray(run.network)
        ends = {"fall": [x - 0, y - 1], "bell": [x, y - 1], "product": [x * y - 1, x**2 - y**2]}  # x² − y² is conserved
        off = next((ends[name] for name in ends if name in terms), [x - 1, abs(y) - 1])
        assert_allclose(off, 0, atol=2e-6)


DESCENTS = {
    "a minimum": ([3, 0.5], BOWL, {"learning_rate": 0.1}, Outcome.CONVERGED),
    "a saddle": ([3, 0], BOWL, {"learning_rate": 0.1}, Outcome.STATIONARY),
    "steps too large": ([3, 0.5], BOWL, {"learning_rate": 3.0}, Outcome.DIVERGED),
    "steps too small": ([3, 0.5], BOWL, {"learning_rate": 0.001}, Outcome.STEP_LIMIT),
    "a logistic fall": ([0, 0.5], FALL, {"learning_rate": 0.5, "stopping": LOOSE}, Outcome.NO_MINIMIZER),
}


def descended(start, terms, options):
    options = {"steps": 500, "record_steps": np.arange(501), "weights": True} | options
    return flowsim.descend(np.array(start, float), landscape(**terms), **options)


@pytest.mark.parametrize("case", DESCENTS)
def test_a_descent_ends_as_its_landscape_has_it(case):
    *given, outcome = DESCENTS[case]
    assert descended(*given).outcome is outcome


# From here on to R = (w₁w₂ − 1)²: the flow conserves c = w₁² − w₂², and S = 2√(c² + 4) at its limit.


@pytest.fixture(scope="module")
def past_the_edge():
    """Descent past its edge: 2/η = 10, and the flow from the start ends at S = 12.2."""
    return descended([2.4, 0.1], {"product": 1}, {"learning_rate": 0.2})


def test_the_sharpness_of_the_flows_limit_is_that_of_the_closed_form_and_falls_along_descent(past_the_edge):
    """Kreisler et al. (2023); that of the iterates themselves goes up and down."""
    lines = []
    run = flowsim.FlowLimits(records=6).added_to(past_the_edge, progress=lines.append)
    limits, weights = np.asarray(run.diagnostics["limit_sharpness"]), np.asarray(run.weights)
    measured = np.flatnonzero(np.isfinite(limits))
    assert 5 <= measured.size == len(lines) <= 8
    assert measured[-1] == len(limits) - 1
    exact = 2 * np.hypot(weights[:, 0] ** 2 - weights[:, 1] ** 2, 2)
    apart = np.abs(limits - exact)[measured]
    assert (apart <= 1e-6 * exact[measured]).all()
    assert (apart <= run.diagnostics["limit_sharpness_error"][measured]).all()
    assert (np.diff(limits[measured]) <= 1e-6 * exact[measured][:-1]).all()
    assert limits[0] > 12 > 10 > limits[measured][-1]


def test_limits_of_the_flow_are_asked_of_runs_with_weights(past_the_edge):
    with pytest.raises(ValueError, match="did not keep its weights"):
        flowsim.FlowLimits().added_to(dataclasses.replace(past_the_edge, weights=None))
    with pytest.raises(ValueError, match="records is 0: expected"):
        flowsim.FlowLimits(records=0)


MODES = np.diag([3.0, 2.0, 1.0, 0.5])
DRAWN = np.random.default_rng(0).standard_normal((60, 4))
WHITE = DRAWN @ np.linalg.inv(np.linalg.cholesky(DRAWN.T @ DRAWN / 60)).T
THREE = 3**0.5 * np.eye(3)


def whitened():
    return LinearRegression(WHITE, WHITE @ MODES)


def two_modes(depth, others, dtype=float):
    """Two modes on their way, and two that are nearly zero in every layer."""
    return DeepLinear([np.diag(np.array([0.8, 0.8, others, others])).astype(dtype)] * depth)


def tanh_network(*widths, scale=0.7):
    return Perceptron.gaussian(widths=list(widths), scale=scale, activation="tanh", key=jax.random.key(1))


class OnTheCircle(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x / jnp.linalg.norm(self.weight)


def on_the_circle():
    """Every sample is on the right side, and the predictions cannot grow with the weights."""
    samples = np.array([[1.0, 0.2], [0.8, -0.3], [1.2, 0.4]])
    return OnTheCircle(jnp.array([0.3, 0.2])), EmpiricalRisk(samples, np.ones(3), Logistic()), {"stopping": LOOSE}


def degenerate():
    """A factorization in four layers, wider than the rank of what is factorized."""
    target = np.random.default_rng(4).standard_normal((10, 3)) @ np.random.default_rng(5).standard_normal((3, 10)) / 3
    start = [0.1 * jax.random.normal(jax.random.fold_in(jax.random.key(0), layer), (10, 10)) for layer in range(4)]
    problem = Risk(lambda w: jnp.sum((w[0] @ w[1] @ w[2] @ w[3] - target) ** 2))
    return start, problem, {"max_steps": 20_000}


def at_a_saddle(least):
    """Two layers that have two of three modes, and lack the one of this size."""
    return DeepLinear([np.diag([1.0, 1, 0])] * 2), LinearRegression(THREE, THREE @ np.diag([2.0, 1, least]))


def waves(*loss):
    return EmpiricalRisk(X, np.sin(2 * X[:, 0]) * X[:, 1], *loss)


EQUAL = [np.tile([[-0.6, -0.3]], (4, 1)), np.full((1, 4), 0.3)]


# The start of a flow, its problem, options, and the outcome. Each is a program of its own.
# fmt: off
SLOW_FLOWS = {
    "signs": (lambda: (drawn(2, 1), of_signs()), Outcome.NO_MINIMIZER),
    "signs, loosely": (lambda: (drawn(2, 1), of_signs(), {"stopping": LOOSE}), Outcome.NO_MINIMIZER),
    "signs that overlap, loosely": (lambda: (drawn(2, 1), of_signs(MIXED), {"stopping": LOOSE}), Outcome.CONVERGED),
    "signs and a perceptron": (lambda: (tanh_network(2, 5, 1), of_signs()), Outcome.NO_MINIMIZER),
    "predictions on a circle": (on_the_circle, Outcome.CONVERGED),
    "the zero network": (lambda: (drawn(4, 4, 4, 4, 4, scale=0.0), whitened()), Outcome.STATIONARY),
    "a loss without slope": (
        lambda: (tanh_network(2, 4, 1), waves(lambda p, t: jnp.round(p - t) ** 2)), Outcome.STATIONARY),
    "two layers at a saddle": (lambda: at_a_saddle(0.5), Outcome.STATIONARY),
    "two layers at a flat saddle": (lambda: at_a_saddle(1e-5), Outcome.STATIONARY),
    "equal hidden units": (lambda: (Perceptron(EQUAL, activation="tanh"), waves()), Outcome.STATIONARY),
    "no feature occurs": (lambda: (drawn(4, 4, 4), LinearRegression(0 * WHITE, WHITE @ MODES)), Outcome.CONVERGED),
    "a degenerate minimum": (degenerate, Outcome.CONVERGED),
    "a gradient that was asked for, on a plateau": (
        lambda: (tanh_network(2, 4, 4, 4, 1, scale=0.01), waves(), {"stopping": Stopping(gradient_norm=1e-4)}),
        Outcome.GRADIENT_REACHED),
}
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW_FLOWS)
def test_a_flow_of_a_network_ends_as_it_must(case):
    make, outcome = SLOW_FLOWS[case]
    network, problem, *options = make()
    run = flowsim.integrate(network, problem, ts=[], **{"max_steps": 3000, **(options[0] if options else {})})
    assert run.outcome is outcome
    assert run.converged == (outcome is Outcome.CONVERGED)
    assert float(run.risk[-1]) < 1e-14 or "degenerate" not in case


def ill_conditioned(condition):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4)) * np.geomspace(1, condition**-0.5, 4)
    return LinearRegression(X, X @ (w := rng.standard_normal(4)) / np.linalg.norm(w) + 0.1 * rng.standard_normal(50))


def flow_to_the_optimum(problem, **options):
    """Return a flow, which converges, and how far it ends from the optimum in units of that."""
    flow = flowsim.integrate(drawn(4, 4, 1), problem, ts=[], **options)
    assert flow.outcome is Outcome.CONVERGED
    return flow, float(problem.squared_distance(flow.network)) ** 0.5 / np.linalg.norm(problem.optimum)


@pytest.mark.slow
def test_a_flow_on_ill_conditioned_data_ends_at_its_limit():
    for condition in (1e12, 1e8):
        problem = ill_conditioned(condition)
        flow, off = flow_to_the_optimum(problem)
        assert off <= 1e-6
        further, _ = flow_to_the_optimum(problem, stopping=Stopping(remaining=1e-9))
        assert further.time >= flow.time
        assert flow.final_sharpness == pytest.approx(further.final_sharpness, rel=1e-5)
    # Without a bound on what remains, a gradient norm alone ends the flow too early.
    whole, off = flow_to_the_optimum(problem, stopping=Stopping(gradient_norm=1e-6, remaining=1e-6))
    assert off <= 1e-6
    short, off = flow_to_the_optimum(problem, stopping=Stopping(gradient_norm=1e-6, remaining=np.inf))
    assert off > 1e-4
    assert short.time < whole.time


def look(end, problem, *, start):
    """What second derivatives say of a point at which a run from `start` has a small gradient."""
    stopping = stopping_for(None, problem, weight_dtype(end))
    return Outcome(int(outcome_by_curvature(stopping, start, end, problem, jnp.array(True))[0]))


class Wells(flowsim.Problem):
    """R = Λx²/2 + (y² − 1)²/4 about an offset: a saddle at (0, 0) with eigenvalues Λ and −1, minima at (0, ±1)."""

    stiffness: jax.Array
    offset: jax.Array

    def __call__(self, weights):
        x, y = weights - self.offset
        return self.stiffness * x**2 / 2 + (y**2 - 1) ** 2 / 4


def wells(stiffness, offset=0.0):
    return Wells(jnp.array(float(stiffness)), jnp.array(offset))


@pytest.mark.slow
def test_an_eigenvalue_of_minus_one_is_certain_whatever_the_largest_is():
    start = jnp.array([1.0, 1e-10])
    for stiffness in (1.0, 1e6, 1e7, 1e9, 1e12):
        assert look(jnp.array([0.0, 1e-10]), wells(stiffness), start=start) in (Outcome.RUNNING, Outcome.STATIONARY)
        assert look(jnp.array([0.0, 0.0]), wells(stiffness), start=start) is Outcome.STATIONARY
        assert look(jnp.array([0.0, 1.0]), wells(stiffness), start=start) is Outcome.CONVERGED
    # The minima are the next numbers to a saddle whose rounding is as large as the wells.
    single = partial(jnp.array, dtype=jnp.float32)
    assert look(single([1e7, 1e7]), wells(1e12, 1e7), start=single([1e7 + 1, 1e7])) is Outcome.STATIONARY


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_a_flow_is_not_converged_at_a_stiff_saddle(dtype):
    for offset in (0.0, 1e7):
        for stiffness in (1.0, 1e6, 1e9, 1e12):
            for above in (1e-1, 1e-10):
                start = (jnp.array([1.0, above]) + offset).astype(dtype)
                run = flowsim.integrate(start, wells(stiffness, offset), ts=[], max_steps=1500)
                assert run.outcome is not Outcome.CONVERGED or float(run.risk[-1]) < 1e-5, (offset, stiffness, above)
                assert run.outcome is Outcome.CONVERGED or stiffness > 1e6 or offset, (stiffness, above)


@pytest.mark.slow
def test_a_model_of_descent_leaves_a_stiff_saddle():
    for stiffness, above in ((1e3, 1e-4), (1e7, 1e-10)):
        model = flowsim.EdgeFlow(0.5 / stiffness)
        run = flowsim.integrate(jnp.array([1.0, above]), wells(stiffness), ts=[], max_steps=1500, model=model)
        assert run.outcome is Outcome.CONVERGED
        assert float(run.risk[-1]) < 1e-6


@pytest.mark.slow
def test_the_exact_excess_risk_decides_at_a_saddle_of_a_deep_linear_network():
    start, problem = two_modes(4, 1e-4), whitened()
    saddle = DeepLinear([np.diag([3**0.25, 2**0.25, 1e-4, 1e-4])] * 4)
    assert float(problem.excess_risk(saddle)) == pytest.approx(1**2 + 0.5**2)
    assert look(saddle, problem, start=start) is not Outcome.CONVERGED
    assert look(DeepLinear([MODES**0.25] * 4), problem, start=start) is Outcome.CONVERGED
    assert look(cast(saddle, jnp.float32), problem, start=start) is not Outcome.CONVERGED

    def at(*modes):
        outer = np.zeros((4, 2)), np.zeros((2, 4))
        for column, mode in enumerate(modes):
            outer[0][mode, column] = outer[1][column, mode] = MODES[mode, mode] ** 0.5
        return DeepLinear([outer[1], outer[0]])

    assert float(problem.least_excess_risk(at(0, 1))) == pytest.approx(1**2 + 0.5**2)
    assert look(at(0, 1), problem, start=at(0)) is Outcome.CONVERGED
    assert look(at(0, 2), problem, start=at(0)) is not Outcome.CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "dtype"), [(2, np.float64), (4, np.float32)])
def test_no_flow_is_converged_at_a_saddle_of_a_deep_linear_network(depth, dtype):
    least = 1e-5 if dtype == np.float32 else 1e-15
    drawings = [drawn(*[4] * (depth + 1), scale=scale, dtype=dtype) for scale in (1e-1, 1e-3)]
    starts = {others: two_modes(depth, others, dtype) for others in (1e-1, 1e-4, 1e-8)}
    for others, start in (*starts.items(), *enumerate(drawings)):
        run = flowsim.integrate(start, whitened(), ts=[], max_steps=1500)
        assert run.outcome is not Outcome.CONVERGED or float(run.excess_risk[-1]) < least, others
        if others == 1e-1 or depth == 2:
            assert run.outcome is Outcome.CONVERGED, others
    descent = flowsim.descend(drawings[1], whitened(), learning_rate=0.02, steps=5000)
    assert descent.outcome is not Outcome.CONVERGED or float(descent.excess_risk[-1]) < least


@pytest.mark.slow
def test_where_the_excess_risk_is_not_known_the_risk_is_looked_for_beside_a_saddle():
    problem = EmpiricalRisk(WHITE, WHITE @ MODES)
    for others in (1e-2, 1e-8):
        run = flowsim.integrate(two_modes(4, others), problem, ts=[], max_steps=500)
        assert run.outcome is not Outcome.CONVERGED or float(run.risk[-1]) < 1e-14, others
    assert look(DeepLinear([MODES**0.25] * 4), problem, start=run.network) is Outcome.CONVERGED


@pytest.mark.slow
def test_a_network_that_fell_onto_zero_is_at_no_minimum():
    """All derivatives that are looked at vanish there, and those of the order of the depth lead down."""
    start = Perceptron.gaussian(widths=[4] * 4 + [1], scale=0.7, key=jax.random.key(0), activation="gelu")
    zero = jax.tree.map(lambda leaf: 0 * leaf if isinstance(leaf, jax.Array) else leaf, start)
    problem = EmpiricalRisk(WHITE, WHITE @ np.ones(4))
    assert look(zero, problem, start=start) is Outcome.STATIONARY
    assert flowsim.descend(zero, problem, learning_rate=0.02, steps=10).outcome is Outcome.STATIONARY


IN_SINGLE_PRECISION = """
import flowsim, jax.numpy as jnp

def risk(w):  # minima where the product is one, a saddle where it is zero
    return jnp.sum(w[:3] ** 2) / 2 + (1 - jnp.prod(w[3:])) ** 2 / 200

# Gradients of 1e-26 and 1e-22, which have no square in float32, lead to a minimum in times of 1e17 and 1e12.
for count, small in ((4, 1e-8), (3, 1e-10)):
    run = flowsim.integrate(jnp.asarray([1.0] * 3 + [small] * count, jnp.float32), flowsim.Risk(risk), ts=[])
    print(run.outcome, float(run.risk[-1]) > 0.004)
"""


@pytest.mark.slow
def test_a_gradient_whose_square_is_no_float_leads_away_from_a_saddle():
    command = [sys.executable, "-c", IN_SINGLE_PRECISION]
    environment = os.environ | {"JAX_ENABLE_X64": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == 2 * ["CONVERGED", "False"]


@pytest.mark.slow
def test_a_flow_that_creeps_by_less_than_one_component_shows_is_not_at_its_limit():
    # Of 100 flat directions none has a gradient ten times its rounding, and all together have one of six times theirs.
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((60, 4)) @ np.linalg.qr(rng.standard_normal((104, 4)))[0].T
    targets, far = 100 * rng.standard_normal(60), rng.standard_normal(104)
    floor = np.linalg.lstsq(inputs, targets, rcond=None)[0]

    def tilted(slope, w):
        return jnp.mean((inputs @ w - targets) ** 2) / 2 + slope * jnp.mean(jnp.logaddexp(0, far - w))

    for slope, outcome in ((0.0, Outcome.CONVERGED), (3e-13, Outcome.RUNNING)):
        risk = Risk(jax.tree_util.Partial(tilted, np.array(slope)))
        for seed in range(5):  # whatever the last bit is
            last_bit = np.finfo(float).eps * np.sign(np.random.default_rng(seed).standard_normal(104))
            assert look(jnp.asarray(floor * (1 + last_bit)), risk, start=jnp.zeros(104)) is outcome


@pytest.mark.slow
def test_the_way_left_is_measured_by_the_way_gone():
    idle = Risk(lambda w: 5e-10 * (w[0] - 1) ** 2)
    start = jnp.array([0.0, 1e6])
    assert look(start, idle, start=start) is Outcome.RUNNING
    run = flowsim.integrate(start, idle, ts=[])
    assert run.outcome is Outcome.CONVERGED
    assert float(run.network[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_the_way_down_a_quadratic_function_is_known_by_both_ways():
    rng = np.random.default_rng(0)
    size = 300  # beyond the largest full decomposition
    frame, _ = np.linalg.qr(rng.standard_normal((size, size)))
    values = np.zeros(size)
    values[:6] = [2, 1, 0.5, 1e-3, 1e-6, -0.1]
    matrix, step = frame * values @ frame.T, frame[:, :5] @ [1, -2, 3, 4, 5]

    def quadratic(weights):
        return weights @ (jnp.asarray(matrix) @ weights) / 2

    for away in (0.0, 1e-3):
        weights = jnp.asarray(step + away * frame[:, 5])
        model = local_quadratic_model(quadratic, weights, gradient := jax.grad(quadratic)(weights))
        slope = model.coordinates(gradient)
        newton = jnp.where(model.upwards, -slope / model.values, 0)
        assert_allclose(model.vector(newton), -step, rtol=0, atol=1e-7)
        assert -0.5 * float(slope @ newton) == pytest.approx(step @ matrix @ step / 2, rel=1e-9)
        down = np.linalg.norm(np.where(model.values < -1e-9, slope, 0))
        assert float(down) == pytest.approx(0.1 * away, rel=1e-6, abs=1e-12)
        ends = extreme_eigenpairs(quadratic, weights)
        assert_allclose(ends.values, [2, -0.1], rtol=1e-7)
        assert np.all(np.abs(ends.values - np.array([2, -0.1])) <= ends.residuals + 1e-14)
        assert np.all(ends.residuals <= 2 * 2e-9)


# Every CONVERGED beside a dense Hessian and SciPy's integration of the same flow.


@eqx.filter_jit
def gradient(vector, network, problem):
    weights, rest = split(network)
    return jax.grad(lambda v: problem.objective(eqx.combine(ravel_pytree(weights)[1](v), rest)))(vector)


@eqx.filter_jit
def hessian(vector, network, problem):
    return jax.jacfwd(gradient)(vector, network, problem)


def limit_by_scipy(network, problem, time):
    """The flow long after `time`, by LSODA."""
    from scipy.integrate import solve_ivp

    start = flat(network)
    solution = solve_ivp(
        lambda _, v: -np.asarray(gradient(v, network, problem)),
        (0, 30 * time),
        start,
        method="LSODA",
        jac=lambda _, v: -np.asarray(hessian(v, network, problem)),
        rtol=1e-9,
        atol=1e-11 * np.linalg.norm(start),
    )
    assert solution.success
    return solution.y[:, -1]


def logistic(prediction, target):
    return jnp.sum(jnp.logaddexp(0, -prediction * jnp.sign(target)))


def log_cosh(prediction, target):
    return jnp.sum(jnp.logaddexp(prediction - target, target - prediction))


# Widths, samples, activation and loss: what compiles once, as all else that is drawn are numbers.
LINEAR = {"fewer samples than features": ((3, 4, 1), 2), "bottleneck": ((3, 1, 3), 20)}
STRUCTURES = LINEAR | {
    "logistic tanh": ((3, 4, 1), 20, "tanh", logistic),
    "log cosh gelu": ((3, 4, 1), 20, "gelu", log_cosh),
}


def of_structure(name, seed):
    """A network and a problem of a structure, in any units that a linear one can take."""
    widths, samples, *bent = STRUCTURES[name]
    choice, rng = np.random.default_rng(1000 + seed), np.random.default_rng(seed)
    condition, rank = 10 ** choice.uniform(0, 3 if bent else 8), int(choice.integers(2, 4))
    units = (1.0, 10 ** choice.uniform(-1, 1)) if bent else 10 ** choice.uniform(-3, 3, 2)
    noise, scale = float(choice.choice([0, 0.1, 1])), float(choice.choice([0.2, 0.5, 1]))
    X = rng.standard_normal((samples, widths[0])) * np.geomspace(1, condition**-0.5, widths[0])
    X[:, rank:] = X[:, :1]
    w = rng.standard_normal((widths[0], widths[-1]))
    y = X @ w / np.linalg.norm(w) + noise * rng.standard_normal((samples, widths[-1]))
    X, y = units[0] * X, units[1] * (y[:, 0] if widths[-1] == 1 else y)
    options = {"widths": widths, "scale": scale, "key": jax.random.key(seed)}
    if not bent:
        return DeepLinear.gaussian(**options), LinearRegression(X, y)
    return Perceptron.gaussian(**options, activation=bent[0]), EmpiricalRisk(X, y, bent[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_verdicts_on_drawn_problems_are_certified(name):
    outcomes = set()
    for seed in range(3):
        network, problem = of_structure(name, seed)
        flow = flowsim.integrate(network, problem, ts=[], max_steps=1000)
        outcomes.add(flow.outcome)
        if flow.outcome is Outcome.CONVERGED:
            end = flat(flow.network)
            values = np.linalg.eigvalsh(hessian(end, network, problem))
            # A verdict allows 1.2e-7 on the floor of the valley; what steps leave of the way down to it tilts more.
            assert values[0] >= -1e-6 * np.abs(values).max()
            assert np.linalg.norm(limit_by_scipy(network, problem, float(flow.time)) - end) <= 1e-4 * np.linalg.norm(
                end
            )
    assert outcomes <= {Outcome.CONVERGED, Outcome.NO_MINIMIZER, Outcome.STATIONARY, Outcome.STEP_LIMIT}
    assert outcomes == {Outcome.CONVERGED} or name not in LINEAR


@pytest.mark.slow
def test_a_hessian_follows_stiff_directions_that_turn():
    """One that is frozen over a step ends a thousand tolerances away, and no difference of columns shows it."""
    network, problem = of_structure("bottleneck", 1)
    apart = []
    for still in (1.0, np.inf):
        solver = flowsim.solvers.HessianExtrapolation(still=still)
        flow = flowsim.integrate(network, problem, ts=[], solver=solver)
        there, end = limit_by_scipy(network, problem, float(flow.time)), flat(flow.network)
        apart.append(np.linalg.norm(there - end) / np.linalg.norm(end))
    assert apart[0] < 5e-5
    assert apart[1] > 2e-4
