"""CONVERGED is said at minima alone: beside saddles, plateaus and valleys that only look like one."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import EmpiricalRisk, LinearRegression, Outcome, Risk, Stopping
from flowsim.dynamics import limit, outcome_by_curvature, stopping_for
from flowsim.dynamics.limit import limit_outcome
from flowsim.dynamics.outcome import UNDECIDED
from flowsim.networks import DeepLinear, weight_dtype

MODES = np.diag([3.0, 2.0, 1.0, 0.5])


def whitened():
    X = np.random.default_rng(0).standard_normal((60, 4))
    return X @ np.linalg.inv(np.linalg.cholesky(X.T @ X / 60)).T


X = whitened()
PROBLEM = LinearRegression(X, X @ MODES)
LEARNED_TWO = 1**2 + 0.5**2  # the excess risk of the saddle at which the two largest modes are learned


def two_modes(depth, others, dtype=float):
    """Two modes on their way, and two that are nearly zero in every layer."""
    return DeepLinear([np.diag(np.array([0.8, 0.8, others, others])).astype(dtype)] * depth)


def flow(start, problem, **options):
    return flowsim.integrate(start, problem, ts=[], **{"max_steps": 1500} | options)


def look(end, problem, *, start):
    """What second derivatives say of a point at which a run from `start` has a small gradient."""
    stopping = stopping_for(None, problem, weight_dtype(end))
    return Outcome(int(outcome_by_curvature(stopping, start, end, problem, jnp.asarray(UNDECIDED, jnp.int32))))


class Wells(flowsim.Problem):
    """R = Λx²/2 + (y² − 1)²/4 about an offset: a saddle at (0, 0) with eigenvalues Λ and −1, minima at (0, ±1)."""

    stiffness: jax.Array
    offset: jax.Array

    def __call__(self, weights):
        x, y = weights - self.offset
        return self.stiffness * x**2 / 2 + (y**2 - 1) ** 2 / 4


def wells(stiffness, offset=0.0):
    return Wells(jnp.array(float(stiffness)), jnp.array(offset))


@pytest.mark.parametrize("stiffness", [1.0, 1e6, 1e7, 1e9, 1e12])
@pytest.mark.slow
def test_an_eigenvalue_of_minus_one_is_certain_whatever_the_largest_is(stiffness):
    start = jnp.array([1.0, 1e-10])
    assert look(jnp.array([0.0, 1e-10]), wells(stiffness), start=start) in (Outcome.RUNNING, Outcome.STATIONARY)
    assert look(jnp.array([0.0, 0.0]), wells(stiffness), start=start) is Outcome.STATIONARY
    assert look(jnp.array([0.0, 1.0]), wells(stiffness), start=start) is Outcome.CONVERGED


WHERE = {"near a saddle": [0.0, 1e-10], "saddle": [0.0, 0.0], "minimum": [0.0, 1.0], "far": [0.0, 0.9]}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.slow
def test_one_program_says_what_the_questions_asked_one_by_one_do(where):
    start, end, problem = jnp.array([1.0, 1e-10]), jnp.array(WHERE[where]), wells(1e3)
    together = jax.jit(lambda end: limit_outcome(stopping_for(None, problem, end.dtype), start, end, problem))
    assert look(end, problem, start=start) is Outcome(int(together(end)))


@pytest.mark.slow
def test_nothing_is_asked_of_the_curvature_at_a_limit_that_is_still_far(monkeypatch):
    asked = []
    monkeypatch.setattr(limit, "_curves_up", lambda seen, end: asked.append(end) or np.True_)
    start = jnp.array([1.0, 1e-10])
    assert look(jnp.array([0.0, 0.9]), wells(1e3), start=start) is Outcome.RUNNING
    assert not asked
    assert look(jnp.array([0.0, 1.0]), wells(1e3), start=start) is Outcome.CONVERGED
    assert len(asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 1e7])
@pytest.mark.parametrize("stiffness", [1.0, 1e3, 1e6, 1e7, 1e9, 1e12])
def test_a_flow_is_not_converged_at_a_stiff_saddle(stiffness, offset):
    for above in (1e-1, 1e-4, 1e-8, 1e-10):
        run = flow(jnp.array([1.0, above]) + offset, wells(stiffness, offset))
        assert run.outcome is not Outcome.CONVERGED or float(run.risk[-1]) < 1e-6, above
        if stiffness <= 1e6 and offset == 0:
            assert run.outcome is Outcome.CONVERGED, above
        single = flow((jnp.array([1.0, above]) + offset).astype(jnp.float32), wells(stiffness, offset))
        assert single.outcome is not Outcome.CONVERGED or float(single.risk[-1]) < 1e-5, above
        if stiffness <= 1e6 and offset == 0:
            assert single.outcome is Outcome.CONVERGED, above


@pytest.mark.slow
def test_weights_whose_rounding_is_as_large_as_the_wells_say_nothing_of_them():
    saddle = jnp.array([1e7, 1e7], jnp.float32)  # the minima are the next numbers
    start = jnp.array([1e7 + 1, 1e7], jnp.float32)
    assert look(saddle, wells(1e12, 1e7), start=start) is Outcome.STATIONARY


@pytest.mark.slow
@pytest.mark.parametrize("model", [flowsim.EdgeFlow, flowsim.CentralFlow])
def test_models_of_descent_leave_a_stiff_saddle(model):
    for stiffness, above in ((1e3, 1e-4), (1e7, 1e-10)):
        run = flow(jnp.array([1.0, above]), wells(stiffness), model=model(0.5 / stiffness))
        assert run.outcome is Outcome.CONVERGED
        assert float(run.risk[-1]) < 1e-6


@pytest.mark.slow
def test_the_exact_excess_risk_decides_at_a_saddle_of_a_deep_linear_network():
    start = two_modes(4, 1e-4)
    saddle = DeepLinear([np.diag([3**0.25, 2**0.25, 1e-4, 1e-4])] * 4)
    assert float(PROBLEM.excess_risk(saddle)) == pytest.approx(LEARNED_TWO)
    assert look(saddle, PROBLEM, start=start) is not Outcome.CONVERGED
    learned = DeepLinear([MODES**0.25] * 4)
    assert look(learned, PROBLEM, start=start) is Outcome.CONVERGED
    assert look(flowsim.networks.cast(saddle, jnp.float32), PROBLEM, start=start) is not Outcome.CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "dtype"), [(2, np.float64), (3, np.float64), (4, np.float32), (6, np.float64)])
def test_no_flow_is_converged_at_a_saddle_of_a_deep_linear_network(depth, dtype):
    for others in (1e-1, 1e-2, 1e-4, 1e-6, 1e-8):
        run = flow(two_modes(depth, others, dtype), PROBLEM)
        least = 1e-6 if dtype == np.float32 else 1e-15
        assert run.outcome is not Outcome.CONVERGED or float(run.excess_risk[-1]) < least, others
        if others == 1e-1 or depth == 2:
            assert run.outcome is Outcome.CONVERGED, others


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "dtype"), [(3, np.float64), (4, np.float32), (6, np.float64)])
def test_no_gaussian_start_of_small_scale_is_converged_at_a_saddle(depth, dtype):
    least = 1e-5 if dtype == np.float32 else 1e-15
    for scale in (1e-1, 1e-2, 1e-3):
        key = jax.random.key(depth)
        start = DeepLinear.gaussian(widths=[4] * (depth + 1), scale=scale, key=key, dtype=dtype)
        run = flow(start, PROBLEM)
        assert run.outcome is not Outcome.CONVERGED or float(run.excess_risk[-1]) < least, scale
        descent = flowsim.descend(start, PROBLEM, learning_rate=0.02, steps=5000)
        assert descent.outcome is not Outcome.CONVERGED or float(descent.excess_risk[-1]) < least, scale
        if depth == 3:
            assert run.outcome is Outcome.CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize("depth", [2, 4])
def test_where_the_excess_risk_is_not_known_the_risk_is_looked_for_beside_a_saddle(depth):
    problem = EmpiricalRisk(X, X @ MODES)
    for others in (1e-2, 1e-4, 1e-8):
        run = flow(two_modes(depth, others), problem, max_steps=500)
        assert run.outcome is not Outcome.CONVERGED or float(run.risk[-1]) < 1e-14, others
        if depth == 2:
            assert run.outcome is Outcome.CONVERGED, others
    assert look(DeepLinear([MODES ** (1 / depth)] * depth), problem, start=run.network) is Outcome.CONVERGED


@pytest.mark.slow
def test_a_plateau_is_not_a_minimum_however_flat():
    def bell(w):
        return 1 - jnp.exp(-(w[0] ** 2)) + (w[1] - 1) ** 2 / 2

    start = jnp.array([5.0, 0.0])
    assert look(jnp.array([5.0, 1.0]), Risk(bell), start=start) is Outcome.RUNNING
    assert look(jnp.array([7.0, 1.0]), Risk(bell), start=start) is not Outcome.CONVERGED
    assert look(jnp.array([0.0, 1.0]), Risk(bell), start=start) is Outcome.CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize("depth", [4, 10])
def test_a_network_that_fell_onto_zero_is_at_no_minimum(depth):
    """All derivatives that are looked at vanish there, and those of order `depth` lead down."""
    start = flowsim.Perceptron.gaussian(
        widths=[4] * depth + [1], scale=0.7, key=jax.random.key(0), activation=jax.nn.gelu
    )
    zero = jax.tree.map(lambda leaf: 0 * leaf if isinstance(leaf, jax.Array) else leaf, start)
    problem = EmpiricalRisk(X, X @ np.ones(4))
    assert look(zero, problem, start=start) is Outcome.STATIONARY
    assert flowsim.descend(zero, problem, learning_rate=0.02, steps=10).outcome is Outcome.STATIONARY


@pytest.mark.slow
def test_flows_leave_a_plateau():
    bell = Risk(lambda w: 1 - jnp.exp(-(w[0] ** 2)) + (w[1] - 1) ** 2 / 2)
    run = flow(jnp.array([5.0, 0.0]), bell, max_steps=20_000)
    assert run.outcome is Outcome.CONVERGED
    assert float(run.risk[-1]) < 1e-15
    step = Risk(lambda w: jax.nn.sigmoid(w[0]) + (w[1] - 1) ** 2 / 2)
    assert flow(jnp.array([25.0, 0.0]), step).outcome is Outcome.NO_MINIMIZER  # after a time of e²⁵
    assert flow(jnp.array([10.0, 0.0]), step, max_steps=20_000).outcome is Outcome.NO_MINIMIZER


@pytest.mark.slow
@pytest.mark.parametrize("offset", [1.0, 1e7])
def test_a_large_weight_elsewhere_does_not_hide_growth(offset):
    problem = Risk(lambda w: jnp.exp(-w[0]) + (w[1] - offset) ** 2 / 2)
    assert look(jnp.array([18.5, offset]), problem, start=jnp.zeros(2)) is Outcome.NO_MINIMIZER
    assert flow(jnp.zeros(2), problem).outcome is Outcome.NO_MINIMIZER


@pytest.mark.slow
def test_the_way_left_is_measured_by_the_way_gone():
    curvatures = jnp.geomspace(1, 1e-6, 20)
    run = flow(jnp.ones(20), Risk(lambda w: jnp.sum(curvatures * w**2) / 2))
    assert run.outcome is Outcome.CONVERGED
    assert float(jnp.linalg.norm(run.network)) <= 1e-5
    idle = Risk(lambda w: 5e-10 * (w[0] - 1) ** 2)
    start = jnp.array([0.0, 1e6])
    assert look(start, idle, start=start) is Outcome.RUNNING
    run = flow(start, idle)
    assert run.outcome is Outcome.CONVERGED
    assert float(run.network[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("risk", [lambda w: jnp.sum(w), lambda w: -jnp.sum(w**2)])
@pytest.mark.slow
def test_a_risk_that_is_not_bounded_below_has_no_minimizer(risk):
    assert flow(jnp.array([0.5, 1.0]), Risk(risk)).outcome is Outcome.NO_MINIMIZER


PRODUCT = Risk(lambda w: (w[0] * w[1] - 1) ** 2)


@pytest.mark.parametrize("scale", [1e-14, 1e-9, 1e-3])
@pytest.mark.slow
def test_a_small_start_does_not_switch_the_tolerance_off(scale):
    start = scale * jnp.array([1.0, 2.0])
    for asked in (1e-6, 1e-12):
        run = flow(start, PRODUCT, stopping=Stopping(gradient_norm=asked))
        assert run.outcome is Outcome.CONVERGED
        assert float(run.gradient_norm[-1]) <= asked
        descent = flowsim.descend(start, PRODUCT, learning_rate=0.1, steps=2000, stopping=Stopping(gradient_norm=asked))
        assert descent.outcome is Outcome.CONVERGED
        assert float(descent.gradient_norm[-1]) <= asked
    assert float(flow(start, PRODUCT).gradient_norm[-1]) <= 1e-8


@pytest.mark.slow
def test_a_factorization_from_a_small_start_comes_to_the_default_tolerance():
    target = np.random.default_rng(3).standard_normal((5, 5))
    keys = jax.random.split(jax.random.key(0), 2)
    run = flow(
        [1e-12 * jax.random.normal(key, (5, 5)) for key in keys], Risk(lambda w: jnp.sum((w[0] @ w[1] - target) ** 2))
    )
    assert run.outcome is Outcome.CONVERGED
    assert float(run.gradient_norm[-1]) <= 1e-8


@pytest.mark.slow
def test_in_large_units_a_gradient_that_fell_by_twelve_digits_is_small():
    problem = Risk(lambda w: 1e12 * jnp.sum((w - 1 / 3) ** 2))
    run = flow(jnp.array([1.0, 2.0]), problem)
    assert run.outcome is Outcome.CONVERGED
    asked = Stopping(relative_gradient_norm=1e-3, gradient_norm=1.0, remaining=np.inf)
    assert float(flow(jnp.array([1.0, 2.0]), problem, stopping=asked).gradient_norm[-1]) <= 1e-3 * 2e12 * 2


@pytest.mark.slow
@pytest.mark.parametrize("known", [{}, {"infimum": 0.0}])
def test_a_degenerate_global_minimum_is_no_saddle(known):
    rng = np.random.default_rng(4)
    target = rng.standard_normal((10, 3)) @ np.random.default_rng(5).standard_normal((3, 10)) / 3
    start = [0.1 * jax.random.normal(jax.random.fold_in(jax.random.key(0), layer), (10, 10)) for layer in range(4)]
    problem = Risk(lambda w: jnp.sum((w[0] @ w[1] @ w[2] @ w[3] - target) ** 2), **known)
    run = flow(start, problem, max_steps=20_000)
    assert run.outcome is Outcome.CONVERGED
    assert float(run.risk[-1]) < 1e-14


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
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert found.stdout.split() == 2 * ["CONVERGED", "False"]


@pytest.mark.parametrize(("slope", "outcome"), [(0.0, Outcome.CONVERGED), (3e-13, Outcome.RUNNING)])
@pytest.mark.slow
def test_a_flow_that_creeps_by_less_than_one_component_shows_is_not_at_its_limit(slope, outcome):
    # Of 100 flat directions none has a gradient ten times its rounding, and all together have one of six times theirs.
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((60, 4)) @ np.linalg.qr(rng.standard_normal((104, 4)))[0].T
    targets, far = 100 * rng.standard_normal(60), rng.standard_normal(104)
    floor = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    risk = Risk(lambda w: jnp.mean((inputs @ w - targets) ** 2) / 2 + slope * jnp.mean(jnp.logaddexp(0, far - w)))
    for seed in range(5):  # whatever the last bit is
        last_bit = np.finfo(float).eps * np.sign(np.random.default_rng(seed).standard_normal(104))
        assert look(jnp.asarray(floor * (1 + last_bit)), risk, start=jnp.zeros(104)) is outcome


@pytest.mark.slow
def test_where_no_feature_occurs_every_network_is_a_minimum():
    start = DeepLinear.gaussian(widths=[4] * 3, scale=0.3, key=jax.random.key(0))
    for problem in (LinearRegression(0 * X, X @ MODES), EmpiricalRisk(0 * X, X @ MODES)):
        assert flow(start, problem).outcome is Outcome.CONVERGED


@pytest.mark.slow
def test_a_bottleneck_at_its_least_excess_risk_is_converged_and_above_it_is_not():
    def at(*modes):
        outer = np.zeros((4, 2)), np.zeros((2, 4))
        for column, mode in enumerate(modes):
            outer[0][mode, column] = outer[1][column, mode] = MODES[mode, mode] ** 0.5
        return DeepLinear([outer[1], outer[0]])

    assert float(PROBLEM.least_excess_risk(at(0, 1))) == pytest.approx(LEARNED_TWO)
    assert look(at(0, 1), PROBLEM, start=at(0)) is Outcome.CONVERGED
    assert look(at(0, 2), PROBLEM, start=at(0)) is not Outcome.CONVERGED
