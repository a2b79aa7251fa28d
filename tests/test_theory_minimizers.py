import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import theory
from flowsim.theory import Verdict


@pytest.fixture(scope="module")
def path(problem, mlp):
    return theory.follow(mlp, problem)


def by_name(path, subject):
    return {statement.name: statement for statement in theory.statements(path, subjects=[subject])}


@pytest.mark.slow
@pytest.mark.parametrize("projection_norm", [None, 1.7])
def test_the_flat_minimizer_approaches_the_lower_bound_as_the_network_deepens(problem, projection_norm):
    ratios = []
    for depth in (2, 8, 32):
        projection = None if projection_norm is None else projection_norm * np.array([0.6, 0.8])
        widths = [5] + [3] * (depth - 1) + [1 if projection is None else 2]
        flat = theory.flat_minimizer(problem, widths, projection=projection)
        assert float(problem.excess_risk(flat)) < 1e-28
        lower, upper = theory.minimal_sharpness_bounds(problem, depth, projection_norm=projection_norm or 1.0)
        sharpness = flowsim.sharpness(flat, problem)
        assert lower <= sharpness <= upper
        np.testing.assert_allclose(theory.layer_norm_bound(flat, problem), lower, rtol=1e-12)
        ratios.append(sharpness / lower)
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 1.003


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_in_one_dimension_the_sharpness_of_ones_is_twice_the_depth(depth):
    problem = flowsim.LinearRegression([[1.0], [-1.0]], [1.0, -1.0])
    flat = theory.flat_minimizer(problem, [1] * (depth + 1))
    np.testing.assert_allclose(np.concatenate(flat.weights).ravel(), 1.0)
    np.testing.assert_allclose(flowsim.sharpness(flat, problem), 2 * depth, rtol=1e-12)


@pytest.mark.slow
def test_the_one_dimensional_case_is_checked_where_the_network_is_one():
    problem = flowsim.LinearRegression([[1.0], [-1.0]], [1.0, -1.0])
    found = by_name(theory.follow(flowsim.DeepLinear([np.array([[0.5]]), np.array([[0.4]])]), problem), "minimizers")
    assert found["Theorem 2, one dimension"].verdict is Verdict.HOLDS
    assert found["Theorem 1"].verdict is Verdict.HOLDS


@pytest.mark.slow
def test_the_family_of_rescaled_minimizers_is_as_sharp_as_one_likes(problem, path):
    network, previous = path.network, 0.0
    for factor in (10.0, 100.0, 1000.0):
        sharp = theory.sharp_minimizer(network, factor)
        np.testing.assert_allclose(sharp.regressor(), network.regressor(), rtol=1e-10)
        sharpness = flowsim.sharpness(sharp, problem)
        assert sharpness >= theory.sharp_minimizer_bound(network, problem, factor)
        assert sharpness > 50 * previous
        previous = sharpness


@pytest.mark.slow
def test_no_minimizer_found_by_the_flow_is_below_the_bound_of_its_layer_norms(problem):
    """The first line of Theorem 2 on 200 limits, with the bound in plain NumPy."""
    keys = jax.random.split(jax.random.key(1), 200)
    scales = jnp.linspace(0.2, 0.9, 200)

    @jax.jit
    def limits(keys, scales):
        def limit(key, scale):
            start = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=1.0, key=key)
            network = jax.tree.map(lambda leaf: scale * leaf, start)
            run = flowsim.integrate(network, problem, max_steps=20_000)
            return run.network, run.converged

        return jax.vmap(limit)(keys, scales)

    networks, converged = limits(keys, scales)
    assert int(converged.sum()) >= 198
    covariance, w = np.asarray(problem.covariance), np.asarray(problem.optimum)
    a, size, tightest = w @ covariance @ w / (w @ w), np.linalg.norm(w), np.inf
    for lane in np.flatnonzero(converged):
        network = jax.tree.map(lambda leaf, lane=lane: leaf[lane], networks)
        norms = [np.linalg.norm(weight) for weight in network.weights]
        bound = 2 * a * size ** (2 - 1 / 3) * sum(1 / norm for norm in norms)
        np.testing.assert_allclose(theory.layer_norm_bound(network, problem), bound, rtol=1e-10)
        tightest = min(tightest, flowsim.sharpness(network, problem) / bound)
    assert 1 <= tightest < 2


@pytest.mark.slow
def test_theorems_1_and_2_hold_at_the_limit_of_a_flow(path):
    found = by_name(path, "minimizers")
    applicable = [s for s in found.values() if s.verdict is not Verdict.NOT_APPLICABLE]
    assert len(applicable) == len(found) - 1
    assert all(statement.verdict is Verdict.HOLDS for statement in applicable)


@pytest.mark.slow
def test_a_flow_that_did_not_arrive_meets_no_assumption(problem, mlp):
    found = by_name(theory.follow(mlp, problem, max_steps=3), "minimizers")
    assert found["Theorem 1"].verdict is Verdict.ASSUMPTION_NOT_MET
    assert "limit" in found["Theorem 1"].unmet


@pytest.mark.parametrize(
    ("widths", "projection", "message"),
    [([4, 3, 1], None, "5 features"), ([5, 3, 2], None, "projection 1 entries"), ([5, 3, 1], [0.0], "other than zero")],
)
def test_a_flat_minimizer_that_cannot_be_built_is_refused(problem, widths, projection, message):
    with pytest.raises(ValueError, match=message):
        theory.flat_minimizer(problem, widths, projection=projection)


def test_a_family_of_one_layer_is_refused(problem):
    with pytest.raises(ValueError, match="two layers"):
        theory.sharp_minimizer(flowsim.DeepLinear([np.ones((1, 5))]), 2.0)
