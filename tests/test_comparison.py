"""Flow and descents are compared at equal times, for as long as asked, with a sharpness as closely as asked."""

import sys
from types import SimpleNamespace

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import Fork, Outcome, SharpnessAlong, WarmUp, cli, scenarios
from flowsim.columns import GRADIENT_DESCENT, Run
from flowsim.comparison.comparison import compare_to_flow
from flowsim.comparison.measure import spread_over
from flowsim.comparison.records import RecordBudget
from flowsim.dynamics import StepTimes
from flowsim.report import figures

CURVATURES = np.array([1.0, 0.3, 0.01])
MINIMUM = np.array([1.0, 1.0, -1.0])
AWAY = np.array([1.0, -2.0, 3.0])


def bowl(weights):
    return jnp.sum(jnp.asarray(CURVATURES) * (weights["w"] - MINIMUM) ** 2) / 2


def flowed(t):
    return MINIMUM + AWAY * np.exp(-CURVATURES * np.reshape(t, (-1, 1)))


def stepped(eta, k):
    return MINIMUM + AWAY * (1 - eta * CURVATURES) ** np.reshape(k, (-1, 1))


# -- how recorded runs compare


def recorded(times, weights, sharpness=None, outcome=Outcome.STEP_LIMIT):
    """Return what a comparison looks at of a run."""
    options = {"sharpness": sharpness, "diagnostics": {}, "dynamics": "gradient_descent", "outcome": outcome}
    return SimpleNamespace(times=np.asarray(times, float), weights={"w": jnp.asarray(weights)}, **options)


FLOW_TIMES = 0.1 * np.array([0, 1, 2, 3, 6, 10])


def against_flow(eta, steps, *, ends=Outcome.TIME_LIMIT, **options):
    flow = recorded(FLOW_TIMES, flowed(FLOW_TIMES), outcome=ends)
    run = recorded(eta * np.asarray(steps), stepped(eta, steps), **options)
    return compare_to_flow(flow, run, Run(GRADIENT_DESCENT, eta))


def apart(eta, k, t):
    return np.linalg.norm(stepped(eta, k) - flowed(t), axis=1)


def test_the_distance_is_taken_at_equal_times_up_to_the_end_of_the_descent():
    run = against_flow(0.1, [0, 1, 2, 3, 6])
    np.testing.assert_allclose(run.distance, apart(0.1, [0, 1, 2, 3, 6], [0, 0.1, 0.2, 0.3, 0.6]), rtol=1e-12)
    assert (run.distance_to_flow, run.distance_time) == (run.distance[-1], pytest.approx(0.6))
    assert run.learning_rate == 0.1


def test_the_distance_is_not_known_where_the_flow_has_no_record_or_has_ended_elsewhere_than_at_rest():
    steps = [0, 1, 4, 6, 20]  # t = 0.4 is no record of the flow, and t = 2 is behind its end
    run = against_flow(0.1, steps)
    assert np.isfinite(run.distance).tolist() == [True, True, False, True, False]
    assert (run.distance_to_flow, run.distance_time) == (run.distance[3], pytest.approx(0.6))
    rests = against_flow(0.1, steps, ends=Outcome.CONVERGED)
    np.testing.assert_allclose(rests.distance_to_flow, apart(0.1, 20, 1.0)[0], rtol=1e-12)
    assert rests.distance_time == pytest.approx(2.0)


def test_the_crossing_is_interpolated_between_the_records_that_know_the_sharpness():
    steps = [0, 1, 2, 3, 6]
    crosses = against_flow(0.1, steps, sharpness=np.array([16.0, np.nan, 18.0, 22.0, 15.0]))
    assert crosses.crossing_time == pytest.approx(0.25)
    assert against_flow(0.1, steps, sharpness=np.array([21.0, 18.0, 18.0, 22.0, 15.0])).crossing_time == 0
    for below in (np.full(5, 19.9), None):
        assert against_flow(0.1, steps, sharpness=below).crossing_time is None


# -- a comparison of a network


@pytest.fixture(scope="module")
def least_squares():
    X = np.random.default_rng(0).standard_normal((12, 2))
    return flowsim.LinearRegression(X, X @ np.array([1.5, -1.0]))


@pytest.fixture(scope="module")
def network():
    return flowsim.DeepLinear([np.array([[0.3, 0.1], [-0.1, 0.4]]), np.array([[0.3, -0.2]])])


@pytest.fixture(scope="module")
def comparison(network, least_squares):
    """The flow beside descents that stay below the edge of stability, cross it, and diverge."""
    options = {"steps": 300, "records": 40, "solver": diffrax.Tsit5()}
    return flowsim.compare(network, least_squares, [0.02, 0.4, 5.0], **options)


def weights_at(trajectory, record):
    return np.concatenate([np.ravel(stack[record]) for stack in trajectory.weights.stacks])


def test_runs_start_together_and_are_compared_at_equal_times_and_behind_the_flow_with_its_limit(comparison):
    flow_times = np.asarray(comparison.flow.times)
    for descent in comparison.descents[:2]:
        times = np.asarray(descent.trajectory.times)
        assert descent.distance[0] == 0
        for record in (5, 20):
            (match,) = np.flatnonzero(flow_times == times[record])
            gap = weights_at(descent.trajectory, record) - weights_at(comparison.flow, match)
            np.testing.assert_allclose(descent.distance[record], np.linalg.norm(gap), rtol=1e-12)
    late = comparison.descents[1]
    assert late.trajectory.time > comparison.flow.time
    gap = weights_at(late.trajectory, -1) - weights_at(comparison.flow, -1)
    np.testing.assert_allclose(late.distance_to_flow, np.linalg.norm(gap), rtol=1e-12)
    assert late.distance_time == float(late.trajectory.time)


def test_the_gradients_of_a_flow_are_those_of_its_stages_and_of_its_points(comparison):
    flow = comparison.flow  # by Tsit5: six stages, of which the next step takes over the last
    assert int(flow.gradients) == 6 * int(flow.steps + flow.rejected_steps) + int(flow.steps) + 1


def test_a_small_rate_never_meets_two_over_eta_a_large_one_crosses_it_and_one_that_diverges_is_no_error(comparison):
    gentle, edge, diverged = comparison.descents
    assert gentle.crossing_time is None
    assert np.nanmax(gentle.trajectory.sharpness) < 2 / 0.02
    sharpness, times = np.asarray(edge.trajectory.sharpness), np.asarray(edge.trajectory.times)
    first = np.flatnonzero(sharpness >= 2 / 0.4)[0]
    assert times[first - 1] <= edge.crossing_time <= times[first]
    assert diverged.trajectory.outcome is Outcome.DIVERGED
    assert np.isnan(diverged.trajectory.final_sharpness)
    assert comparison.models == ()
    assert not {"centre_distance", "oscillation", "mean_risk"} & set(comparison.to_dataset())


def test_the_limit_has_the_sharpness_of_the_end_of_the_path_between_the_bounds_of_theorem_2(comparison, least_squares):
    assert comparison.bounds == flowsim.theory.minimal_sharpness_bounds(least_squares, 2)
    assert comparison.critical_learning_rate == 2 / comparison.bounds[0]
    assert comparison.bounds[0] <= comparison.flow.final_sharpness <= comparison.bounds[1]
    np.testing.assert_allclose(comparison.flow.sharpness[-1], comparison.flow.final_sharpness, rtol=1e-9)


def test_records_keep_the_copies_of_the_weights_that_memory_affords(comparison, network):
    runs = [comparison.flow, *(run.trajectory for run in comparison.descents)]
    copies = sum(run.weights.stacks[0].shape[0] for run in runs)
    assert 2 * 40 <= copies <= 2 * 3 * 42  # rates and records, twice
    assert RecordBudget().of_runs(network, 3) == 250
    assert RecordBudget(memory=48 * 3 * 100).of_runs(network, 3) == 100  # 6 weights of 8 bytes


# -- a comparison in closed form


@pytest.fixture(scope="module")
def compare():
    start, problem = {"w": jnp.asarray(MINIMUM + AWAY)}, flowsim.Risk(bowl)
    return lambda rates, **options: flowsim.compare(start, problem, rates, **{"rtol": 1e-10, "records": 40} | options)


@pytest.mark.slow
def test_the_distance_has_its_closed_form_on_a_quadratic_risk(compare):
    """One descent ends long before the flow, one goes on behind it, and one diverges."""
    both = compare([0.01, 0.5, 2.5], steps=200, t1=20.0)
    early, late, lost = both.descents
    assert both.flow.outcome is Outcome.TIME_LIMIT
    assert early.distance_time == pytest.approx(2.0, rel=1e-14)
    np.testing.assert_allclose(early.distance_to_flow, apart(0.01, 200, 2.0)[0], rtol=1e-6)
    assert (float(late.trajectory.time), late.distance_time) == (100.0, 20.0)
    np.testing.assert_allclose(late.distance_to_flow, apart(0.5, 40, 20.0)[0], rtol=1e-6)
    times = np.asarray(late.trajectory.times)
    np.testing.assert_array_equal(np.isfinite(late.distance), times <= 20)
    assert lost.trajectory.outcome is Outcome.DIVERGED
    last = np.flatnonzero(np.isfinite(lost.distance))[-1]
    assert lost.distance_time == lost.trajectory.times[last]
    k = round(lost.distance_time / 2.5)
    np.testing.assert_allclose(lost.distance_to_flow, apart(2.5, k, 2.5 * k)[0], rtol=1e-6)
    assert both.bounds is None  # they are those of linear networks
    assert both.critical_learning_rate is None


@pytest.mark.slow
def test_the_flow_is_alone_without_learning_rates_and_drawn_in_full_beside_descents_that_end_at_once(compare):
    alone, short = compare([], t1=20.0), compare([50.0, 1e30], steps=50, t1=20.0)
    assert alone.descents == ()
    assert [descent.trajectory.outcome for descent in short.descents] == [Outcome.DIVERGED] * 2
    for both in (alone, short):
        risk = np.asarray(both.flow.risk) / float(both.flow.risk[0])
        assert ((risk < 0.9) & (risk > 0.1)).sum() >= 10
    assert len(short.flow.times) > 60


def test_steps_reach_the_time_up_to_rounding():
    for t1, rate, steps in ((0.3, 0.1, 3), (1.1, 0.1, 11), (0.7, 0.1, 7), (1.0, 0.3, 4), (0.05, 0.1, 1), (7, 7, 1)):
        assert StepTimes(flowsim.GradientDescent(rate)).until(t1) == steps
    counts = np.unique(np.geomspace(1, 1e9, 300).astype(int)).tolist()
    for rate in (0.1, 0.07, 0.3, 1e-3, 1 / 3, 2e-5):
        assert [StepTimes(flowsim.GradientDescent(rate)).until(rate * count) for count in counts] == counts


@pytest.mark.slow
def test_descents_make_as_many_steps_as_reach_the_end_of_the_flow(compare):
    both = compare([0.003, 0.3], t1=0.9)
    assert [int(run.trajectory.steps) for run in both.descents] == [300, 3]
    assert [run.distance_time for run in both.descents] == pytest.approx([0.9, 0.9], rel=1e-14)
    for run, eta in zip(both.descents, (0.003, 0.3), strict=True):
        np.testing.assert_allclose(run.distance_to_flow, apart(eta, round(0.9 / eta), 0.9)[0], rtol=1e-5)
    # A time that is no multiple of the rate is passed, and compared before.
    beyond, once = compare([0.3, 2.0], t1=1.0).descents
    assert (int(beyond.trajectory.steps), beyond.distance_time) == (4, pytest.approx(0.9))
    assert (int(once.trajectory.steps), once.distance_time, once.distance_to_flow) == (1, 0.0, 0.0)
    # Where steps are given, the last one that the flow reaches is recorded.
    (descent,) = compare([0.01], t1=12.345, steps=4000).descents
    assert descent.distance_time == pytest.approx(12.34)
    assert int(descent.trajectory.steps) == 4000


@pytest.mark.parametrize(
    ("dtype", "descent"),
    [
        (np.float64, 1 / 49),
        # The sum of the steps in single precision is another than in double.
        pytest.param(np.float32, flowsim.GradientDescent(WarmUp(0.1, time=0.5)), marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:the weights are float32")
def test_descents_whose_steps_follow_from_a_time_end_at_their_time_limit(dtype, descent):
    bowl, start = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2), jnp.asarray([1.0, 1.0], dtype)
    options = {"records": 4, "sharpness": False, "forks": [Fork(2), Fork(2, 0.03)], "t1": 1.0}
    for run in flowsim.compare(start, bowl, [descent], **options).descents:
        assert run.trajectory.outcome is Outcome.TIME_LIMIT
        assert 1 - 1e-6 < float(run.trajectory.time) < 1.2
    for run in flowsim.compare(start, bowl, [descent], steps=12, **options).descents:
        assert run.trajectory.outcome is Outcome.STEP_LIMIT


@pytest.mark.slow
def test_several_optimizers_are_compared_and_told_apart(compare):
    beside = compare([0.05, flowsim.HeavyBall(0.05, momentum=0.5)], steps=12, t1=1.0)
    descent, ball = (run.trajectory for run in beside.descents)
    np.testing.assert_allclose(descent.network["w"], stepped(0.05, 12)[0], rtol=1e-12)
    before = weights = MINIMUM + AWAY
    for _ in range(12):
        before, weights = weights, weights - 0.05 * CURVATURES * (weights - MINIMUM) + 0.5 * (weights - before)
    np.testing.assert_allclose(ball.network["w"], weights, rtol=1e-12)
    rows = [line.split()[:3] for line in str(beside).splitlines()]
    assert [row for row in rows if row[:1] in (["GD"], ["heavy"])] == [["GD", "0.05", "12"], ["heavy", "ball", "0.05"]]
    assert beside.to_dataset()["dynamics"].values.tolist() == ["gradient_flow", "gradient_descent", "heavy_ball"]


@pytest.mark.slow
def test_other_times_and_rates_compile_nothing(compare, compiled):
    compare([0.001, 0.1], t1=1.0)
    before = compiled()
    compare([0.002, 0.05], t1=1.5)
    # The distance to the flow is one small program for each number of records that is new.
    assert compiled() - before <= 2


HEAVY = flowsim.HeavyBall(0.1)
TWICE = {"sharpness": SharpnessAlong(count=2), "diagnostics": {"top_eigenvalues": lambda w: w["w"]}}


@pytest.mark.parametrize(
    ("rates", "options", "error", "message"),
    [
        ([0.1], {"t1": "20"}, ValueError, "t1 must be a time above zero, or None for a flow to its limit, got"),
        ([1e-3], {"t1": 1e9}, ValueError, r"takes 1e\+12 steps to t1 = 1e\+09: .* give a shorter t1, or steps"),
        ([0.1], {"steps": 2.5}, ValueError, "steps must be a whole number, one or more"),
        ([0.1], {"records": True}, ValueError, "records must be a whole number, two or more, got True"),
        ([0.1, 0.2, 0.1], {}, ValueError, "learning_rates: found 0.1 twice"),
        ([HEAVY, flowsim.HeavyBall(0.1, momentum=0.5)], {}, ValueError, "found 0.1 of heavy_ball twice, which"),
        ([0.1, HEAVY], {"models": ["centre"]}, ValueError, "found 0.1 of gradient_descent and of heavy_ball, whose"),
        (HEAVY, {}, ValueError, "must be a list of numbers, as"),
        ([0.1], {"solver": "Tsit5"}, TypeError, r"pass a solver such as diffrax.Tsit5\(\)"),
        ([0.1], {"recods": 30}, TypeError, r"unexpected keyword argument 'recods': write records$"),
        ([0.1], {"ts": [0.5]}, TypeError, "unexpected keyword argument 'ts': expected an option of the flow"),
        ([0.1], {"sharpness": SharpnessAlong(count=4)}, ValueError, "count is 4: expected at most 3"),
        ([0.1], {"sharpness": SharpnessAlong(rtol=1e-16)}, ValueError, "rtol=1e-16 is out of reach"),
        ([0.1], {"sharpness": "off"}, TypeError, "sharpness must be True, False or flowsim.SharpnessAlong"),
        ([0.1], TWICE, ValueError, "'top_eigenvalues' is recorded by sharpness"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_descents(compare, rates, options, error, message, monkeypatch):
    module = sys.modules["flowsim.comparison.execute"]
    monkeypatch.setattr(module, "descend", lambda *_, **__: pytest.fail("a descent has run"))
    with pytest.raises(error, match=message):
        compare(rates, **options)


# -- how closely the sharpness is followed


@pytest.mark.slow
def test_the_sharpness_is_measured_at_as_many_records_as_asked_and_unknown_at_the_others(network, least_squares):
    along = SharpnessAlong(records=12, rtol=1e-6)
    both = flowsim.compare(network, least_squares, [0.3], steps=200, sharpness=along)
    for run in (both.flow, both.descents[0].trajectory):
        values = np.asarray(run.sharpness)
        known = np.flatnonzero(np.isfinite(values))
        assert 10 <= len(known) <= 14 < len(values)
        assert known[-1] == len(values) - 1
        for place in known[::4]:
            there = jax.tree.map(lambda leaf, place=place: leaf[place], run.weights)
            np.testing.assert_allclose(values[place], flowsim.sharpness(there, least_squares), rtol=1e-6)
    drawn = {line.get_label(): line for line in figures(both.to_dataset())["sharpness"].axes[0].lines}
    for label in ("GF", r"$\eta = 0.3$"):  # a curve through what is known
        assert np.isfinite(drawn[label].get_ydata()).all()
        assert 10 <= len(drawn[label].get_ydata()) <= 14


@pytest.mark.slow
def test_several_eigenvalues_are_those_of_the_matrix_and_of_many_weights_the_sharpness_is_measured_at_few_records(
    compare,
):
    both = compare([0.1], steps=50, sharpness=SharpnessAlong(count=3))
    for run in (both.flow, both.descents[0].trajectory):
        eigenvalues = np.asarray(run.diagnostics["top_eigenvalues"])
        np.testing.assert_allclose(eigenvalues, np.tile(CURVATURES, (len(eigenvalues), 1)), rtol=1e-9)
    assert {"top_eigenvalues", "sharpness"} <= figures(both.to_dataset()).keys()
    few = SharpnessAlong(few_weights=2, records_of_many=(12, 20))
    values = np.asarray(compare([0.1], steps=50, sharpness=few).descents[0].trajectory.sharpness)
    assert len(values) > 30
    assert 10 <= np.isfinite(values).sum() <= 14
    np.testing.assert_allclose(values[-1], 1.0, rtol=1e-10)


@pytest.mark.slow
def test_without_the_sharpness_it_is_known_at_the_ends_alone_and_probes_are_measured(compare):
    def first(weights):
        return weights["w"][0]

    last = {"last": lambda weights: weights["w"][2]}
    both = compare([0.1], t1=2.0, sharpness=False, probes=[first], diagnostics=last)
    assert both.flow.sharpness is None
    assert both.descents[0].crossing_time is None
    data = both.to_dataset()
    assert "sharpness" not in figures(data)
    np.testing.assert_allclose(data["final_sharpness"], 1.0, rtol=1e-9)
    for run, end in [(both.flow, flowed(2.0)[0]), (both.descents[0].trajectory, stepped(0.1, 20)[0])]:
        np.testing.assert_allclose(run.diagnostics["first"][-1], end[0], rtol=1e-6)
        np.testing.assert_allclose(run.diagnostics["last"][-1], end[2], rtol=1e-6)


def test_places_are_spread_over_records_and_time_and_taken_in_pairs():
    times = np.concatenate([np.arange(100.0), np.repeat(np.geomspace(110, 1e4, 20), 2) + np.tile([0.0, 1.0], 20)])
    alone, pairs = spread_over(times, 30, pairs=False), spread_over(times, 30, pairs=True)
    for places in (alone, pairs):
        assert (places[0], places[-1]) == (0, len(times) - 1)
        assert len(places) <= 31
        assert (times[places] < 100).sum() >= 8
        assert (times[places] >= 100).sum() >= 8
    steps = np.diff(times[pairs])
    assert (np.abs(steps - 1) < 1e-9).sum() >= 13
    np.testing.assert_array_equal(spread_over(times, 1000, pairs=True), np.arange(len(times)))
    np.testing.assert_array_equal(spread_over(times, 0, pairs=True), [len(times) - 1])
    np.testing.assert_array_equal(spread_over(np.zeros(1), 5, pairs=True), [0])


def test_of_more_than_2048_weights_the_sharpness_is_followed_at_some_48_records_and_no_nonsense_is_asked_for():
    assert SharpnessAlong().expected_records(2048, 1000) == 1000
    assert SharpnessAlong().expected_records(2049, 1000) == 48
    assert SharpnessAlong(records=60).expected_records(2049, 1000) == 60
    assert SharpnessAlong(records=0).expected_records(1, 1000) == 1
    for name, value in (("records", -1), ("count", 0), ("rtol", "1e-3")):
        with pytest.raises(ValueError, match=f"{name} is {value!r}: expected"):
            SharpnessAlong(**{name: value})


# -- in a scenario

SCENARIO = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 2, scale: 0.5}
flow: {t1: 0.35}
descent: {learning_rates: [0.05, 0.1]}
sharpness: {records: 6, rtol: 1.0e-3, count: 2}
record: [distance_travelled]
"""


@pytest.mark.slow
def test_descents_of_a_scenario_go_as_far_as_the_flow_and_have_its_probes(write):
    path = write(SCENARIO)
    scenario = scenarios.read_scenario(path)
    both = scenarios.run(scenario, *scenarios.build(scenario, path.parent))
    assert [int(one.trajectory.steps) for one in both.descents] == [7, 4]
    assert [one.distance_time for one in both.descents] == pytest.approx([0.35, 0.3])
    for one in (both.flow, *(descent.trajectory for descent in both.descents)):
        assert "distance_travelled" in one.diagnostics
        first, second = one.diagnostics["top_eigenvalues"][-1]
        assert float(first) == pytest.approx(float(one.sharpness[-1]), rel=1e-9)
        assert second < first
    assert "Distance taken at t = 0.3 for η = 0.1" in " ".join(str(both).split())


@pytest.mark.slow
def test_a_scenario_that_cannot_be_compared_is_refused_in_one_line(write, tmp_path, capsys):
    for old, new, message in (
        ("count: 2", "count: 1000", "sharpness: count is 1000: expected at most"),
        ("[distance_travelled]", "[top_eigenvalues]", "sharpness.count: found 2 beside a probe that is called"),
        ("t1: 0.35", "t1: 1.0e+8", "flow.t1: found 3000000000 steps over all learning rates"),
    ):
        assert old in SCENARIO
        assert cli.main([str(write(SCENARIO.replace(old, new))), "--out", str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_who_interrupts_a_comparison_has_the_runs_that_had_ended(compare):
    def interrupt(progress):
        if str(progress).startswith("gradient flow"):
            raise KeyboardInterrupt

    with pytest.raises(flowsim.Interrupted, match="2 of the runs had ended") as stopped:
        compare([0.01, 0.5], steps=20, t1=10.0, progress=interrupt)
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert [int(run.steps) for run in stopped.value.finished] == [20, 20]

    def at_once(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        compare([0.01], steps=20, t1=10.0, progress=at_once)
    assert not isinstance(stopped.value, flowsim.Interrupted)


def test_a_model_of_descent_in_place_of_the_gradient_flow_is_no_model_beside_it():
    start, valley = jnp.array([2.0, 0.3]), flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2)
    both = flowsim.compare(start, valley, [0.1], model=flowsim.EdgeFlow(0.1), t1=1.0, sharpness=False)
    assert both.models == ()
    assert both.flow.dynamics == "edge"
