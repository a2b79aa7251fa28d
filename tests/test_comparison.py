import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import Outcome
from flowsim.comparison.records import RecordBudget


def weights_at(trajectory, record):
    return np.concatenate([np.ravel(stack[record]) for stack in trajectory.weights.stacks])


@pytest.mark.slow
def test_runs_start_together_and_are_compared_at_equal_times(comparison):
    flow_times = np.asarray(comparison.flow.times)
    for descent in comparison.descents[:2]:
        times = np.asarray(descent.trajectory.times)
        assert descent.distance[0] == 0
        for record in (5, 30):
            (match,) = np.flatnonzero(flow_times == times[record])
            gap = weights_at(descent.trajectory, record) - weights_at(comparison.flow, match)
            np.testing.assert_allclose(descent.distance[record], np.linalg.norm(gap), rtol=1e-12)


@pytest.mark.slow
def test_a_descent_that_outlasts_the_flow_is_compared_with_its_limit(comparison):
    late = comparison.descents[1]
    assert late.trajectory.time > comparison.flow.time
    gap = weights_at(late.trajectory, -1) - weights_at(comparison.flow, -1)
    np.testing.assert_allclose(late.distance_to_flow, np.linalg.norm(gap), rtol=1e-12)
    np.testing.assert_allclose(late.distance[-1], late.distance_to_flow, rtol=1e-12)


def test_a_small_learning_rate_never_meets_two_over_eta_and_a_large_one_crosses_it(comparison):
    gentle, edge, _ = comparison.descents
    assert gentle.crossing_time is None
    assert np.nanmax(gentle.trajectory.sharpness) < 2 / 0.02
    sharpness, times = np.asarray(edge.trajectory.sharpness), np.asarray(edge.trajectory.times)
    first = np.flatnonzero(sharpness >= 2 / 0.08)[0]
    assert times[first - 1] <= edge.crossing_time <= times[first]
    assert edge.trajectory.final_sharpness == pytest.approx(2 / 0.08, rel=0.01)


def test_a_diverging_learning_rate_is_a_row_and_not_an_error(comparison):
    diverged = comparison.descents[2]
    assert diverged.trajectory.outcome is Outcome.DIVERGED
    assert np.isnan(diverged.trajectory.final_sharpness)
    assert comparison.flow.converged


def test_bounds_and_critical_rate_are_those_of_theorem_2(comparison, problem):
    assert comparison.bounds == flowsim.theory.minimal_sharpness_bounds(problem, 10)
    assert comparison.critical_learning_rate == 2 / comparison.bounds[0]
    assert comparison.bounds[0] <= comparison.flow.final_sharpness


def test_sharpness_along_the_path_ends_at_the_sharpness_of_the_limit(comparison):
    np.testing.assert_allclose(comparison.flow.sharpness[-1], comparison.flow.final_sharpness, rtol=1e-9)


@pytest.mark.slow
def test_no_learning_rates_leave_the_flow_alone(mlp, problem):
    alone = flowsim.compare(mlp, problem, [])
    assert alone.descents == ()
    assert alone.flow.converged
    assert len(alone.flow.times) > 50


@pytest.mark.slow
def test_the_flow_is_drawn_in_full_beside_descents_that_end_at_once(mlp, problem):
    short = flowsim.compare(mlp, problem, [5.0, 1e30], steps=50)
    assert [descent.trajectory.outcome for descent in short.descents] == [Outcome.DIVERGED] * 2
    risk = np.asarray(short.flow.excess_risk) / float(short.flow.excess_risk[0])
    assert short.flow.converged
    assert ((risk < 0.9) & (risk > 0.1)).sum() >= 10
    assert len(risk) > 60


@pytest.mark.slow
def test_a_second_comparison_compiles_no_loop_again(mlp, problem, comparison, compiled):
    other = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.35, key=jax.random.key(1))
    before = compiled()
    flowsim.compare(other, problem, [0.03, 0.05, 0.07], steps=4000)
    # The distance to the flow is one small program for each number of records that is new.
    assert compiled() - before <= 3


@pytest.mark.slow
def test_a_nonlinear_network_is_compared_without_bounds():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((20, 3))
    problem = flowsim.EmpiricalRisk(X, np.tanh(X @ np.ones(3)))
    network = flowsim.Perceptron.gaussian(widths=[3, 3, 1], scale=0.8, activation="tanh", key=jax.random.key(0))
    comparison = flowsim.compare(network, problem, [0.05], steps=100, t1=20.0)
    assert comparison.bounds is None
    assert comparison.critical_learning_rate is None
    assert comparison.flow.outcome is Outcome.TIME_LIMIT
    assert np.isfinite(comparison.descents[0].distance).all()


def test_the_copies_that_records_keep_are_those_of_the_run(comparison, mlp, problem):
    copies = sum(run.trajectory.weights.stacks[0].shape[0] for run in comparison.descents)
    copies += comparison.flow.weights.stacks[0].shape[0]
    expected = 2 * 3 * RecordBudget().of_runs(mlp, 3)
    assert copies <= expected <= 3 * copies


@pytest.mark.slow
def test_several_optimizers_are_compared_and_told_apart():
    bowl, start = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2), jnp.array([1.0, 1.0])
    given = [0.05, flowsim.HeavyBall(0.05, momentum=0.5), flowsim.Adam(1e-2)]
    both = flowsim.compare(start, bowl, given, steps=12)
    alone = [flowsim.descend(start, bowl, learning_rate=0.05, steps=12)]
    alone += [flowsim.descend(start, bowl, optimizer=optimizer, steps=12) for optimizer in given[1:]]
    for one, run in zip(both.descents, alone, strict=True):
        assert (one.trajectory.dynamics, one.learning_rate) == (run.dynamics, float(run.learning_rate))
        np.testing.assert_allclose(one.trajectory.network, run.network, rtol=1e-12)
    rows = [line.split()[:3] for line in str(both).splitlines()]
    assert [row for row in rows if row[:1] in (["GD"], ["heavy"], ["adam"])] == [
        ["GD", "0.05", "12"],
        ["heavy", "ball", "0.05"],
        ["adam", "0.01", "12"],
    ]
    assert len(set(both.to_dataset()["dynamics"].values.tolist())) == 4


@pytest.mark.parametrize(
    ("rates", "options", "message"),
    [
        ([flowsim.HeavyBall(0.1), flowsim.HeavyBall(0.1)], {}, "learning_rates: found 0.1 twice; expected no repet"),
        ([flowsim.HeavyBall(0.1), flowsim.HeavyBall(0.1, momentum=0.5)], {}, "found 0.1 of heavy_ball twice, which"),
        (
            [0.1, flowsim.HeavyBall(0.1)],
            {"models": ["centre"]},
            "found 0.1 of gradient_descent and of heavy_ball, whose",
        ),
        (flowsim.HeavyBall(0.1), {}, "must be a list of numbers, as"),
    ],
)
def test_optimizers_that_results_could_not_tell_apart_are_refused(rates, options, message):
    with pytest.raises(ValueError, match=message):
        flowsim.compare(jnp.array([1.0, 1.0]), flowsim.Risk(lambda w: w @ w), rates, steps=3, **options)
