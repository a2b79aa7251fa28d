"""Statements on flows: each with two known sides holds on one, and fails on input that is wrong for it."""

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

pytestmark = pytest.mark.slow

# Their constants are known to exist only, so that they neither hold nor fail.
MEASURED = {"Theorem 4", "Theorem 5", "Corollary 3, upper"}
ASSUMPTIONS = {"A1", "A2"}


@pytest.fixture(scope="module")
def small(problem):
    """A flow from an initialization that satisfies A1 and A2."""
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=1e-4, key=jax.random.key(0))
    return theory.follow(network.with_zero_layer(2), problem, rtol=1e-10)


@pytest.fixture(scope="module")
def square(residual, problem):
    """A flow of a residual network."""
    return theory.follow(residual, problem)


@pytest.fixture(scope="module")
def scalar():
    """A flow of a network of widths one."""
    problem = flowsim.LinearRegression([[1.0], [-1.0]], [1.0, -1.0])
    return theory.follow(flowsim.DeepLinear([np.array([[0.5]]), np.array([[0.4]])]), problem)


def verdicts(path):
    return {statement.name: statement.verdict for statement in theory.statements(path)}


def named(found, verdict):
    return {name for name, reached in found.items() if reached is verdict}


def other_problem(path, **changed):
    """The path held against the bounds of a problem with another w*, or other eigenvalues of Σ, than it ran on."""
    problem = path.problem
    for name, factor in changed.items():
        problem = eqx.tree_at(lambda p, name=name: getattr(p, name), problem, replace_fn=lambda x, c=factor: c * x)
    return dataclasses.replace(path, problem=problem)


def ending_at(path, weights):
    """The path with other weights at its last record, and at its end."""
    along = [np.concatenate([old[:-1], np.asarray(new)[None]]) for old, new in zip(path.weights, weights, strict=True)]
    network = flowsim.DeepLinear([np.asarray(weight) for weight in weights], path.network.projection)
    return dataclasses.replace(path, weights=tuple(along), end=eqx.tree_at(lambda run: run.network, path.end, network))


def strangers(path):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(weight.shape) for weight in path.network.weights]


def sheared(path):
    """A shear between the first two layers, undone by the second, turns their first singular vectors apart."""
    first, second, *others = (np.asarray(weight) for weight in path.network.weights)
    right = np.linalg.svd(second)[2]
    shear = np.eye(len(first)) + np.outer(right[1], right[0])
    return [shear @ first, second @ np.linalg.inv(shear), *others]


def descended(path):
    run = flowsim.descend(path.initial, path.problem, learning_rate=0.1, steps=4000, weights=True)
    return theory.path_of([run], path.initial, rtol=1e-6)


WRONG = {
    "weights of ten times the size at the end": (
        lambda flows: ending_at(flows["small"], [10 * weight for weight in strangers(flows["small"])]),
        {"Lemma 1", "Lemma 2 (i)", "Lemma 2 (ii)", "Lemma 2 (iii)", "Corollary 1, upper"},
    ),
    "a sharp minimizer": (
        lambda flows: ending_at(flows["small"], theory.sharp_minimizer(flows["small"].network, 10.0).weights),
        {"Corollary 1, lower", "Corollary 1, upper", "Corollary 2", "Corollary 2, absolute"},
    ),
    "a minimizer with misaligned layers": (
        lambda flows: ending_at(flows["small"], sheared(flows["small"])),
        {"Corollary 1, alignment"},
    ),
    "the zero network, said to be the limit": (
        lambda flows: ending_at(flows["small"], [0 * weight for weight in flows["small"].network.weights]),
        {"Theorem 3", "Theorem 1", "Corollary 1, lower"},
    ),
    "descent with a large learning rate": (
        lambda flows: descended(flows["square"]),
        {"Lemma 1"},
    ),
    "w* ten times as large": (
        lambda flows: other_problem(flows["square"], optimum=10.0),
        {"Theorem 1", "Theorem 2, layer norms", "Corollary 3, lower"},
    ),
    "eigenvalues a thousand times as large": (
        lambda flows: other_problem(flows["square"], eigenvalues=1e3),
        {"Gradient, lower bound", "Lemma 8, lower", "Theorem 2, sharp family"},
    ),
    "eigenvalues a thousand times as large, one output": (
        lambda flows: other_problem(flows["small"], eigenvalues=1e3),
        {"Theorem 3, first step"},
    ),
    "eigenvalues a thousandth as large": (
        lambda flows: other_problem(flows["square"], eigenvalues=1e-3),
        {"Gradient, upper bound", "Lemma 8, upper", "Theorem 2, upper bound"},
    ),
    "a clock at half the speed": (
        lambda flows: dataclasses.replace(flows["small"], times=2 * flows["small"].times),
        {"Lemma 7"},
    ),
}


@pytest.fixture(scope="module")
def flows(small, square, scalar):
    return {"small": small, "square": square, "scalar": scalar}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_makes_statements_fail(case, flows):
    wrong, expected = WRONG[case]
    assert expected <= named(verdicts(wrong(flows)), Verdict.FAILS)


def constructed(network, problem, bounds=None):
    bounds = theory.minimal_sharpness_bounds(problem, network.depth) if bounds is None else bounds
    found = theory.flat_minimizer_statements(network, problem, bounds)
    return {statement.name: statement.verdict for statement in found}


def construction_failures(problem, scalar):
    """What fails of Theorem 2's construction: for other networks than it, and for bounds of another depth."""
    flat = theory.flat_minimizer(problem, [5, 5, 5, 1])
    line = theory.flat_minimizer(scalar.problem, [1, 1, 1])
    shrunk = flowsim.DeepLinear([0.9 * weight for weight in flat.weights])
    return {
        "shrunk": constructed(shrunk, problem),
        "sharp": constructed(theory.sharp_minimizer(flat, 10.0), problem),
        "deeper": constructed(flat, problem, theory.minimal_sharpness_bounds(problem, 6)),
        "uneven": constructed(theory.sharp_minimizer(line, 2.0), scalar.problem),
    }


def test_what_is_not_the_flat_minimizer_fails(problem, scalar):
    """No minimizer is below the lower bound, so that it takes the bound of a deeper network to fail."""
    found = construction_failures(problem, scalar)
    assert named(found["shrunk"], Verdict.FAILS) == {"Theorem 2, flat minimizer"}
    assert found["shrunk"]["Theorem 2, lower bound"] is Verdict.ASSUMPTION_NOT_MET
    assert named(found["sharp"], Verdict.FAILS) == {"Theorem 2, upper bound"}
    assert named(found["deeper"], Verdict.FAILS) == {"Theorem 2, lower bound"}
    assert "Theorem 2, one dimension" in named(found["uneven"], Verdict.FAILS)


def test_assumptions_1_and_2_are_stated_as_not_met_where_they_are_not(small, problem):
    """Weights of a regressor against w* have more risk than zero; ordinary ones are not small."""
    first, _, last = (np.asarray(weight) for weight in small.initial.weights)
    against = -1e-9 * np.outer(last[0], first @ np.asarray(problem.covariance @ problem.optimum))
    starts = {"A1": [first, against, last], "A2": [1e3 * first, 0 * against, 1e3 * last]}
    for name, weights in starts.items():
        found = verdicts(dataclasses.replace(small, initial=flowsim.DeepLinear(weights)))
        assert found[name] is Verdict.ASSUMPTION_NOT_MET
        assert found[(ASSUMPTIONS - {name}).pop()] is Verdict.HOLDS
        assert found["Corollary 2"] is Verdict.ASSUMPTION_NOT_MET


def test_every_statement_is_shown_to_hold_and_to_fail(flows, problem):
    """The lists above leave out no statement that a flow is checked for."""
    found = [verdicts(path) for path in flows.values()]
    every = set().union(*found)
    assert set().union(*(named(one, Verdict.HOLDS) for one in found)) == every - MEASURED
    assert not set().union(*(named(one, Verdict.FAILS) for one in found))
    failing = set().union(*(expected for _, expected in WRONG.values()))
    for one in construction_failures(problem, flows["scalar"]).values():
        failing |= named(one, Verdict.FAILS)
    assert failing == every - MEASURED - ASSUMPTIONS


@pytest.fixture(scope="module")
def deep(problem):
    """A plateau of more than 10²⁷ units of time; what happens after it takes some 40."""
    network = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=1e-4, key=jax.random.key(0))
    return theory.follow(network.with_zero_layer(6), problem, rtol=1e-10)


def test_on_a_long_plateau_every_statement_of_section_4_holds(deep):
    found = {
        one.name: one.verdict for one in theory.statements(deep, subjects=["conservation", "small_scale", "rates"])
    }
    assert deep.end.converged
    assert set(found.values()) == {Verdict.HOLDS}
    assert deep.escape_time > 1e27
    assert (np.diff(deep.times) >= 0).all()
    assert 1 < deep.times[-1] < 100
    assert np.sum(np.diff(deep.times[deep.times >= 0]) > 0) > 20


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


def test_descent_breaks_the_conservation_law_by_an_amount_of_order_of_its_step(problem, mlp):
    drifts = []
    for eta in (0.01, 0.02):
        run = flowsim.descend(mlp, problem, learning_rate=eta, steps=4000, weights=True)
        descent = theory.path_of([run], mlp, rtol=1e-6)
        assert verdicts(descent)["Lemma 1"] is Verdict.FAILS
        drifts.append(theory.conservation_drift(descent.weights)[-1])
    assert drifts[1] / drifts[0] == pytest.approx(2, rel=0.25)
    flow = theory.follow(mlp, problem)
    assert verdicts(flow)["Lemma 1"] is Verdict.HOLDS
    assert theory.conservation_drift(flow.weights).max() < 1e-3 * drifts[0]


def test_with_several_outputs_lemmas_hold_and_theorem_5_is_measured():
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 50, 5, outputs=5))
    problem = eqx.tree_at(lambda p: p.optimum, problem, jnp.eye(5) + 0.3 * problem.optimum)
    network = flowsim.DeepLinear.residual(width=5, depth=6, scale=0.2, key=jax.random.key(0))
    path = theory.follow(network, problem)
    assert path.end.converged
    found = verdicts(path)
    for name in ("Theorem 1", "Theorem 4", "Corollary 2", "Corollary 3, lower", "Lemma 2 (i)"):
        assert found[name] is Verdict.NOT_APPLICABLE
    for name in ("Gradient, lower bound", "Gradient, upper bound", "Lemma 1", "Lemma 7", "Lemma 8, lower"):
        assert found[name] is Verdict.HOLDS


def test_above_the_critical_learning_rate_descent_does_not_reach_a_minimum(problem, mlp):
    critical = theory.critical_learning_rate(problem, 10)
    above, below = (flowsim.descend(mlp, problem, learning_rate=part * critical, steps=3000) for part in (1.2, 0.5))
    assert float(above.excess_risk[-1]) > 1e-3
    assert float(below.excess_risk[-1]) < 1e-8


def test_the_flat_minimizer_approaches_the_lower_bound_as_the_network_deepens(problem):
    ratios = []
    for depth in (2, 8, 32):
        flat = theory.flat_minimizer(problem, [5] + [3] * (depth - 1) + [2], projection=[1.02, 1.36])
        lower, upper = theory.minimal_sharpness_bounds(problem, depth, projection_norm=1.7)
        sharpness = flowsim.sharpness(flat, problem)
        assert lower <= sharpness <= upper
        ratios.append(sharpness / lower)
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 1.003
