"""The sides of every statement against plain NumPy, on a made-up path, and the path of a flow in closed form."""

import dataclasses
from itertools import pairwise
from types import SimpleNamespace

import equinox as eqx
import numpy as np
import pytest

import flowsim
from flowsim import theory
from flowsim.theory import Verdict

WIDTHS = [5, 4, 3, 1]
PROJECTION = np.array([0.6, -1.2, 0.3, 0.1, 0.8])
TIMES = np.array([-3.0, -1.5, 0.0, 1.0, 2.0, 5.0])
ESCAPE = 2.5
RTOL, ATOL, STEPS, SHARPNESS = 1e-6, 1e-8, 100, 30.0


@pytest.fixture(scope="module")
def data():
    """Samples and labels with ‖w*‖ = 2.4: with a norm of one, no power of it would be seen."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((50, 5))
    return X, X @ np.array([1.0, -2.0, 0.5, 0.3, 0.7]) + 0.1 * generator.standard_normal(50)


@pytest.fixture(scope="module")
def regression(data):
    return flowsim.LinearRegression(*data)


@pytest.fixture(scope="module")
def plain(data):
    """Σ and its extreme eigenvalues, w*, ‖w*‖ and a, by the normal equations."""
    X, y = data
    covariance = X.T @ X / len(X)
    w = np.linalg.solve(covariance, X.T @ y / len(X))
    least, *_, largest = np.linalg.eigvalsh(covariance)
    a = w @ covariance @ w / (w @ w)
    return SimpleNamespace(covariance=covariance, w=w, size=np.linalg.norm(w), a=a, least=least, largest=largest)


def made_up(problem, end, projection=None):
    """Return a path that is of no flow, from a draw to weights that are nearly those of an `end`."""
    generator = np.random.default_rng(1)
    left = np.array([1.0, 0.9, 0.5, 0.2, 0.05, 1e-3])[:, None, None]
    draws = [0.7 * generator.standard_normal(np.shape(weight)) for weight in end]
    last = SimpleNamespace(
        network=flowsim.DeepLinear(end, projection),
        converged=True,
        outcome=flowsim.Outcome.CONVERGED,
        final_sharpness=SHARPNESS,
        excess_risk=[1e-24],
    )
    return theory.FlowPath(
        problem,
        initial=flowsim.DeepLinear(draws, projection),
        end=last,
        weights=tuple(left * draw + (1 - left) * np.asarray(weight) for draw, weight in zip(draws, end, strict=True)),
        times=TIMES,
        escape_time=ESCAPE,
        rtol=RTOL,
        atol=ATOL,
        steps=STEPS,
    )


@pytest.fixture(scope="module")
def path(regression):
    """That of a perceptron, to a flat minimizer."""
    return made_up(regression, theory.flat_minimizer(regression, WIDTHS).weights)


@pytest.fixture(scope="module")
def residual_path(regression):
    """That of three square layers below a projection."""
    return made_up(regression, [*(np.eye(5) + 0.2 * np.random.default_rng(2).standard_normal((3, 5, 5)))], PROJECTION)


def by_name(path, *subjects):
    return {statement.name: statement for statement in theory.statements(path, subjects=subjects)}


def regressor(weights, projection=None):
    """Return πᵀ, a row for each output."""
    rows = np.eye(len(weights[-1])) if projection is None else projection[None]
    for weight in reversed(weights):
        rows = rows @ weight
    return rows


def derivatives(function, weights):
    """Return the derivatives of a polynomial by each layer, entries last, exact by steps into the complex plane."""
    found = []
    for layer, weight in enumerate(weights):
        columns = []
        for entry in np.ndindex(weight.shape):
            moved = [np.array(one, complex) for one in weights]
            moved[layer][entry] += 1e-30j
            columns.append(np.imag(function(moved)) / 1e-30)
        found.append(np.stack(columns, axis=-1))
    return found


def excess(plain, weights, projection=None):
    off = regressor(weights, projection) - plain.w
    return np.sum((off @ plain.covariance) * off)


def gradient_norms(plain, weights, projection=None):
    """Return the norm of the gradient of each layer."""
    return [np.linalg.norm(g) for g in derivatives(lambda moved: excess(plain, moved, projection), weights)]


def records(path):
    """Return the weights of each record."""
    return list(zip(*path.weights, strict=True))


# --- Theorems 1 and 2 -----------------------------------------------------------------------------------------------


def bounds_of_theorem_2(plain, depth, projection_norm=1.0):
    scale = 2 * plain.size ** (2 - 2 / depth) * projection_norm ** (2 / depth)
    return (
        scale * depth * plain.a,
        scale * np.sqrt((2 * depth - 1) * plain.largest**2 + (depth - 1) ** 2 * plain.a**2),
    )


@pytest.mark.parametrize(("depth", "projection_norm"), [(1, 1.0), (10, 2.5)])
def test_bounds_are_those_of_theorem_2(regression, plain, depth, projection_norm):
    lower, upper = bounds_of_theorem_2(plain, depth, projection_norm)
    found = theory.minimal_sharpness_bounds(regression, depth, projection_norm=projection_norm)
    np.testing.assert_allclose(found, (lower, upper), rtol=1e-11)
    critical = theory.critical_learning_rate(regression, depth, projection_norm=projection_norm)
    assert critical == pytest.approx(2 / lower, rel=1e-11)


def test_layers_of_the_flat_minimizer_are_aligned_of_rank_one_and_of_one_norm(regression, plain):
    flat = theory.flat_minimizer(regression, [5, 4, 3, 5], projection=PROJECTION)
    weights = [np.asarray(weight) for weight in flat.weights]
    np.testing.assert_allclose(regressor(weights, PROJECTION)[0], plain.w, rtol=1e-12)
    size = (plain.size / np.linalg.norm(PROJECTION)) ** (1 / 3)
    for weight in weights:
        np.testing.assert_allclose(np.linalg.svd(weight)[1], size * np.eye(3, min(weight.shape))[0], atol=1e-12)
    lower, _ = theory.minimal_sharpness_bounds(regression, 3, projection_norm=np.linalg.norm(PROJECTION))
    assert theory.layer_norm_bound(flat, regression) == pytest.approx(lower, rel=1e-12)


def test_sides_of_theorems_1_and_2_are_those_of_numpy(regression, plain, path):
    """At a minimizer the Hessian is 2JᵀΣJ, with the derivative J of the regressor."""

    def sharpness(network):
        J = np.concatenate(derivatives(regressor, [np.asarray(weight) for weight in network.weights]), axis=-1)[0]
        return 2 * np.linalg.eigvalsh(J.T @ plain.covariance @ J)[-1]

    found, (lower, upper), flat = by_name(path, "minimizers"), bounds_of_theorem_2(plain, 3), path.network
    at_flat, factors = sharpness(flat), [10.0, 100.0, 1000.0]
    sharp = [theory.sharp_minimizer(flat, factor) for factor in factors]
    second = np.linalg.norm(flat.weights[1])
    bounds = [2 * plain.least * plain.size ** (2 - 1 / 3) * factor / second for factor in factors]
    known = {
        "Theorem 1": (lower, SHARPNESS),
        "Theorem 2, layer norms": (lower, SHARPNESS),
        "Theorem 2, lower bound": (lower, at_flat),
        "Theorem 2, upper bound": (at_flat, upper),
        "Theorem 2, sharp family": (bounds, [sharpness(network) for network in sharp]),
    }
    for name, sides in known.items():
        np.testing.assert_allclose((found[name].smaller, found[name].larger), sides, rtol=1e-9, err_msg=name)
    assert all(found[name].verdict is Verdict.HOLDS for name in known)
    assert found["Theorem 2, flat minimizer"].verdict is Verdict.HOLDS
    assert found["Theorem 2, one dimension"].verdict is Verdict.NOT_APPLICABLE
    np.testing.assert_allclose(sharp[0].regressor(), plain.w, rtol=1e-12)


def test_layer_norms_bound_the_sharpness_by_the_sum_of_their_inverses(regression, plain, path, residual_path):
    for one, size in ((path, 1.0), (residual_path, np.linalg.norm(PROJECTION))):
        inverse = sum(1 / np.linalg.norm(weight) for weight in one.initial.weights)
        expected = 2 * plain.a * plain.size ** (2 - 1 / 3) * size ** (1 / 3) * inverse
        assert theory.layer_norm_bound(one.initial, regression) == pytest.approx(expected, rel=1e-11)


# --- section 4 ------------------------------------------------------------------------------------------------------


def test_epsilon_is_that_of_the_paper():
    generator = np.random.default_rng(0)
    a, b, c = generator.standard_normal((3, 2)), generator.standard_normal((4, 3)), generator.standard_normal((1, 4))
    largest = max((m**2).sum() for m in (a, b, c))
    imbalance = np.linalg.norm(a @ a.T - b.T @ b, 2) + np.linalg.norm(b @ b.T - c.T @ c, 2)
    np.testing.assert_allclose(theory.initialization_epsilon([a, b, c]), 3 * largest + 2 * imbalance)


def test_sides_of_lemmas_1_and_2_are_those_of_numpy(path):
    found = by_name(path, "conservation", "small_scale")
    differences = [[a @ a.T - b.T @ b, b @ b.T - c.T @ c] for a, b, c in records(path)]
    drift = [max(np.linalg.norm(d - e, 2) for d, e in zip(here, differences[0], strict=True)) for here in differences]
    np.testing.assert_allclose(found["Lemma 1"].smaller, drift, rtol=1e-10)
    sizes = [max(np.linalg.norm(weight) for weight in along) for along in path.weights]
    of_a_step = [4 * s * (RTOL * s + ATOL * w[0].size ** 0.5) for s, w in zip(sizes, path.weights, strict=True)]
    np.testing.assert_allclose(found["Lemma 1"].larger, STEPS**0.5 * max(of_a_step), rtol=1e-10)
    assert found["Lemma 1"].verdict is Verdict.FAILS
    epsilon = theory.initialization_epsilon(path.initial.weights)
    for record, weights in enumerate(records(path)):
        values = [np.linalg.norm(m, 2) ** 2 for m in weights]
        rest = [(m**2).sum() - value for m, value in zip(weights, values, strict=True)]
        np.testing.assert_allclose(found["Lemma 2 (i)"].smaller[record], max(rest), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(found["Lemma 2 (ii)"].smaller[record], max(values) - min(values), rtol=1e-9)
        ratios = []
        for below, above, square in zip(weights[:-1], weights[1:], values[1:], strict=True):
            u, v = np.linalg.eigh(below @ below.T)[1][:, -1], np.linalg.eigh(above.T @ above)[1][:, -1]
            ratios.append((1 - (u @ v) ** 2) * square / epsilon)
        lemma = found["Lemma 2 (iii)"]
        assert lemma.smaller[record] / lemma.larger[record] == pytest.approx(max(ratios), rel=1e-6, abs=1e-15)
    for name in ("Lemma 2 (i)", "Lemma 2 (ii)"):
        np.testing.assert_allclose(found[name].larger, epsilon, rtol=1e-12)


def test_at_a_tie_of_singular_values_the_alignment_says_nothing_wrong():
    """W_k = c·I has every direction as its first: whatever is chosen, the lemma's proof and bound allow it."""
    ties = theory.LeadingSingular((np.eye(4)[None], np.eye(4)[None], np.zeros((1, 4, 4))))
    assert np.all(ties.misalignments <= 1 + 1e-15)
    np.testing.assert_allclose(ties.remainders, [[3, 3, 0]])


def test_a_flow_that_did_not_arrive_meets_no_assumption_about_its_limit(path):
    end = SimpleNamespace(**vars(path.end) | {"converged": False, "outcome": flowsim.Outcome.STEP_LIMIT})
    statements = by_name(dataclasses.replace(path, end=end), "minimizers", "small_scale")
    for name in ("Theorem 1", "Theorem 2, sharp family", "Theorem 3", "Corollary 1, upper", "Corollary 2"):
        assert statements[name].verdict is Verdict.ASSUMPTION_NOT_MET
    assert "limit" in statements["Theorem 1"].unmet


def test_sides_of_theorem_3_and_of_corollaries_1_and_2_are_those_of_numpy(path, plain):
    found, roots, steps = by_name(path, "small_scale"), [], []
    for a, b, c in records(path):
        root = excess(plain, (a, b, c)) ** 0.5
        norms = gradient_norms(plain, (a, b, c))
        roots.append(np.linalg.norm(norms) / root)
        steps.append((2 * plain.least**0.5 * np.linalg.norm(c @ b) * root, norms[0]))
    step = found["Theorem 3, first step"]
    np.testing.assert_allclose(np.stack([step.smaller, step.larger], axis=1), steps, rtol=1e-8)
    assert found["Theorem 3"].larger == pytest.approx(min(roots[1:]), rel=1e-8)  # from t = 1 on, the first left out
    last = records(path)[-1]
    values, epsilon = [np.linalg.norm(m, 2) for m in last], theory.initialization_epsilon(path.initial.weights)
    aligned = [(np.linalg.svd(below)[0][:, 0] @ np.linalg.svd(above)[2][0]) ** 2 for below, above in pairwise(last)]
    known = {
        "A2": (32 * 3 * epsilon**0.5, 1.0),
        "Corollary 1, lower": ((plain.size / 2) ** (1 / 3), min(values)),
        "Corollary 1, upper": (max(values), (2 * plain.size) ** (1 / 3)),
        "Corollary 2": (SHARPNESS / bounds_of_theorem_2(plain, 3)[0], 4 * plain.largest / plain.least),
        "Corollary 2, absolute": (SHARPNESS, 8 * 3 * plain.largest * plain.size ** (2 - 2 / 3)),
    }
    for name, sides in known.items():
        np.testing.assert_allclose(found[name].sides, sides, rtol=1e-9, err_msg=name)
    alignment = found["Corollary 1, alignment"]
    assert alignment.larger == pytest.approx(epsilon / (plain.size / 2) ** (2 / 3), rel=1e-11)
    assert alignment.smaller == pytest.approx(1 - min(aligned), rel=1e-6)


def small(scale=1e-4):
    generator = np.random.default_rng(0)
    weights = [scale * generator.standard_normal(shape) for shape in ((5, 5), (5, 5), (1, 5))]
    return flowsim.DeepLinear(weights).with_zero_layer(2)


def test_a1_asks_for_no_more_risk_than_that_of_zero_and_for_a_gradient(regression, plain):
    """The sign of a change in the risk counts, far below its rounding."""
    first, zero, last = (np.asarray(weight) for weight in small().weights)
    assert not zero.any()
    along = 1e-9 * np.outer(last[0], first @ plain.covariance @ plain.w)
    for sign in (1, -1):
        network = flowsim.DeepLinear([first, sign * along, last])
        assert theory.assumption_1(network, regression).met is (sign > 0)
    assert float(regression.excess_risk(network)) == float(regression.excess_risk(0 * regression.optimum))
    nothing = theory.assumption_1(flowsim.DeepLinear([0 * first, 0 * along, 0 * last]), regression)
    assert not nothing.met
    assert "∇R(W(0)) = 0" in nothing.found


def test_a2_asks_for_a_small_scale_beside_that_of_the_regressor_and_for_full_rank(data, regression):
    assert theory.assumption_2(small(), regression).met
    assert not theory.assumption_2(small(scale=2e-3), regression).met
    faint = eqx.tree_at(lambda p: p.optimum, regression, 1e-12 * regression.optimum)
    assert not theory.assumption_2(small(), faint).met
    X, y = data
    assert not theory.assumption_2(small(), flowsim.LinearRegression(X[:, [0, 1, 2, 3, 0]], y)).met


# --- section 5 and Lemmas 7 and 8 -----------------------------------------------------------------------------------


def test_bounds_on_the_gradient_of_a_residual_network_are_those_of_numpy(residual_path, plain):
    """Equations 37 and 43 of the paper, layer by layer."""
    found, known = by_name(residual_path, "residual"), []
    for weights in records(residual_path):
        lower = upper = 0.0
        for k in range(3):
            above, below = regressor(weights[k + 1 :], PROJECTION), np.eye(5)
            for weight in weights[:k]:
                below = weight @ below
            values = np.linalg.svd(below)[1]
            lower += (np.linalg.norm(above) * values[-1]) ** 2
            upper += (np.linalg.norm(above) * values[0]) ** 2
        risk = excess(plain, weights, PROJECTION)
        reached = np.linalg.norm(gradient_norms(plain, weights, PROJECTION))
        known.append((np.sqrt(4 * plain.least * lower * risk), reached, np.sqrt(4 * plain.largest * upper * risk)))
    lower, upper = (found[f"Gradient, {side} bound"] for side in ("lower", "upper"))
    np.testing.assert_allclose(np.transpose([lower.smaller, lower.larger, upper.larger]), known, rtol=1e-8)
    np.testing.assert_allclose(upper.smaller, lower.larger, rtol=0)
    assert lower.verdict is upper.verdict is Verdict.HOLDS  # at all weights, of a flow or not


def test_a_perceptron_has_no_residual_statements_and_a_residual_network_none_of_small_scales(path, residual_path):
    statements = by_name(path, "residual") | by_name(residual_path, "small_scale")
    for name in ("Theorem 4", "Corollary 3, lower", "Corollary 3, upper", "Lemma 2 (i)", "A2", "Corollary 2"):
        assert statements[name].verdict is Verdict.NOT_APPLICABLE


def test_constants_of_theorem_4_and_corollary_3_are_measured_and_prove_nothing(residual_path, regression, plain):
    found = by_name(residual_path, "residual")
    moved = [3 * max(np.linalg.norm(along[k] - along[0]) for along in residual_path.weights) for k in range(len(TIMES))]
    np.testing.assert_allclose(found["Theorem 4"].smaller, moved, rtol=1e-12)
    lower, _ = bounds_of_theorem_2(plain, 3, np.linalg.norm(PROJECTION))
    constant = SHARPNESS / lower * plain.least / plain.largest
    np.testing.assert_allclose(found["Corollary 3, upper"].smaller, constant, rtol=1e-11)
    for name in ("Theorem 4", "Corollary 3, upper"):
        assert found[name].verdict is Verdict.ASSUMPTION_NOT_MET
        assert "constants" in found[name].unmet
    np.testing.assert_allclose(found["Corollary 3, lower"].sides, (lower, SHARPNESS), rtol=1e-11)
    assert found["Corollary 3, lower"].verdict is Verdict.HOLDS
    assert found["Theorem 5"].verdict is Verdict.NOT_APPLICABLE
    singular = eqx.tree_at(lambda p: p.eigenvalues, regression, regression.eigenvalues.at[-1].set(0.0))
    singular = by_name(dataclasses.replace(residual_path, problem=singular), "residual")
    assert singular["Corollary 3, lower"].verdict is Verdict.ASSUMPTION_NOT_MET


def test_gradients_and_their_bounds_are_those_of_numpy_with_several_outputs(data):
    """The smallest and largest singular values of what is above a layer take the place of a norm."""
    X, y = data
    problem = flowsim.LinearRegression(X, np.stack([y, X[:, 0] - y], axis=1))
    w = np.linalg.lstsq(X, np.stack([y, X[:, 0] - y], axis=1))[0].T
    generator = np.random.default_rng(3)
    path = made_up(problem, [generator.standard_normal(shape) for shape in ((5, 5), (2, 5))])
    several, known = SimpleNamespace(covariance=X.T @ X / len(X), w=w), []
    least, *_, largest = np.linalg.eigvalsh(several.covariance)
    for first, second in records(path):
        values = [np.linalg.svd(second)[1], np.linalg.svd(first)[1]]
        ends = [np.hypot(*(one[place] for one in values)) for place in (-1, 0)]
        root = excess(several, (first, second)) ** 0.5
        reached = np.linalg.norm(gradient_norms(several, (first, second)))
        known.append((2 * least**0.5 * ends[0] * root, reached, 2 * largest**0.5 * ends[1] * root))
    found = by_name(path, "residual", "minimizers", "small_scale")
    lower, upper = (found[f"Gradient, {side} bound"] for side in ("lower", "upper"))
    np.testing.assert_allclose(np.transpose([lower.smaller, lower.larger, upper.larger]), known, rtol=1e-8)
    for name in ("Theorem 1", "Theorem 4", "Corollary 2", "Corollary 3, lower", "Lemma 2 (i)"):
        assert found[name].verdict is Verdict.NOT_APPLICABLE


def test_sides_of_lemmas_7_and_8_are_those_of_numpy(path, plain):
    found = by_name(path, "rates")
    risks = np.array([excess(plain, weights) for weights in records(path)])
    sizes = [2 * np.linalg.norm((regressor(weights) - plain.w) @ plain.covariance) for weights in records(path)]
    np.testing.assert_allclose(found["Lemma 8, lower"].smaller, 2 * np.sqrt(plain.least * risks), rtol=1e-9)
    np.testing.assert_allclose(found["Lemma 8, lower"].larger, sizes, rtol=1e-9)
    np.testing.assert_allclose(found["Lemma 8, upper"].larger, 2 * np.sqrt(plain.largest * risks), rtol=1e-9)
    late = risks <= risks[0] / 2
    assert 1 < late.sum() < len(TIMES)
    norms = [np.linalg.norm(gradient_norms(plain, weights)) for weights in records(path)]
    rate = np.min((np.array(norms) ** 2 / risks)[late])
    np.testing.assert_allclose(found["Lemma 7"].smaller, rate * (TIMES[late] - TIMES[late][0]), rtol=1e-8)
    np.testing.assert_allclose(found["Lemma 7"].larger, np.log(risks[late][0] / risks[late]), rtol=1e-8, atol=1e-12)


def test_the_frequency_of_convergence_has_its_interval():
    found = theory.convergence_statement([True] * 19 + [False])
    assert found.sides[0] == pytest.approx(0.05)
    assert "19 of 20" in found.note
    assert found.verdict is Verdict.ASSUMPTION_NOT_MET


# --- a flow ---------------------------------------------------------------------------------------------------------


def test_the_flow_of_a_balanced_scalar_network_is_logistic_and_lemmas_1_7_and_8_hold_on_it():
    """Of R = (ab − 1)² with a = b the product is p' = 4p(1 − p); its plateau is left behind on clocks from the end."""
    problem = flowsim.LinearRegression([[1.0], [-1.0]], [1.0, -1.0])
    start = np.array([[0.003]])
    path = theory.follow(flowsim.DeepLinear([start, start]), problem, rtol=1e-8)
    product = (path.weights[0] * path.weights[1])[:, 0, 0]
    exact = 1 / (1 + (1 / start[0, 0] ** 2 - 1) * np.exp(-4 * (path.times + path.escape_time)))
    np.testing.assert_allclose(product, exact, rtol=1e-5)
    assert path.times[0] == pytest.approx(-path.escape_time, rel=1e-12)
    lost = 1 - (1 - product) ** 2 / (1 - product[0]) ** 2
    assert lost[path.times < 0].max() < 1e-3 <= lost[path.times >= 0].min()
    for found in by_name(path, "conservation", "rates").values():
        assert found.verdict is Verdict.HOLDS
    slow = by_name(dataclasses.replace(path, times=2 * path.times), "rates")
    assert slow["Lemma 7"].verdict is Verdict.FAILS


def test_what_has_no_statements_is_refused(regression):
    X = np.random.default_rng(0).standard_normal((9, 2))
    of_two, of_zero = flowsim.LinearRegression(X, X), flowsim.LinearRegression(X, np.zeros(9))
    for message, ask in (
        ("one output", lambda: theory.minimal_sharpness_bounds(of_two, 3)),
        ("other than zero", lambda: theory.minimal_sharpness_bounds(of_zero, 3)),
        ("depth", lambda: theory.minimal_sharpness_bounds(regression, 0)),
        ("5 features", lambda: theory.flat_minimizer(regression, [4, 3, 1])),
        ("other than zero", lambda: theory.flat_minimizer(regression, [5, 3, 1], projection=[0.0])),
        ("two layers", lambda: theory.sharp_minimizer(flowsim.DeepLinear([np.ones((1, 5))]), 2.0)),
        ("one of 1, …, 3", lambda: small().with_zero_layer(4)),
        ("weights=True", lambda: theory.path_of([SimpleNamespace(weights=None)], None, rtol=1e-6)),
        ("no subject", lambda: theory.statements(None, subjects=["residuals"])),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    with pytest.raises(TypeError, match="DeepLinear"):
        theory.follow(np.ones(5), regression)
