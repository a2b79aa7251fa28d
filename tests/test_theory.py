import jax
import numpy as np
import pytest

import flowsim
from flowsim.theory import critical_learning_rate, minimal_sharpness_bounds


def plain_bounds(X, y, depth, projection_norm):
    """Theorem 2 in NumPy, by the normal equations."""
    covariance = X.T @ X / len(X)
    w = np.linalg.solve(covariance, X.T @ y / len(X))
    size = np.linalg.norm(w)
    a = w @ covariance @ w / size**2
    scale = 2 * size ** (2 - 2 / depth) * projection_norm ** (2 / depth)
    largest = np.linalg.eigvalsh(covariance)[-1]
    return scale * depth * a, scale * np.sqrt((2 * depth - 1) * largest**2 + (depth - 1) ** 2 * a**2)


@pytest.mark.parametrize("depth", [1, 2, 10, 100])
@pytest.mark.parametrize("projection_norm", [1.0, 2.5])
def test_bounds_are_those_of_theorem_2(depth, projection_norm):
    generator = np.random.default_rng(depth)
    X, y = generator.standard_normal((40, 4)), generator.standard_normal(40)
    computed = minimal_sharpness_bounds(flowsim.LinearRegression(X, y), depth, projection_norm=projection_norm)
    np.testing.assert_allclose(computed, plain_bounds(X, y, depth, projection_norm), rtol=1e-11)


def test_one_layer_has_one_sharpness_between_the_bounds(problem):
    lower, upper = minimal_sharpness_bounds(problem, 1)
    assert lower <= flowsim.sharpness(flowsim.DeepLinear([np.zeros((1, 5))]), problem) <= upper * (1 + 1e-14)


@pytest.mark.parametrize("depth", [2, 5, pytest.param(40, marks=pytest.mark.slow)])
def test_the_aligned_rank_one_minimizer_lies_between_the_bounds(depth, problem):
    """W_k = (‖w*‖/‖p‖)^{1/L} u_k u_{k−1}ᵀ, with u_0 along w* and u_L along p, is the one that the proof constructs."""
    w = np.asarray(problem.optimum)
    size = np.linalg.norm(w)
    generator = np.random.default_rng(0)
    directions = generator.standard_normal((depth + 1, 5))
    directions[0] = w
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    projection = 1.7 * directions[-1]
    norm = (size / 1.7) ** (1 / depth)
    weights = [norm * np.outer(directions[k + 1], directions[k]) for k in range(depth)]
    network = flowsim.DeepLinear(weights, projection)
    assert float(problem.excess_risk(network)) < 1e-28
    lower, upper = minimal_sharpness_bounds(problem, depth, projection_norm=1.7)
    assert lower <= flowsim.sharpness(network, problem) <= upper


def test_minimizers_found_by_the_flow_obey_both_lower_bounds(problem, residual_flow, mlp_flow):
    """S ≥ 2a ‖w*‖^{2−1/L} ‖p‖^{1/L} Σ_k 1/‖W_k‖_F, and so at least the bound on S_min."""
    covariance, w = np.asarray(problem.covariance), np.asarray(problem.optimum)
    size = np.linalg.norm(w)
    a = w @ covariance @ w / size**2
    for flow in (residual_flow, mlp_flow):
        norms = [np.linalg.norm(weight) for weight in flow.network.weights]
        sharper = 2 * a * size ** (2 - 1 / 10) * sum(1 / norm for norm in norms)
        assert flow.final_sharpness >= sharper
        assert flow.final_sharpness >= minimal_sharpness_bounds(problem, 10)[0]


def test_scaling_one_layer_up_and_another_down_makes_a_minimizer_as_sharp_as_one_likes(problem, mlp_flow):
    first, second, *others = mlp_flow.network.weights
    factor = 1000.0
    sharp = flowsim.DeepLinear([factor * first, second / factor, *others])
    assert float(problem.excess_risk(sharp)) < 1e-14
    size = float(np.linalg.norm(problem.optimum))
    bound = 2 * float(problem.smallest_eigenvalue) * size**1.9 * factor / float(np.linalg.norm(second))
    assert flowsim.sharpness(sharp, problem) >= bound > mlp_flow.final_sharpness


@pytest.mark.slow
def test_above_the_critical_learning_rate_descent_does_not_reach_a_minimum(problem, mlp):
    critical = critical_learning_rate(problem, 10)
    np.testing.assert_allclose(critical, 2 / minimal_sharpness_bounds(problem, 10)[0])
    above = flowsim.descend(mlp, problem, learning_rate=1.2 * critical, steps=3000)
    below = flowsim.descend(mlp, problem, learning_rate=0.5 * critical, steps=3000)
    assert float(above.excess_risk[-1]) > 1e-3
    assert float(below.excess_risk[-1]) < 1e-8


def test_what_theorem_2_does_not_cover_is_refused(problem):
    generator = np.random.default_rng(0)
    several = flowsim.LinearRegression(generator.standard_normal((9, 2)), generator.standard_normal((9, 2)))
    silent = flowsim.LinearRegression(generator.standard_normal((9, 2)), np.zeros(9))
    with pytest.raises(ValueError, match="one output"):
        minimal_sharpness_bounds(several, 3)
    with pytest.raises(ValueError, match="other than zero"):
        minimal_sharpness_bounds(silent, 3)
    with pytest.raises(ValueError, match="depth"):
        minimal_sharpness_bounds(problem, 0)


@pytest.mark.slow
def test_the_bounds_hold_for_many_random_limits(problem):
    keys = jax.random.split(jax.random.key(0), 10)
    lower, _ = minimal_sharpness_bounds(problem, 4)
    for key in keys:
        network = flowsim.DeepLinear.gaussian(widths=[5] * 4 + [1], scale=0.5, key=key)
        flow = flowsim.integrate(network, problem)
        assert flow.converged
        assert flow.final_sharpness >= lower * (1 - 1e-9)
