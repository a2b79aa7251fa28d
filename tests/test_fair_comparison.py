"""Flow and descents are compared at equal times, for as long as asked, with a sharpness as closely as asked."""

import json
import shutil
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
import yaml

import flowsim
from flowsim import Outcome, SharpnessAlong, cli
from flowsim.comparison.sharpness_along import spread_over
from flowsim.dynamics import steps_until
from flowsim.report import figures

CURVATURES = np.array([1.0, 0.3, 0.01])
MINIMUM = np.array([1.0, 1.0, -1.0])
AWAY = np.array([1.0, -2.0, 3.0])


def bowl(weights):
    return jnp.sum(jnp.asarray(CURVATURES) * (weights["w"] - MINIMUM) ** 2) / 2


def flowed(t):
    return MINIMUM + AWAY * np.exp(-CURVATURES * t)


def stepped(eta, k):
    return MINIMUM + AWAY * (1 - eta * CURVATURES) ** k


@pytest.fixture(scope="module")
def compare():
    def compare(rates, **options):
        return flowsim.compare(
            {"w": jnp.asarray(MINIMUM + AWAY)}, flowsim.Risk(bowl), rates, **{"rtol": 1e-10, "records": 40} | options
        )

    return compare


@pytest.fixture(scope="module")
def limited(compare):
    """A flow to t = 20, one descent that ends long before it, one that goes on behind it, and one that diverges."""
    return compare([0.01, 0.5, 2.5], steps=200, t1=20.0)


class TestDistance:
    @pytest.mark.slow
    def test_it_is_taken_at_the_end_of_a_descent_that_ends_before_the_flow(self, limited):
        early = limited.descents[0]
        assert early.distance_time == pytest.approx(2.0, rel=1e-14)
        expected = np.linalg.norm(stepped(0.01, 200) - flowed(2.0))
        np.testing.assert_allclose(early.distance_to_flow, expected, rtol=1e-6)
        assert early.distance_to_flow < 1e-2 < np.linalg.norm(stepped(0.01, 200) - flowed(20.0))

    @pytest.mark.slow
    def test_it_is_taken_at_the_end_of_a_flow_that_ends_before_a_descent(self, limited):
        late = limited.descents[1]
        assert limited.flow.outcome is Outcome.TIME_LIMIT
        assert (float(late.trajectory.time), late.distance_time) == (100.0, 20.0)
        np.testing.assert_allclose(late.distance_to_flow, np.linalg.norm(stepped(0.5, 40) - flowed(20.0)), rtol=1e-6)
        times = np.asarray(late.trajectory.times)
        assert np.isfinite(late.distance[times <= 20]).all()
        assert np.isnan(late.distance[times > 20]).all()

    @pytest.mark.slow
    def test_a_descent_that_diverges_is_compared_at_its_last_finite_record(self, limited):
        lost = limited.descents[2]
        assert lost.trajectory.outcome is Outcome.DIVERGED
        last = np.flatnonzero(np.isfinite(lost.distance))[-1]
        assert lost.distance_time == lost.trajectory.times[last]
        k = round(lost.distance_time / 2.5)
        expected = np.linalg.norm(stepped(2.5, k) - flowed(2.5 * k))
        np.testing.assert_allclose(lost.distance_to_flow, expected, rtol=1e-6)

    @pytest.mark.slow
    def test_a_flow_at_its_limit_stays_there(self, compare):
        both = compare([1.99], steps=4000)
        (descent,) = both.descents
        assert both.flow.outcome is Outcome.CONVERGED
        assert descent.trajectory.time > 1.5 * both.flow.time
        assert descent.distance_time == float(descent.trajectory.time)
        end, limit = np.asarray(descent.trajectory.network["w"]), np.asarray(both.flow.network["w"])
        np.testing.assert_allclose(descent.distance_to_flow, np.linalg.norm(end - limit), rtol=1e-12)

    @pytest.mark.slow
    def test_a_flow_that_stops_at_a_risk_does_not_stay_there(self, compare):
        both = compare([0.5], steps=400, stopping=flowsim.Stopping(gradient_norm=None, risk=0.01))
        (descent,) = both.descents
        assert both.flow.outcome is Outcome.RISK_REACHED
        assert 0 < descent.distance_time <= float(both.flow.time)
        k = round(descent.distance_time / 0.5)
        expected = np.linalg.norm(stepped(0.5, k) - flowed(0.5 * k))
        np.testing.assert_allclose(descent.distance_to_flow, expected, rtol=1e-5)

    @pytest.mark.slow
    def test_a_network_by_hand_in_numpy_beside_a_flow_recorded_at_the_same_times(self):
        X = np.random.default_rng(0).standard_normal((20, 3))
        y = X @ np.array([1.0, -1.0, 0.5])
        network = flowsim.DeepLinear.gaussian(widths=[3, 4, 1], scale=0.5, key=jax.random.key(2))
        problem = flowsim.EmpiricalRisk(X, y)
        both = flowsim.compare(network, problem, [0.03], t1=3.0, records=40, rtol=1e-9)
        first, second = (np.asarray(stack[0]) for stack in network.stacks)
        for _ in range(100):
            hidden = X @ first.T
            error = 2 * (hidden @ second.T - y[:, None]) / len(X)  # the risk is the mean of squares
            first, second = first - 0.03 * second.T @ error.T @ X, second - 0.03 * error.T @ hidden
        flow = flowsim.integrate(network, problem, ts=[3.0], t1=3.0, weights=True, rtol=1e-9)
        theirs = [np.asarray(stack[-1, 0]) for stack in flow.weights.stacks]
        expected = np.sqrt(np.sum((first - theirs[0]) ** 2) + np.sum((second - theirs[1]) ** 2))
        (descent,) = both.descents
        assert (int(descent.trajectory.steps), descent.distance_time) == (100, pytest.approx(3.0, rel=1e-14))
        np.testing.assert_allclose(descent.distance_to_flow, expected, rtol=1e-6)


class TestTime:
    @pytest.mark.parametrize(
        ("t1", "rate", "steps"),
        [(0.3, 0.1, 3), (1.1, 0.1, 11), (0.7, 0.1, 7), (1.0, 0.3, 4), (0.05, 0.1, 1), (20, 0.01, 2000), (7, 7, 1)],
    )
    def test_steps_reach_the_time_up_to_rounding(self, t1, rate, steps):
        assert steps_until(t1, rate) == steps

    def test_whole_multiples_of_a_rate_take_as_many_steps(self):
        counts = np.unique(np.geomspace(1, 1e9, 300).astype(int)).tolist()
        for rate in (0.1, 0.07, 0.3, 1e-3, 1 / 3, 2e-5):
            assert [steps_until(rate * count, rate) for count in counts] == counts

    @pytest.mark.slow
    def test_rates_far_apart_end_at_one_time(self, compare):
        both = compare([0.003, 0.3], t1=0.9)
        assert [int(run.trajectory.steps) for run in both.descents] == [300, 3]
        assert [run.distance_time for run in both.descents] == pytest.approx([0.9, 0.9], rel=1e-14)
        for run, eta in zip(both.descents, (0.003, 0.3), strict=True):
            expected = np.linalg.norm(stepped(eta, round(0.9 / eta)) - flowed(0.9))
            np.testing.assert_allclose(run.distance_to_flow, expected, rtol=1e-5)

    @pytest.mark.slow
    def test_a_time_that_is_no_multiple_of_the_rate_is_passed_and_compared_before(self, compare):
        (descent,) = compare([0.3], t1=1.0).descents
        assert (int(descent.trajectory.steps), descent.distance_time) == (4, pytest.approx(0.9))

    @pytest.mark.slow
    def test_a_time_below_the_rate_takes_one_step(self, compare):
        (descent,) = compare([0.5], t1=0.2).descents
        assert (int(descent.trajectory.steps), descent.distance_time, descent.distance_to_flow) == (1, 0.0, 0.0)

    @pytest.mark.slow
    def test_where_steps_are_given_the_last_one_that_the_flow_reaches_is_recorded(self, compare):
        (descent,) = compare([0.01], t1=12.345, steps=4000).descents
        assert descent.distance_time == pytest.approx(12.34)
        assert int(descent.trajectory.steps) == 4000

    @pytest.mark.slow
    def test_no_end_and_no_steps_are_four_thousand_steps(self, compare):
        both = compare([1e-3], t1=float("inf"))
        assert int(both.descents[0].trajectory.steps) == 4000
        assert both.flow.converged

    @pytest.mark.slow
    def test_other_times_and_rates_compile_nothing_anew(self, compare, compiled):
        compare([0.001, 0.1], t1=1.0)
        before = compiled()
        compare([0.002, 0.05], t1=1.5)
        # The distance to the flow is one small program for each number of records that is new.
        assert compiled() - before <= 2

    @pytest.mark.parametrize("t1", [0, -1.0, float("nan"), "20", True, [1.0]])
    @pytest.mark.slow
    def test_a_time_that_is_none_is_refused(self, compare, t1):
        with pytest.raises(ValueError, match="t1 must be a time above zero, or None for a flow to its limit, got"):
            compare([0.1], t1=t1)

    @pytest.mark.slow
    def test_more_steps_than_can_be_counted_are_refused(self, compare):
        with pytest.raises(ValueError, match=r"takes 1e\+12 steps to t1 = 1e\+09: .* give a shorter t1, or steps"):
            compare([1e-3], t1=1e9)

    @pytest.mark.parametrize("rate", [0.0, -0.1, float("nan"), float("inf")])
    @pytest.mark.slow
    def test_a_rate_that_is_none_is_refused_before_it_divides(self, compare, rate):
        with pytest.raises(ValueError, match="learning_rate must be a positive finite number"):
            compare([rate], t1=1.0)

    @pytest.mark.parametrize("steps", [0, 2.5, "many"])
    @pytest.mark.slow
    def test_steps_that_are_none_are_refused(self, compare, steps):
        with pytest.raises(ValueError, match="steps must be a whole number, one or more"):
            compare([0.1], steps=steps)

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"rtol": -1}, ValueError, "expected 0 < rtol < 1"),
            ({"atol": "1e-3"}, ValueError, "atol must be a number, got '1e-3'"),
            ({"max_steps": 0}, ValueError, "max_steps must be a whole number, one or more"),
            ({"solver": "Tsit5"}, TypeError, r"pass a solver such as diffrax.Tsit5\(\)"),
            ({"model": "edge"}, TypeError, r"model must be a flow, such as flowsim.GradientFlow\(\)"),
            ({"rtoll": 3}, TypeError, r"compare\(\) got an unexpected keyword argument 'rtoll': write rtol$"),
            ({"recods": 30}, TypeError, r"compare\(\) got an unexpected keyword argument 'recods': write records$"),
            ({"ts": [0.5]}, TypeError, "unexpected keyword argument 'ts': expected an option of the flow, one of mode"),
        ],
    )
    @pytest.mark.slow
    def test_an_option_of_the_flow_is_refused_before_the_descents(self, compare, options, error, message, monkeypatch):
        module = sys.modules["flowsim.comparison.compare"]
        monkeypatch.setattr(module, "descend", lambda *_, **__: pytest.fail("a descent has run"))
        with pytest.raises(error, match=message):
            compare([0.1], t1=1.0, **options)

    @pytest.mark.slow
    def test_a_rate_that_stands_there_twice_is_refused(self, compare):
        with pytest.raises(ValueError, match=r"learning_rates: found 0.1 twice; expected no repetitions; write"):
            compare([0.1, 0.2, 0.1], t1=1.0)

    @pytest.mark.slow
    def test_a_number_of_records_may_be_one_of_numpy_s(self, compare):
        short, plain = (compare([0.1], steps=20, t1=1.0, records=kind(5)) for kind in (np.int64, int))
        assert short.flow.times.tolist() == plain.flow.times.tolist()
        with pytest.raises(ValueError, match="records must be a whole number, two or more, got True"):
            compare([0.1], records=True)


class TestSharpness:
    @pytest.mark.slow
    def test_it_is_measured_at_as_many_records_as_asked_and_unknown_at_the_others(self, mlp, problem):
        both = flowsim.compare(mlp, problem, [0.08], steps=200, sharpness=SharpnessAlong(records=12, rtol=1e-6))
        for run in (both.flow, both.descents[0].trajectory):
            values = np.asarray(run.sharpness)
            known = np.flatnonzero(np.isfinite(values))
            assert 10 <= len(known) <= 14 < len(values)
            assert known[-1] == len(values) - 1
            for place in known[::4]:
                there = jax.tree.map(lambda leaf, place=place: leaf[place], run.weights)
                np.testing.assert_allclose(values[place], flowsim.sharpness(there, problem), rtol=1e-6)
            np.testing.assert_allclose(values[-1], flowsim.sharpness(run.network, problem), rtol=1e-10)

    @pytest.mark.slow
    def test_it_is_added_to_any_run_that_kept_its_weights(self, mlp, problem):
        options = {"t1": 2.0, "ts": np.linspace(0, 2, 5)}
        kept = flowsim.integrate(mlp, problem, weights=True, **options)
        measured = flowsim.integrate(mlp, problem, sharpness=True, **options)
        found = SharpnessAlong(rtol=1e-8).added_to(kept)
        np.testing.assert_allclose(found.sharpness, measured.sharpness, rtol=1e-7)
        assert kept.sharpness is None
        with pytest.raises(ValueError, match="the run did not keep its weights: pass weights=True"):
            SharpnessAlong().added_to(measured)

    @pytest.mark.slow
    def test_several_eigenvalues_are_those_of_the_matrix(self, compare):
        both = compare([0.1], steps=50, sharpness=SharpnessAlong(count=3))
        for run in (both.flow, both.descents[0].trajectory):
            found = np.asarray(run.diagnostics["top_eigenvalues"])
            np.testing.assert_allclose(found, np.tile(CURVATURES, (len(found), 1)), rtol=1e-9)
        data = both.to_dataset()
        assert data["top_eigenvalues"].attrs["symbol"]
        assert {"top_eigenvalues", "sharpness"} <= figures(data).keys()

    @pytest.mark.slow
    def test_off_it_is_known_at_the_ends_alone(self, compare):
        both = compare([0.1], steps=50, sharpness=False)
        data = both.to_dataset()
        assert both.flow.sharpness is None
        assert both.descents[0].crossing_time is None
        assert "sharpness" not in figures(data)
        np.testing.assert_allclose(data["final_sharpness"], 1.0, rtol=1e-9)

    @pytest.mark.slow
    def test_of_many_weights_few_records_are_measured(self):
        X = np.random.default_rng(0).standard_normal((10, 50))
        network = flowsim.DeepLinear.gaussian(widths=[50, 50, 1], scale=0.3, key=jax.random.key(0))
        both = flowsim.compare(network, flowsim.LinearRegression(X, X[:, 0]), [1e-4], steps=60, t1=6e-3)
        (run,) = (descent.trajectory for descent in both.descents)
        values = np.asarray(run.sharpness)
        assert (len(values), np.isfinite(values).sum()) == (61, pytest.approx(32, abs=2))
        np.testing.assert_allclose(values[-1], flowsim.sharpness(run.network, run.problem), rtol=1e-10)

    def test_places_are_spread_over_records_and_time_and_taken_in_pairs(self):
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

    @pytest.mark.slow
    def test_a_figure_draws_a_curve_through_what_is_known(self, compare):
        data = compare([0.1], steps=200, sharpness=SharpnessAlong(records=8)).to_dataset()
        drawn = {line.get_label(): line for line in figures(data)["sharpness"].axes[0].lines}
        for label in ("GF", r"$\eta = 0.1$"):
            assert np.isfinite(drawn[label].get_ydata()).all()
            assert 6 <= len(drawn[label].get_ydata()) <= 10
        plt.close("all")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"records": -1}, "records is -1: expected a whole number, 0 for the end alone, or None"),
            ({"records": 2.5}, "records is 2.5"),
            ({"count": 0}, "count is 0: expected how many eigenvalues to follow, 1 or more"),
            ({"rtol": 2}, "rtol is 2: expected a number between 0 and 1"),
            ({"rtol": "1e-3"}, "rtol is '1e-3'"),
        ],
    )
    def test_options_that_cannot_be_are_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            SharpnessAlong(**options)

    @pytest.mark.slow
    def test_what_does_not_go_with_the_network_is_refused_before_it_runs(self, compare):
        with pytest.raises(ValueError, match="count is 4: expected at most 3, the number of weights"):
            compare([0.1], sharpness=SharpnessAlong(count=4))
        with pytest.raises(ValueError, match="rtol=1e-16 is out of reach"):
            compare([0.1], sharpness=SharpnessAlong(rtol=1e-16))
        with pytest.raises(TypeError, match=r"sharpness must be True, False or flowsim.SharpnessAlong\(.* got 'off'"):
            compare([0.1], sharpness="off")
        with pytest.raises(ValueError, match="'top_eigenvalues' is recorded by sharpness"):
            compare([0.1], sharpness=SharpnessAlong(count=2), diagnostics={"top_eigenvalues": lambda w: w["w"]})


@pytest.mark.slow
def test_probes_and_diagnostics_are_measured_along_every_run(compare):
    def first(weights):
        return weights["w"][0]

    both = compare([0.1], t1=2.0, probes=[first], diagnostics={"last": lambda weights: weights["w"][2]})
    for run, end in [(both.flow, flowed(2.0)), (both.descents[0].trajectory, stepped(0.1, 20))]:
        np.testing.assert_allclose(run.diagnostics["first"][-1], end[0], rtol=1e-6)
        np.testing.assert_allclose(run.diagnostics["last"][-1], end[2], rtol=1e-6)


SCENARIO = """
data: {kind: digits, classes: [0, 1], samples: 30, test_samples: 20}
network: {kind: mlp, depth: 2, width: 3, scale: 0.5, activation: tanh}
flow: {t1: 0.35}
descent: {learning_rates: [0.05, 0.1]}
sharpness: {records: 6, rtol: 1.0e-3, count: 2}
record: [test_accuracy]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fair")
    (folder / "fair.yaml").write_text(SCENARIO)
    assert cli.main([str(folder / "fair.yaml"), "--out", str(folder / "out")]) == 0
    return folder / "out" / "fair"


@pytest.mark.slow
class TestScenario:
    def test_descents_go_as_far_as_the_flow_and_have_its_probes(self, results):
        said = json.loads((results / "summary.json").read_text())
        assert [run["steps"] for run in said["descent"]] == [7, 4]
        assert [run["distance_time"] for run in said["descent"]] == pytest.approx([0.35, 0.3])
        for run in (said["flow"], *said["descent"]):
            assert 0 <= run["probes"]["test_accuracy"] <= 1
            first, second = run["probes"]["top_eigenvalues"]
            assert first == pytest.approx(run["sharpness"], rel=1e-9)
            assert second < first
        figures = {path.name for path in (results / "figures").glob("*.png")}
        assert {"test_accuracy.png", "top_eigenvalues.png", "sharpness.png", "distance.png"} <= figures
        stored = yaml.safe_load((results / "scenario.yaml").read_text())["scenario"]
        assert stored["descent"]["steps"] is None
        assert stored["sharpness"] == {"records": 6, "rtol": 1e-3, "count": 2}

    def test_the_data_set_says_what_the_distance_is(self, results):
        data = flowsim.open_results(results).trajectories
        assert "last time that both reached" in data["distance_to_flow"].attrs["long_name"]
        assert "last time" in data["distance_time"].attrs["long_name"]

    def test_older_results_without_the_time_of_the_distance_are_refused(self, results, tmp_path, capsys):
        """They hold the distance of the ends under the same name."""
        shutil.copytree(results, tmp_path / "old")
        with xarray.open_dataset(results / "trajectories.nc") as stored:
            old = stored.load().drop_vars("distance_time")
        old.to_netcdf(tmp_path / "old" / "trajectories.nc", engine="h5netcdf")
        assert cli.main(["report", str(tmp_path / "old")]) == 2
        assert "there is no distance_time" in capsys.readouterr().err

    def test_the_table_says_where_the_distance_is_not_that_of_the_end(self, results, capsys):
        assert cli.main(["report", str(results)]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "to the" in said
        assert "Distance taken at t = 0.3 for η = 0.1" in said

    @pytest.mark.parametrize("word", ["false", "true"])
    def test_false_switches_the_sharpness_along_the_way_off(self, tmp_path, word):
        (tmp_path / "off.yaml").write_text(SCENARIO.replace("{records: 6, rtol: 1.0e-3, count: 2}", word))
        cli.main([str(tmp_path / "off.yaml"), "--out", str(tmp_path)])
        assert (tmp_path / "off" / "figures" / "sharpness.png").exists() == (word == "true")
        data = flowsim.open_results(tmp_path / "off").trajectories
        assert np.isfinite(data["final_sharpness"]).all()

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("count: 2", "count: 1000", "sharpness: count is 1000: expected at most"),
            ("rtol: 1.0e-3", "rtol: 1.0e-20", "sharpness.rtol: found 1e-20; expected at least 2.2e-15"),
            ("records: 6", "records: many", "sharpness.records"),
            (
                "{records: 6, rtol: 1.0e-3, count: 2}",
                "{every: 3}",
                "found an unknown key; expected one of records, rtol",
            ),
            ("[test_accuracy]", "[top_eigenvalues]", "sharpness.count: found 2 beside a probe that is called"),
            ("t1: 0.35", "t1: 0", "flow.t1"),
            ("t1: 0.35", "t1: 1.0e+8", "flow.t1: found 3000000000 steps over all learning rates"),
            ("t1: 0.35", "t1: 1.0e+20", "flow.t1: found a descent in steps of time 0.05 takes 2e+21 steps"),
        ],
    )
    def test_what_cannot_be_is_refused_in_one_line(self, tmp_path, capsys, old, new, message):
        assert old in SCENARIO
        (tmp_path / "bad.yaml").write_text(SCENARIO.replace(old, new))
        assert cli.main([str(tmp_path / "bad.yaml"), "--out", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "bad").exists()


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
