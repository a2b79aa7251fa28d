"""CONVERGED is a claim: at a minimum, and with next to nothing of the way left."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose

import flowsim
from flowsim import EmpiricalRisk, LinearRegression, Outcome, Stopping
from flowsim.curvature import extreme_eigenpairs, local_quadratic_model
from flowsim.networks import DeepLinear, Perceptron, cast, split

SMALL = DeepLinear.gaussian(widths=[4, 4, 1], scale=0.5, key=jax.random.key(0))


def ill_conditioned(condition, *, scale_of_data=1.0, scale_of_labels=1.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4)) * np.geomspace(1, condition**-0.5, 4)
    y = X @ (w := rng.standard_normal(4)) / np.linalg.norm(w) + 0.1 * rng.standard_normal(50)
    return LinearRegression(scale_of_data * X, scale_of_labels * y)


def off(problem, network):
    return float(problem.squared_distance(network)) ** 0.5 / np.linalg.norm(problem.optimum)


@pytest.mark.parametrize("condition", [1, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12])
@pytest.mark.slow
def test_a_flow_on_ill_conditioned_data_ends_at_its_limit(condition):
    problem = ill_conditioned(condition)
    flow = flowsim.integrate(SMALL, problem, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert off(problem, flow.network) <= 1e-6
    further = flowsim.integrate(SMALL, problem, ts=[], stopping=Stopping(remaining=1e-9))
    assert further.outcome is Outcome.CONVERGED
    assert further.time >= flow.time
    assert flow.final_sharpness == pytest.approx(further.final_sharpness, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("which", ["scale_of_data", "scale_of_labels"])
@pytest.mark.slow
def test_the_units_of_data_and_labels_do_not_matter(which, scale):
    problem = ill_conditioned(10, **{which: scale})
    flow = flowsim.integrate(SMALL, problem, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert flow.steps < 200
    assert off(problem, flow.network) <= 1e-5


@pytest.mark.slow
def test_float32_looks_at_what_float64_sees():
    problem = ill_conditioned(1e6)
    flow = flowsim.integrate(cast(SMALL, jnp.float32), problem, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert off(problem, flow.network) <= 1e-2
    assert flow.final_sharpness == pytest.approx(flowsim.integrate(SMALL, problem, ts=[]).final_sharpness, rel=1e-2)


@pytest.mark.slow
def test_what_remains_may_be_left_to_the_gradient_norm_alone():
    problem = ill_conditioned(1e8)
    short = flowsim.integrate(SMALL, problem, ts=[], stopping=Stopping(remaining=np.inf))
    assert short.outcome is Outcome.CONVERGED
    assert off(problem, short.network) > 1e-6
    assert short.time < flowsim.integrate(SMALL, problem, ts=[]).time


@pytest.mark.slow
def test_two_layers_rest_at_a_saddle_however_flat():
    start = DeepLinear([np.diag([1.0, 1, 0]), np.diag([1.0, 1, 0])])
    X = 3**0.5 * np.eye(3)
    for smallest in (0.5, 1e-5):
        flow = flowsim.integrate(start, LinearRegression(X, X @ np.diag([2.0, 1, smallest])), ts=[])
        assert flow.outcome is Outcome.STATIONARY
        assert flow.steps < 50
        assert not flow.converged


SAMPLES = np.random.default_rng(1).standard_normal((20, 2))


@pytest.mark.slow
def test_equal_hidden_units_rest_at_a_saddle():
    rows = np.tile([[-0.6, -0.3]], (4, 1))
    start = Perceptron([rows, np.full((1, 4), 0.3)], activation=jnp.tanh)
    problem = EmpiricalRisk(SAMPLES, np.sin(2 * SAMPLES[:, 0]) * SAMPLES[:, 1])
    flow = flowsim.integrate(start, problem, ts=[])
    lowest, highest = extremes(flow.network, problem)
    assert lowest < -1e-3 * highest
    assert flow.outcome is Outcome.STATIONARY
    assert flow.steps < 1000


def extremes(network, problem):
    """The ends of the spectrum of the dense Hessian, by NumPy."""
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)
    values = np.linalg.eigvalsh(jax.hessian(lambda v: problem.objective(eqx.combine(unravel(v), rest)))(flat))
    return values[0], values[-1]


@pytest.mark.slow
def test_a_bottleneck_converges_to_the_best_that_it_can_do():
    rng = np.random.default_rng(2)
    X, W = rng.standard_normal((30, 3)), rng.standard_normal((3, 3))
    problem = LinearRegression(X, X @ W)
    network = DeepLinear.gaussian(widths=[3, 1, 3], scale=0.5, key=jax.random.key(0))
    flow = flowsim.integrate(network, problem, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert flow.steps < 100
    # Eckart and Young: of the regressor in the metric of the data, rank one leaves all singular values but the first.
    singular = np.linalg.svd(X @ W / 30**0.5, compute_uv=False)
    assert float(flow.risk[-1]) == pytest.approx(np.sum(singular[1:] ** 2), rel=1e-10)
    descent = flowsim.descend(network, problem, learning_rate=0.05, steps=5000)
    assert descent.outcome is Outcome.CONVERGED


def tanh_network(scale=0.5):
    return Perceptron.gaussian(widths=[2, 4, 1], scale=scale, activation=jnp.tanh, key=jax.random.key(0))


@pytest.mark.slow
def test_a_plateau_is_no_minimum():
    def welsch(prediction, target):
        return 1 - jnp.exp(-((prediction - target) ** 2) / 2)

    problem = EmpiricalRisk(SAMPLES, 6 + SAMPLES[:, 0], welsch)
    start = tanh_network()
    assert flowsim.integrate(start, problem, ts=[], t1=1e3).outcome is Outcome.TIME_LIMIT
    flow = flowsim.integrate(start, problem, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert float(flow.risk[-1]) < 0.9 * float(problem(start))


@pytest.mark.slow
def test_a_loss_without_slope_teaches_nothing():
    problem = EmpiricalRisk(SAMPLES, SAMPLES[:, 0], lambda prediction, target: jnp.round(prediction - target) ** 2)
    assert flowsim.integrate(tanh_network(), problem, ts=[]).outcome is Outcome.STATIONARY


def logistic(prediction, target):
    return jnp.logaddexp(0, -prediction * target)


@pytest.mark.slow
def test_separable_data_have_no_minimizer_and_others_do():
    line = DeepLinear.gaussian(widths=[2, 1], scale=0.5, key=jax.random.key(0))
    labels = np.sign(SAMPLES[:, 0] + 0.3 * SAMPLES[:, 1])
    flow = flowsim.integrate(line, EmpiricalRisk(SAMPLES, labels, logistic), ts=[])
    assert flow.outcome is Outcome.NO_MINIMIZER
    assert not flow.converged
    labels[:4] *= -1
    assert flowsim.integrate(line, EmpiricalRisk(SAMPLES, labels, logistic), ts=[]).outcome is Outcome.CONVERGED


@pytest.mark.slow
def test_a_problem_of_ones_own_is_asked_for_its_second_derivatives():
    class Bowl(flowsim.Problem):
        curvature: jax.Array

        def __call__(self, network):
            return jnp.sum(self.curvature * (network.weights[0] - 1) ** 2)

    start = DeepLinear([np.zeros((2, 2))])
    steep, shallow = (Bowl(jnp.array([[1.0, 1.0], [1.0, least]])) for least in (1.0, 1e-6))
    assert flowsim.integrate(start, steep, ts=[]).outcome is Outcome.CONVERGED
    flow = flowsim.integrate(start, shallow, ts=[])
    assert flow.outcome is Outcome.CONVERGED
    assert_allclose(flow.network.weights[0], 1, atol=4e-6)


@pytest.mark.slow
def test_lanes_are_judged_one_by_one(compiled_quickly):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 3))
    problem = LinearRegression(X, X @ rng.standard_normal((3, 3)))
    draw = partial(DeepLinear.gaussian, widths=[3, 1, 3], scale=0.5)
    keys = jax.random.split(jax.random.key(0), 3)
    together = compiled_quickly(jax.vmap(lambda key: flowsim.integrate(draw(key=key), problem, ts=[])))(keys)
    for lane, key in enumerate(keys):
        alone = flowsim.integrate(draw(key=key), problem, ts=[])
        assert together.code[lane] == alone.code == Outcome.CONVERGED
        assert_allclose(together.time[lane], alone.time, rtol=1e-3)


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
        found = local_quadratic_model(quadratic, weights, gradient := jax.grad(quadratic)(weights))
        slope = found.coordinates(gradient)
        newton = jnp.where(found.upwards, -slope / found.values, 0)
        assert_allclose(found.vector(newton), -step, rtol=0, atol=1e-7)
        assert -0.5 * float(slope @ newton) == pytest.approx(step @ matrix @ step / 2, rel=1e-9)
        down = np.linalg.norm(np.where(found.values < -1e-9, slope, 0))
        assert float(down) == pytest.approx(0.1 * away, rel=1e-6, abs=1e-12)
        ends = extreme_eigenpairs(quadratic, weights)
        assert_allclose(ends.values, [2, -0.1], rtol=1e-7)
        assert np.all(np.abs(ends.values - np.array([2, -0.1])) <= ends.residuals + 1e-14)
        assert np.all(ends.residuals <= 2 * 2e-9)
