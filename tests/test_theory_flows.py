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


def test_every_statement_holds_on_some_flow_and_fails_on_none(small, square, scalar):
    found = [verdicts(path) for path in (small, square, scalar)]
    every = set().union(*found)
    assert set().union(*(named(one, Verdict.HOLDS) for one in found)) == every - MEASURED
    assert not set().union(*(named(one, Verdict.FAILS) for one in found))


def ending_at(path, weights):
    """The path with other weights at its last record, and at its end."""
    along = [np.concatenate([old[:-1], np.asarray(new)[None]]) for old, new in zip(path.weights, weights, strict=True)]
    end = eqx.tree_at(lambda run: run.network, path.end, flowsim.DeepLinear(list(weights)))
    return dataclasses.replace(path, weights=tuple(along), end=end)


def other_problem(path, name, factor):
    """The path held against the bounds of a problem with another w*, or other eigenvalues of Σ, than it ran on."""
    where = lambda problem: getattr(problem, name)  # noqa: E731
    return dataclasses.replace(path, problem=eqx.tree_at(where, path.problem, factor * where(path.problem)))


def test_wrong_input_makes_statements_fail(small, square):
    generator = np.random.default_rng(0)
    first, second, *others = weights = [np.asarray(weight) for weight in small.network.weights]
    right = np.linalg.svd(second)[2]
    # A shear between the first two layers, undone by the second, turns their first singular vectors apart.
    shear = np.eye(len(first)) + np.outer(right[1], right[0])
    sheared = [shear @ first, second @ np.linalg.inv(shear), *others]
    strangers = [10 * generator.standard_normal(weight.shape) for weight in weights]
    sharp, zero = theory.sharp_minimizer(small.network, 10.0).weights, [0 * weight for weight in weights]
    cases = [
        (ending_at(small, strangers), {"Lemma 1", "Lemma 2 (i)", "Lemma 2 (ii)", "Lemma 2 (iii)"}),
        (
            ending_at(small, sharp),
            {"Corollary 1, lower", "Corollary 1, upper", "Corollary 2", "Corollary 2, absolute"},
        ),
        (ending_at(small, sheared), {"Corollary 1, alignment"}),
        (ending_at(small, zero), {"Theorem 3", "Theorem 1", "Corollary 1, lower"}),
        (other_problem(square, "optimum", 10.0), {"Theorem 1", "Theorem 2, layer norms", "Corollary 3, lower"}),
        (
            other_problem(square, "eigenvalues", 1e3),
            {"Gradient, lower bound", "Lemma 8, lower", "Theorem 2, sharp family"},
        ),
        (other_problem(small, "eigenvalues", 1e3), {"Theorem 3, first step"}),
        (
            other_problem(square, "eigenvalues", 1e-3),
            {"Gradient, upper bound", "Lemma 8, upper", "Theorem 2, upper bound"},
        ),
        (dataclasses.replace(small, times=2 * small.times), {"Lemma 7"}),
    ]
    for wrong, failing in cases:
        assert failing <= named(verdicts(wrong), Verdict.FAILS)


def test_what_is_not_the_flat_minimizer_fails(problem, scalar):
    """No minimizer is below the lower bound, so that it takes the bound of a deeper network to fail."""

    def checked(network, problem, bounds=None):
        bounds = theory.minimal_sharpness_bounds(problem, network.depth) if bounds is None else bounds
        return {one.name: one.verdict for one in theory.flat_minimizer_statements(network, problem, bounds)}

    flat = theory.flat_minimizer(problem, [5, 5, 5, 1])
    shrunk = checked(flowsim.DeepLinear([0.9 * weight for weight in flat.weights]), problem)
    assert named(shrunk, Verdict.FAILS) == {"Theorem 2, flat minimizer"}
    assert shrunk["Theorem 2, lower bound"] is Verdict.ASSUMPTION_NOT_MET
    assert named(checked(theory.sharp_minimizer(flat, 10.0), problem), Verdict.FAILS) == {"Theorem 2, upper bound"}
    deeper = checked(flat, problem, theory.minimal_sharpness_bounds(problem, 6))
    assert named(deeper, Verdict.FAILS) == {"Theorem 2, lower bound"}
    line = theory.sharp_minimizer(theory.flat_minimizer(scalar.problem, [1, 1, 1]), 2.0)
    assert "Theorem 2, one dimension" in named(checked(line, scalar.problem), Verdict.FAILS)


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


def test_with_several_outputs_the_lemmas_hold():
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 50, 5, outputs=5))
    problem = eqx.tree_at(lambda p: p.optimum, problem, jnp.eye(5) + 0.3 * problem.optimum)
    network = flowsim.DeepLinear.residual(width=5, depth=6, scale=0.2, key=jax.random.key(0))
    path = theory.follow(network, problem)
    assert path.end.converged
    found = verdicts(path)
    for name in ("Gradient, lower bound", "Gradient, upper bound", "Lemma 1", "Lemma 7", "Lemma 8, lower"):
        assert found[name] is Verdict.HOLDS


def test_a_run_ends_at_the_risk_that_was_asked_for():
    problem = flowsim.LinearRegression([[1.0], [-1.0]], [1.5, -0.5])  # its least risk is 1/4
    network = flowsim.DeepLinear([np.array([[0.5]]), np.array([[0.4]])])
    end = theory.follow(network, problem, stopping=flowsim.Stopping(risk=0.26)).end
    assert end.outcome == flowsim.Outcome.RISK_REACHED
    assert 0.2501 < end.risk[-1] <= 0.26


def test_above_the_critical_learning_rate_descent_does_not_reach_a_minimum(problem, mlp):
    critical = theory.critical_learning_rate(problem, 10)
    above, below = (flowsim.descend(mlp, problem, learning_rate=part * critical, steps=3000) for part in (1.2, 0.5))
    assert float(above.excess_risk[-1]) > 1e-3
    assert float(below.excess_risk[-1]) < 1e-8


def test_the_flat_minimizer_approaches_the_lower_bound_as_the_network_deepens(problem):
    ratios = []
    for depth in (2, 32):
        flat = theory.flat_minimizer(problem, [5] + [3] * (depth - 1) + [2], projection=[1.02, 1.36])
        lower, upper = theory.minimal_sharpness_bounds(problem, depth, projection_norm=1.7)
        sharpness = flowsim.sharpness(flat, problem)
        assert lower <= sharpness <= upper
        ratios.append(sharpness / lower)
    assert ratios[0] > ratios[1]
    assert ratios[1] < 1.003
