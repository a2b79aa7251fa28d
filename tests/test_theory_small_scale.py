import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import theory
from flowsim.theory import Verdict

SCALE = 1e-4


def small(depth, scale=SCALE, seed=0):
    network = flowsim.DeepLinear.gaussian(widths=[5] * depth + [1], scale=scale, key=jax.random.key(seed))
    return network.with_zero_layer(depth // 2 + 1)


@pytest.fixture(scope="module")
def path(problem):
    return theory.follow(small(3), problem, rtol=1e-10)


def by_name(path, *subjects):
    chosen = subjects or ("conservation", "small_scale", "rates")
    return {statement.name: statement for statement in theory.statements(path, subjects=chosen)}


@pytest.fixture(scope="module")
def deep(problem):
    """A plateau of more than 10²⁷ units of time; what happens after it takes some 40."""
    return theory.follow(small(10), problem, rtol=1e-10)


@pytest.mark.parametrize("depth", [3, 10])
@pytest.mark.slow
def test_under_a1_and_a2_every_statement_of_section_4_holds(depth, path, deep):
    run = path if depth == 3 else deep
    assert run.end.converged
    assert {name: s.verdict for name, s in by_name(run).items()} == dict.fromkeys(by_name(run), Verdict.HOLDS)
    if depth == 10:
        assert run.escape_time > 1e27
    assert (np.diff(run.times) >= 0).all()
    assert 1 < run.times[-1] < 100
    after = run.times >= 0
    assert np.sum(np.diff(run.times[after]) > 0) > 20


@pytest.mark.slow
def test_the_clock_keeps_its_digits_from_the_plateau_to_the_escape(deep):
    """Against d‖W_1‖_F²/dt = −2⟨π, ∇R¹(π)⟩, whose right side is a power of the left in between: from 10¹⁷ before the
    escape to 10³ before it, where one clock from the start would tick every 10¹².
    """
    size, gradients = np.sum(deep.weights[0] ** 2, axis=(1, 2)), deep.gradients
    speed = -2 * np.sum(gradients.above[0] * gradients.regressor_gradient, axis=(1, 2))
    among = np.flatnonzero((deep.times > -1e17) & (deep.times < -1e3))
    moved = np.diff(np.log(size[among])) > 1e-6
    first, last = among[:-1][moved], among[1:][moved]
    grown = np.log(size[last] / size[first])
    power = np.log(speed[last] / speed[first]) / grown
    expected = size[first] / speed[first] * np.expm1((1 - power) * grown) / (1 - power)
    assert len(first) > 30
    np.testing.assert_allclose(deep.times[last] - deep.times[first], expected, rtol=1e-3)


def test_epsilon_is_that_of_the_paper():
    generator = np.random.default_rng(0)
    a, b, c = generator.standard_normal((3, 2)), generator.standard_normal((4, 3)), generator.standard_normal((1, 4))
    largest = max((m**2).sum() for m in (a, b, c))
    imbalance = np.linalg.norm(a @ a.T - b.T @ b, 2) + np.linalg.norm(b @ b.T - c.T @ c, 2)
    np.testing.assert_allclose(theory.initialization_epsilon([a, b, c]), 3 * largest + 2 * imbalance)
    tiny = [1e-3 * m for m in (a, b, c)]
    np.testing.assert_allclose(theory.initialization_epsilon(tiny), 1e-6 * (3 * largest + 2 * imbalance))


@pytest.mark.slow
def test_the_sides_of_lemma_2_are_what_plain_numpy_finds(path):
    found, record = by_name(path), len(path.times) // 2
    first, second, third = (along[record] for along in path.weights)
    values = [np.linalg.norm(m, 2) ** 2 for m in (first, second, third)]
    rest = [(m**2).sum() - value for m, value in zip((first, second, third), values, strict=True)]
    np.testing.assert_allclose(found["Lemma 2 (i)"].smaller[record], max(rest), rtol=1e-6)
    np.testing.assert_allclose(found["Lemma 2 (ii)"].smaller[record], max(values) - min(values), rtol=1e-6)
    ratios = []
    for below, above in ((first, second), (second, third)):
        u = np.linalg.eigh(below @ below.T)[1][:, -1]
        v = np.linalg.eigh(above.T @ above)[1][:, -1]
        ratios.append((1 - (u @ v) ** 2) / (found["Lemma 2 (i)"].larger[record] / np.linalg.norm(above, 2) ** 2))
    lemma = found["Lemma 2 (iii)"]
    np.testing.assert_allclose(lemma.smaller[record] / lemma.larger[record], max(ratios), rtol=1e-4, atol=1e-9)


@pytest.mark.slow
def test_descent_with_a_large_step_breaks_the_conservation_law(problem, mlp, mlp_flow):
    """The drift of descent is of order η; that of the flow is what its tolerance allows."""
    drifts = []
    for eta in (0.01, 0.02, 0.04):
        run = flowsim.descend(mlp, problem, learning_rate=eta, steps=4000, weights=True)
        descent = theory.path_of([run], mlp, rtol=1e-6)
        assert by_name(descent, "conservation")["Lemma 1"].verdict is Verdict.FAILS
        drifts.append(theory.conservation_drift(descent.weights)[-1])
    np.testing.assert_allclose(np.array(drifts[1:]) / drifts[:-1], 2, rtol=0.25)
    flow = by_name(theory.follow(mlp, problem), "conservation")["Lemma 1"]
    assert flow.verdict is Verdict.HOLDS
    assert flow.smaller.max() < 1e-3 * drifts[0]


@pytest.mark.slow
def test_a_tighter_tolerance_drifts_less(problem, mlp):
    drifts = [theory.conservation_drift(theory.follow(mlp, problem, rtol=r).weights)[-1] for r in (1e-5, 1e-8)]
    assert drifts[1] < 0.01 * drifts[0]


@pytest.mark.slow
def test_without_a1_nothing_that_rests_on_it_holds(problem, path):
    """A start against w* has a larger risk than zero; the difference, far below rounding of the risks, counts."""
    network = small(3, seed=3)
    weights = [np.array(weight) for weight in network.weights]
    weights[1] = -1e-9 * np.outer(weights[2][0], weights[0] @ np.asarray(problem.covariance @ problem.optimum))
    against = flowsim.DeepLinear(weights)
    assert float(problem.excess_risk(against)) == float(problem.excess_risk(jnp.zeros(5)))
    assert not theory.assumption_1(against, problem).met
    along = flowsim.DeepLinear([weights[0], -weights[1], weights[2]])
    assert theory.assumption_1(along, problem).met
    found = by_name(dataclasses.replace(path, initial=against))
    for name in ("A1", "Theorem 3", "Corollary 1, lower", "Corollary 2"):
        assert found[name].verdict is Verdict.ASSUMPTION_NOT_MET
    assert found["Lemma 2 (i)"].verdict is Verdict.HOLDS


def test_the_zero_network_does_not_meet_a1(problem):
    nothing = flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=0.0, key=jax.random.key(0))
    assumption = theory.assumption_1(nothing, problem)
    assert not assumption.met
    assert "∇R(W(0)) = 0" in assumption.found


def test_a2_asks_for_a_small_scale_and_full_rank(problem):
    assert theory.assumption_2(small(10), problem).met
    assert not theory.assumption_2(small(10, scale=1e-3), problem).met
    X = np.random.default_rng(0).standard_normal((20, 5))
    X[:, 4] = X[:, 0]
    singular = flowsim.LinearRegression(X, X @ np.ones(5))
    assert not theory.assumption_2(small(10), singular).met
    faint = eqx.tree_at(lambda p: p.optimum, problem, 1e-6 * problem.optimum)
    assert theory.assumption_2(small(3), problem).met
    assert not theory.assumption_2(small(3), eqx.tree_at(lambda p: p.optimum, faint, 1e-6 * faint.optimum)).met


@pytest.mark.slow
def test_large_initializations_keep_lemma_2_and_lose_the_corollaries(problem, mlp):
    found = by_name(theory.follow(mlp, problem))
    assert found["Lemma 2 (i)"].verdict is Verdict.HOLDS
    assert found["Corollary 2"].verdict is Verdict.ASSUMPTION_NOT_MET
    assert "A2" in found["Corollary 2"].unmet


@pytest.mark.slow
def test_at_a_tie_of_singular_values_the_alignment_says_nothing_wrong(path):
    """W_k = c·I has every direction as its first: whatever is chosen, the lemma's proof and bound allow it."""
    ties = theory.LeadingSingular((np.eye(4)[None], np.eye(4)[None], np.zeros((1, 4, 4))))
    assert np.all(ties.misalignments <= 1 + 1e-15)
    assert np.all(np.isfinite(ties.misalignments))
    np.testing.assert_allclose(ties.remainders, [[3, 3, 0]])


def test_a_zero_layer_is_zero_and_the_others_are_as_drawn():
    drawn = flowsim.DeepLinear.gaussian(widths=[3, 3, 3, 1], scale=1.0, key=jax.random.key(0))
    zeroed = drawn.with_zero_layer(2)
    assert not np.any(zeroed.weights[1])
    for layer in (0, 2):
        np.testing.assert_array_equal(zeroed.weights[layer], drawn.weights[layer])
    with pytest.raises(ValueError, match="one of 1, …, 3"):
        drawn.with_zero_layer(4)


@pytest.mark.slow
def test_only_linear_networks_on_regressions_are_followed(problem):
    perceptron = flowsim.Perceptron.gaussian(widths=[5, 3, 1], scale=1.0, activation="tanh", key=jax.random.key(0))
    with pytest.raises(TypeError, match="DeepLinear"):
        theory.follow(perceptron, problem)
    with pytest.raises(ValueError, match="weights=True"):
        theory.path_of([flowsim.integrate(small(3), problem, max_steps=2)], small(3), rtol=1e-6)
    with pytest.raises(ValueError, match="no subject"):
        theory.check(small(3), problem, subjects=["residuals"], max_steps=2)
