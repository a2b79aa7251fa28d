import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import theory
from flowsim.data import gaussian_teacher
from flowsim.theory import Verdict


@pytest.fixture(scope="module")
def path(residual, problem):
    return theory.follow(residual, problem)


@pytest.fixture(scope="module")
def several():
    """Five features, five outputs, and a residual network on them, followed to its limit."""
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 50, 5, outputs=5))
    problem = eqx.tree_at(lambda p: p.optimum, problem, jnp.eye(5) + 0.3 * problem.optimum)
    network = flowsim.DeepLinear.residual(width=5, depth=6, scale=0.2, key=jax.random.key(0))
    return theory.follow(network, problem)


def by_name(path):
    return {statement.name: statement for statement in theory.statements(path, subjects=["residual"])}


def autodiff_norm(path, record):
    network = flowsim.DeepLinear([jnp.asarray(along[record]) for along in path.weights], path.network.projection)
    gradient = jax.jit(
        jax.grad(lambda weights: path.problem.excess_risk(flowsim.DeepLinear(weights, network.projection)))
    )
    return [float(jnp.linalg.norm(g)) for g in gradient(list(network.weights))]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["path", "several"])
def test_the_gradients_are_those_of_automatic_differentiation(which, request):
    path = request.getfixturevalue(which)
    record = len(path.times) // 3
    np.testing.assert_allclose(path.gradients.layer_norms[record], autodiff_norm(path, record), rtol=1e-9)
    network = flowsim.DeepLinear([jnp.asarray(along[record]) for along in path.weights], path.network.projection)
    excess = float(path.problem.excess_risk(network))
    np.testing.assert_allclose(path.gradients.root_excess_risk[record] ** 2, excess, rtol=1e-9)


def plain_bounds(path, record):
    """Equations 37 and 43 of the paper, layer by layer, with products of matrices."""
    weights = [along[record] for along in path.weights]
    eigenvalues = np.linalg.eigvalsh(np.asarray(path.problem.covariance))
    projection = path.network.projection
    lower = upper = 0.0
    for k in range(len(weights)):
        below, above = np.eye(5), np.eye(5)
        for weight in weights[:k]:
            below = weight @ below
        for weight in weights[k + 1 :]:
            above = weight @ above
        if projection is not None:
            above = (np.asarray(projection) @ above)[None]
        s, t = np.linalg.svd(above)[1], np.linalg.svd(below)[1]
        lower += (s[-1] * t[-1]) ** 2
        upper += (s[0] * t[0]) ** 2
    excess = path.gradients.root_excess_risk[record] ** 2
    return np.sqrt(4 * eigenvalues[0] * lower * excess), np.sqrt(4 * eigenvalues[-1] * upper * excess)


@pytest.mark.parametrize("which", ["path", pytest.param("several", marks=pytest.mark.slow)])
def test_the_gradient_bounds_are_those_of_plain_numpy_and_hold(which, request):
    path = request.getfixturevalue(which)
    lower, upper = theory.gradient_bounds(path.gradients)
    for record in (0, len(path.times) // 2):
        np.testing.assert_allclose((lower[record], upper[record]), plain_bounds(path, record), rtol=1e-8)
    found = by_name(path)
    assert found["Gradient, lower bound"].verdict is Verdict.HOLDS
    assert found["Gradient, upper bound"].verdict is Verdict.HOLDS


def test_the_displacement_is_depth_times_that_of_the_weights(path, residual):
    displacement = theory.residual_displacements(path.weights)
    assert not np.any(displacement[0])
    moved = [10 * np.linalg.norm(a - b) for a, b in zip(path.network.weights, residual.weights, strict=True)]
    np.testing.assert_allclose(displacement[-1], moved, rtol=1e-12)


def test_theorem_4_never_holds_as_its_constants_are_not_known(path):
    found = by_name(path)
    assert found["Theorem 4"].verdict is Verdict.ASSUMPTION_NOT_MET
    assert found["Theorem 4"].sides[0] == theory.residual_displacements(path.weights).max()
    assert "constants" in found["Theorem 4"].unmet
    assert found["Corollary 3, upper"].verdict is Verdict.ASSUMPTION_NOT_MET
    assert found["Theorem 5"].verdict is Verdict.NOT_APPLICABLE


def test_the_measured_constant_of_corollary_3_is_the_ratio_over_the_condition_number(path, problem):
    lower, _ = theory.minimal_sharpness_bounds(problem, 10)
    eigenvalues = np.linalg.eigvalsh(np.asarray(problem.covariance))
    expected = flowsim.sharpness(path.network, problem) / lower * eigenvalues[0] / eigenvalues[-1]
    found = by_name(path)
    np.testing.assert_allclose(found["Corollary 3, upper"].smaller, expected, rtol=1e-8)
    assert found["Corollary 3, lower"].verdict is Verdict.HOLDS


def test_corollary_3_asks_for_full_rank(path, problem):
    singular = eqx.tree_at(lambda p: p.eigenvalues, problem, problem.eigenvalues.at[-1].set(0.0))
    found = by_name(dataclasses.replace(path, problem=singular))
    assert found["Corollary 3, lower"].verdict is Verdict.ASSUMPTION_NOT_MET


@pytest.mark.slow
def test_theorem_5_is_about_several_outputs_and_theorem_2_is_not(several):
    assert several.end.converged
    found = {statement.name: statement for statement in theory.statements(several)}
    assert found["Theorem 5"].sides[0] > 0
    for name in ("Theorem 1", "Theorem 4", "Corollary 2", "Corollary 3, lower", "Lemma 2 (i)"):
        assert found[name].verdict is Verdict.NOT_APPLICABLE
    for name in ("Lemma 1", "Lemma 7", "Lemma 8, lower", "Lemma 8, upper"):
        assert found[name].verdict is Verdict.HOLDS


@pytest.mark.slow
def test_a_perceptron_has_no_residual_statements(problem, mlp):
    found = by_name(theory.follow(mlp, problem, max_steps=2))
    assert found["Theorem 4"].verdict is Verdict.NOT_APPLICABLE
    assert found["Corollary 3, upper"].verdict is Verdict.NOT_APPLICABLE


def test_the_frequency_of_convergence_has_its_interval():
    found = theory.convergence_statement([True] * 19 + [False])
    assert found.sides[0] == pytest.approx(0.05)
    assert "19 of 20" in found.note
    assert found.verdict is Verdict.ASSUMPTION_NOT_MET
