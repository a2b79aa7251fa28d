"""What a sweep computes: every cell is what the library computes for it alone, whatever runs beside it."""

import errno
import json
import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest

import flowsim
from flowsim import Outcome, cli
from flowsim.columns import FAILED, NOT_ASKED, CriticalStatus
from flowsim.kinds.seeds import start_key
from flowsim.report.sweeps import sweep_summary, warnings_of_sweep
from flowsim.report.sweeps.runs import progress_measure
from flowsim.results import StoreError
from flowsim.scenarios import Scenario, environment, read_scenario
from flowsim.scenarios.points import points
from flowsim.scenarios.runner import build_network, read_data
from flowsim.scenarios.sweep_settings import CriticalSettings
from flowsim.sweeps import BlockStore, compute, critical, default_jobs, run_sweep, scenario_blocks
from flowsim.sweeps.dataset import axis_names
from flowsim.sweeps.workers import InProcess

# Not by its name, which is that of a function too.
WORKERS = import_module("flowsim.sweeps.workers")
DATA = "data: {kind: gaussian, samples: 20, features: 3, test_samples: 7}"
LINEAR = "network: {kind: mlp, depth: 1, scale: 0.5}"
# Without the flow, whose program takes the longest to compile.
DESCENTS = """
sweep:
  over: {network.scale: [0.4, 0.6], data.noise: [0.5, 1.0]}
  repetitions: 2
  flow: false
  critical: {lowest: 0.1, highest: 2.0, steps: 40, excess_risk: 1.0e-2, precision: 0.02}
  descent:
    - {learning_rates: [0.1, 0.05], steps: 20}
    - {learning_rates: [5.0], steps: 30, repetitions: 3}
"""
CRITICAL = """
sweep:
  repetitions: 5
  flow: false
  critical: {lowest: 0.01, highest: 2.0, steps: 400, excess_risk: 1.0e-3, precision: 0.02}
"""


def scenario(folder, sweep=DESCENTS, data=DATA, name="tiny", network=LINEAR):
    path = folder / f"{name}.yaml"
    path.write_text(f"seed: 3\n{data}\n{network}\n{sweep}")
    return read_scenario(path)


def computed(folder, *sweep, **options):
    return run_sweep(scenario(folder, *sweep, **options), folder, BlockStore(folder / "blocks"), InProcess())


def swept(folder, *sweep, **options):
    result = computed(folder, *sweep, **options)
    assert result.failures == ()
    return result.dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("linear")


@pytest.fixture(scope="module")
def linear(folder):
    """Descents of a linear network, in `folder`."""
    return swept(folder)


def of_descent(dataset, *rates):
    """Return the runs of gradient descent, of some learning rates or of all."""
    runs = dataset.isel(run=dataset["dynamics"].values == "gradient_descent")
    return runs.isel(run=np.isin(runs["learning_rate"], rates)) if rates else runs


def cells(dataset):
    """Yield the place of every start, its first regressor, the limit and the Hessian of its risk, and its data."""
    for point in points(Scenario.model_validate(json.loads(dataset.attrs["scenario"]))):
        data = read_data(point.scenario, Path())
        X, y = data.training
        for repetition in range(dataset.sizes["repetition"]):
            key = start_key(3, point.name, repetition)
            (layer,) = build_network(point.scenario, data.inputs, data.outputs, key).weights
            limit = np.linalg.lstsq(X, y, rcond=None)[0]
            yield (*point.index, repetition), (np.asarray(layer)[0], limit, 2 * X.T @ X / len(X)), data


def descended(first, limit, hessian, rate, steps):
    """The error w − w* is multiplied by 1 − 2ηXᵀX/n in every step."""
    return limit + np.linalg.matrix_power(np.eye(3) - rate * hessian, steps) @ (first - limit)


def risk(weights, samples):
    return np.mean((samples[1] - samples[0] @ weights) ** 2)


def count_computed(monkeypatch):
    """Return a list that grows by every block that this process computes."""
    done = []
    really = compute.compute
    monkeypatch.setattr(WORKERS, "compute", lambda b, e: (done.append(b), really(b, e))[1])
    return done


def test_a_range_stands_for_the_numbers_between_its_ends(tmp_path):
    sweep = """
sweep:
  over: {network.scale: {start: 0.2, stop: 0.6, count: 3}, data.noise: {start: 1, stop: 100, count: 3, spacing: log}}
  descent: [{learning_rates: {start: 0.001, stop: 0.1, count: 3, spacing: log}, steps: 5}]
"""
    ranges = scenario(tmp_path, sweep).sweep
    np.testing.assert_allclose(ranges.over["network.scale"], [0.2, 0.4, 0.6], rtol=1e-15)
    np.testing.assert_allclose(ranges.over["data.noise"], [1, 10, 100], rtol=1e-15)
    np.testing.assert_allclose(ranges.descent[0].learning_rates, [1e-3, 1e-2, 1e-1], rtol=1e-14)


def test_the_grid_is_every_combination_of_the_axes_the_last_one_fastest_named_by_their_values(tmp_path):
    grid = list(points(scenario(tmp_path)))
    assert [point.index for point in grid] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    names = ["data.noise=0.5, network.scale=0.4", "data.noise=1.0, network.scale=0.4"]
    assert [point.name for point in grid][:2] == names
    assert (grid[2].scenario.network.scale, grid[2].scenario.data.noise) == (0.6, 0.5)
    for value in ("1", "1.0"):  # however it is written
        (point,) = points(scenario(tmp_path, f"sweep: {{over: {{network.scale: [{value}]}}}}"))
        assert point.name == "network.scale=1.0"


def test_axes_are_named_by_their_last_part_and_by_all_of_it_where_two_agree(tmp_path):
    def names(axes):
        return list(axis_names(scenario(tmp_path, f"sweep: {{over: {{{axes}}}}}")).values())

    criteria = "network.scale: [1], flow.gradient_norm: [1.0e-6], flow.excess_risk: [1.0e-6]"
    assert names(criteria) == ["scale", "gradient_norm", "excess_risk"]
    assert names("network.kind: [mlp], seed: [1, 2], precision: [float32]") == ["kind", "seed", "precision"]


def test_a_data_set_is_labelled_by_grid_repetition_and_run_and_says_what_was_not_asked(linear):
    assert dict(linear.sizes) == {"scale": 2, "noise": 2, "repetition": 3, "run": 3}
    np.testing.assert_array_equal(linear.scale, [0.4, 0.6])
    np.testing.assert_array_equal(linear.learning_rate, [0.05, 0.1, 5.0])  # sorted, as curves are drawn
    np.testing.assert_array_equal(linear.steps_asked, [20, 20, 30])
    assert linear.initial_risk.dims == ("scale", "noise", "repetition")
    assert linear.final_risk.dims == linear.outcome.dims == ("scale", "noise", "repetition", "run")
    for name in linear.variables:
        assert linear[name].attrs["long_name"], name
        assert linear[name].attrs["units"] == "1", name
    flags = linear.outcome.attrs
    assert dict(zip(flags["flag_values"].tolist(), flags["flag_meanings"].split(), strict=True))[-1] == "NOT_ASKED"
    asked = linear.outcome != NOT_ASKED
    assert not asked.sel(repetition=2).isel(run=[0, 1]).any()
    assert asked.sel(repetition=[0, 1]).all()
    assert asked.isel(run=2).all()


def test_starts_and_descents_of_a_linear_network_are_those_of_the_closed_form(linear):
    starts = linear.initial_risk.values.ravel()
    assert len(np.unique(starts)) == starts.size
    for place, start, data in cells(linear):
        at = linear.isel(scale=place[0], noise=place[1], repetition=place[2])
        first, limit, hessian = start
        np.testing.assert_allclose(at.initial_risk, risk(first, data.training), rtol=1e-12)
        np.testing.assert_allclose(at.initial_test_risk, risk(first, data.held_out), rtol=1e-12)
        np.testing.assert_allclose(at.initial_sharpness, np.linalg.eigvalsh(hessian)[-1], rtol=1e-10)
        np.testing.assert_allclose(at.initial_squared_distance, np.sum((first - limit) ** 2), rtol=1e-10)
        assert at.outcome[2] == Outcome.DIVERGED
        assert np.isnan(at.final_sharpness[2])
        for run, rate in enumerate([0.05, 0.1] if place[2] < 2 else []):
            here, weights = at.isel(run=run), descended(*start, rate, 20)
            assert (here.outcome, here.steps) == (Outcome.STEP_LIMIT, 20)
            np.testing.assert_allclose(here.end_time, 20 * rate)
            np.testing.assert_allclose(here.final_risk, risk(weights, data.training), rtol=1e-10)
            np.testing.assert_allclose(here.final_test_risk, risk(weights, data.held_out), rtol=1e-10)
            np.testing.assert_allclose(here.final_sharpness, at.initial_sharpness, rtol=1e-10)
            assert np.isnan(here.distance_to_flow)
        lower, upper = (float(at[f"critical_learning_rate_{side}"]) for side in ("lower", "upper"))
        assert 0.1 < lower < upper <= 1.02 * (1 + 1e-12) * lower
        least = risk(limit, data.training) + 1e-2
        assert (
            risk(descended(*start, lower, 40), data.training)
            <= least
            < risk(descended(*start, upper, 40), data.training)
        )


@pytest.mark.slow
def test_flows_end_at_least_squares_and_descents_are_measured_from_there(tmp_path):
    descents = "[{learning_rates: [0.05], steps: 20}, {learning_rates: [0.1], steps: 4000}]"
    dataset = swept(tmp_path, f"sweep: {{repetitions: 2, descent: {descents}}}")
    for (repetition,), start, data in cells(dataset):
        limit = start[1]
        flow, early, late = (dataset.isel(repetition=repetition, run=run) for run in range(3))
        assert [flow.outcome, early.outcome, late.outcome] == [Outcome.CONVERGED, Outcome.STEP_LIMIT, Outcome.CONVERGED]
        assert max(flow.final_gradient_norm, late.final_gradient_norm) <= 1e-8
        np.testing.assert_allclose(flow.final_risk, risk(limit, data.training), rtol=1e-12)
        np.testing.assert_allclose(flow.final_test_risk, risk(limit, data.held_out), rtol=1e-6)
        np.testing.assert_allclose(flow.final_sharpness, flow.initial_sharpness, rtol=1e-10)
        assert np.isnan(flow.distance_to_flow)
        distance = np.linalg.norm(descended(*start, 0.05, 20) - limit)
        np.testing.assert_allclose(early.distance_to_flow, distance, rtol=1e-6)
        assert late.distance_to_flow < 1e-6


@pytest.mark.slow
def test_a_descent_that_is_still_at_the_saddle_has_not_converged(tmp_path):
    content = "sweep: {flow: false, descent: [{learning_rates: [0.1], steps: 5}]}"
    descent = swept(tmp_path, content, network="network: {kind: mlp, depth: 3, scale: 1.0e-6}")
    assert descent.final_gradient_norm.item() <= 1e-8
    assert descent.outcome.item() == Outcome.STEP_LIMIT


def test_held_out_samples_are_scaled_like_the_others(tmp_path):
    # Without noise all labels are those of w*, whose norm is one: also those that training does not see.
    data = read_data(scenario(tmp_path, "", DATA.replace("test", "noise: 0, test")), tmp_path)
    regressor = np.linalg.lstsq(*data.training, rcond=None)[0]
    np.testing.assert_allclose(np.linalg.norm(regressor), 1, rtol=1e-12)
    np.testing.assert_allclose(data.held_out[0] @ regressor, data.held_out[1], rtol=1e-10)


def test_the_key_of_a_start_follows_from_seed_point_and_repetition_alone():
    every = [(seed, name, repetition) for seed in (0, 1) for name in ("a", "b") for repetition in range(3)]
    keys = [tuple(np.asarray(jax.random.key_data(start_key(*coordinates)))) for coordinates in every]
    assert len(set(keys)) == len(every)
    np.testing.assert_array_equal(jax.random.key_data(start_key(1, "b", 2)), keys[-1])


def test_the_distance_to_one_of_many_optimal_regressors_is_no_measure_of_progress(linear):
    assert not linear["covariance_nullity"].any()  # 20 samples of 3 features
    assert progress_measure(linear) == "squared_distance"
    assert progress_measure(linear.assign(covariance_nullity=linear["covariance_nullity"] + 1)) == "excess_risk"


@pytest.mark.usefixtures("linear")
def test_sweeps_that_share_cells_share_their_blocks(folder, monkeypatch):
    done = count_computed(monkeypatch)
    beside = "theory: {subjects: [minimizers]}\ndescent: {learning_rates: [0.3]}"
    swept(folder, beside + DESCENTS, name="other")
    assert done == []
    swept(folder, DESCENTS.replace("[0.5, 1.0]", "[1.0, 2.0]"), name="another")
    assert [entry.recipe.scenario.data.noise for entry in done] == [2.0]


def test_another_data_file_is_another_block_and_no_worker_with_other_data_or_versions_computes_it(tmp_path):
    blocks = []
    for last in (1, 2):
        (tmp_path / "table.csv").write_text(f"a,b,y\n1,2,3\n2,1,5\n4,4,{last}\n")
        blocks += scenario_blocks(
            scenario(tmp_path, "sweep: {}", "data: {kind: file, path: table.csv, target: y}"), tmp_path
        )
    first, second = blocks
    assert first.address({}) != second.address({})
    # The folder is not part of the name, the environment is.
    assert replace(second, recipe=replace(second.recipe, folder="elsewhere")).address({}) == second.address({})
    assert second.address({"jax": "0"}) != second.address({})
    (failure,) = compute.compute(first, environment()).failures
    assert "table.csv is another one than when the run was started" in failure.message
    (failure,) = compute.compute(second, environment() | {"jax": "0.1"}).failures
    assert "the worker has jax" in failure.message
    assert failure.message.endswith("and the run was started with 0.1")


DEEP = "network: {kind: mlp, depth: 2, scale: 0.5}"
SADDLE = DEEP.replace("0.5", "0.0")


def searched(folder, settings, network=LINEAR):
    found = swept(folder, f"sweep: {{flow: false, critical: {{{settings}}}}}", network=network)
    status = CriticalStatus(found.critical_status.item())
    return found, found.critical_learning_rate_lower.item(), found.critical_learning_rate_upper.item(), status


@pytest.mark.parametrize(
    "range_of_search",
    [
        "lowest: 0.1, highest: 1.0e+4",
        "lowest: 1.0e-4, highest: 1.0e-3",  # too slow for the steps
        "lowest: 0.01, highest: 0.1",  # the highest rate reaches the minimum
        "lowest: 5.0, highest: 50.0",  # unstable
    ],
)
def test_the_search_for_a_critical_learning_rate_leaves_a_range_that_does_not_enclose_it(range_of_search, tmp_path):
    steps = 400
    settings = f"{range_of_search}, steps: {steps}, excess_risk: 1.0e-3, precision: 0.02"
    found, lower, upper, status = searched(tmp_path, settings)
    ((_, start, data),) = cells(found)
    excess = [
        risk(descended(*start, rate, steps), data.training) - risk(start[1], data.training) for rate in (lower, upper)
    ]
    assert status is CriticalStatus.DETERMINED
    assert excess[0] <= 1e-3 < excess[1]
    assert lower < upper <= 1.02 * (1 + 1e-12) * lower
    # The border of stability is 2/S; of the rates below it, only those next to it need more steps.
    assert 0.95 < lower * found.initial_sharpness.item() / 2 < 1


def test_a_learning_rate_at_which_descent_oscillates_for_ever_is_too_large_not_too_small(tmp_path):
    settings = "critical: {lowest: 0.5, highest: 0.6, steps: 400, excess_risk: 1.0e-3, precision: 0.02}"
    descent = "descent: [{learning_rates: [0.5, 0.6], steps: 400}]"
    found = swept(tmp_path, f"sweep: {{flow: false, {settings}, {descent}}}", network=DEEP)
    assert (found.outcome == Outcome.STEP_LIMIT).all()
    assert (found.final_excess_risk > 1e-3).all()
    assert 0.4 < found.critical_learning_rate_lower.item() < found.critical_learning_rate_upper.item() < 0.42


@pytest.mark.parametrize(
    ("settings", "network", "status", "remedy"),
    [
        ("steps: 3", LINEAR, CriticalStatus.STILL_FALLING, "write a larger sweep.critical.steps"),
        ("steps: 40", SADDLE, CriticalStatus.AT_REST, "start from a larger scale"),
        (
            "lowest: 50, highest: 100, doublings: 1, steps: 40",
            LINEAR,
            CriticalStatus.UNSTABLE,
            "write a smaller sweep.critical.lowest",
        ),
        (
            "highest: 0.01, doublings: 1, steps: 40, excess_risk: 10",
            LINEAR,
            CriticalStatus.REACHED,
            "write a larger sweep.critical.highest",
        ),
    ],
)
def test_a_critical_learning_rate_that_is_not_determined_is_nan_with_a_reason(
    settings, network, status, remedy, tmp_path
):
    found, *rates, reason = searched(tmp_path, settings, network)
    assert reason is status
    assert np.isnan(rates).all()
    (warning,) = warnings_of_sweep(found)
    assert warning.startswith("no critical learning rate is determined from 1 of 1 initializations: ")
    assert remedy in warning
    (summary,) = sweep_summary(found)["critical"]
    assert summary["status"] == {status.name: 1}
    assert summary["median"] is summary["least"] is summary["ratio"] is None


FALLING, REACHED, UNSTABLE = CriticalStatus.STILL_FALLING, CriticalStatus.REACHED, CriticalStatus.UNSTABLE


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([(0.01, FALLING), (0.1, REACHED)], 0.1),
        ([(0.1, FALLING), (0.11, REACHED)], 0.11),  # a range of less than a factor of two
        ([(0.01, FALLING), (0.1, REACHED), (1.5, UNSTABLE), (3, FALLING)], 0.1),  # weights thrown back to a saddle
        ([(0.1, FALLING), (0.11, REACHED), (1.5, UNSTABLE), (3, FALLING)], 0.11),
        ([(0.01, FALLING), (0.1, REACHED), (1, FALLING)], 0.1),  # a miss above a rate that reaches the minimum
        ([(7, FALLING), (500, REACHED)], 500),
        ([(1e-9, FALLING), (1e-7, REACHED)], 1e-7),
        ([(0.1, FALLING)], np.nan),
    ],
)
def test_a_search_ends_at_the_upper_end_of_the_rates_that_reach_the_minimum(states, expected):
    """`states` lists the largest rate of each state of descent; above the last rate it is unstable."""
    search = critical._search(CriticalSettings(), 52)
    rates, bracket = [next(search)], None
    while bracket is None:
        try:
            rates.append(search.send(next((state for most, state in states if rates[-1] <= most), UNSTABLE)))
        except StopIteration as end:
            bracket = end.value
    lower, upper, status = bracket
    assert len(rates) < 40
    if np.isnan(expected):
        assert np.isnan([lower, upper]).all()
        assert status is FALLING
    else:
        assert lower <= expected <= upper <= 1.01 * lower


@pytest.mark.slow
def test_a_sweep_without_runs_is_reported_and_read_back_and_a_quick_one_has_a_folder_of_its_own(tmp_path, capsys):
    scenario(tmp_path, f"{CRITICAL}  over: {{network.scale: [0.4, 0.6]}}\n")
    arguments = [str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    for options, name, repetitions in (([], "tiny", 5), (["--quick"], "tiny-quick", 3)):
        assert cli.main([*arguments, *options]) == 0
        assert "no run to tell of" in capsys.readouterr().out
        dataset = flowsim.open_results(tmp_path / "out" / name).required("sweep")
        assert dataset.sizes["repetition"] == repetitions
        assert (dataset["critical_learning_rate_lower"] > 0.01).all()
    assert cli.main(["report", str(tmp_path / "out" / "tiny")]) == 0


def fail_for(monkeypatch, name, wrong, module=compute):
    """Make a function that `module` calls raise where `wrong` says so of its first argument."""
    really = getattr(module, name)

    def sometimes(network, *arguments, **options):
        if wrong(network, options):
            raise ValueError(f"{name} went wrong\nand said more")
        return really(network, *arguments, **options)

    monkeypatch.setattr(module, name, sometimes)


def test_a_flow_that_raises_is_named_and_the_descents_go_on_and_are_not_stored(linear, tmp_path, monkeypatch):
    fail_for(monkeypatch, "integrate", lambda *_: True)
    sweep = computed(tmp_path, DESCENTS.replace("flow: false", "flow: true"))
    assert len(sweep.failures) == 2 * 2 * 3
    failure = sweep.failures[0]
    assert failure.cell == "data.noise=0.5, network.scale=0.4, repetition 0, flow"
    assert failure.message == "ValueError: integrate went wrong"
    assert json.loads(sweep.dataset.attrs["failures"])[0] == {"cell": failure.cell, "message": failure.message}
    assert (sweep.dataset.outcome.isel(run=0) == FAILED).all()
    np.testing.assert_array_equal(of_descent(sweep.dataset).final_risk, linear.final_risk)
    assert not list(tmp_path.rglob("*.block"))


def test_a_linear_network_keeps_the_samples_that_descents_of_a_sweep_draw_from(tmp_path):
    optimizer = "optimizer: {kind: sgd, batch: 4}"
    descent = f"descent: [{{learning_rates: [0.05], steps: 5, {optimizer}}}]"
    assert computed(tmp_path, f"sweep: {{flow: false, {descent}}}\n").failures == ()


def test_a_descent_that_raises_is_named_and_those_beside_it_are_as_ever(linear, tmp_path, monkeypatch):
    fail_for(monkeypatch, "descend_batch", lambda _, options: flowsim.GradientDescent(0.1) in options["learning_rates"])
    sweep = computed(tmp_path)
    assert len(sweep.failures) == 2 * 2 * 2
    assert sweep.failures[0].cell == "data.noise=0.5, network.scale=0.4, repetition 0, learning rate 0.1"
    outcome, expected = (of_descent(dataset, 0.1).outcome for dataset in (sweep.dataset, linear))
    np.testing.assert_array_equal(outcome, np.where(expected == NOT_ASKED, NOT_ASKED, FAILED))
    others = (of_descent(dataset, 0.05, 5.0).final_risk for dataset in (sweep.dataset, linear))
    np.testing.assert_array_equal(*others)


def test_a_bisection_that_raises_is_named(tmp_path, monkeypatch):
    fail_for(monkeypatch, "descend_batch", lambda *_: True, critical)
    sweep = computed(tmp_path, CRITICAL)
    cells = [f"the only point, repetition {number}, critical learning rate" for number in range(5)]
    assert [failure.cell for failure in sweep.failures] == cells
    assert np.isnan(sweep.dataset.critical_learning_rate_lower).all()


@pytest.mark.slow
def test_of_a_sweep_of_which_everything_fails_the_first_failures_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compute, "_BlockRun", lambda block: 1 / 0)
    scenario(tmp_path, "sweep: {repetitions: 30, descent: [{learning_rates: [0.1], steps: 5}]}")
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "repetition 0: ZeroDivisionError: division by zero" in " ".join(printed.split())
    assert printed.count("ZeroDivisionError") == 10
    assert "failed: 20 more, which are in summary.json" in printed
    summary = json.loads((tmp_path / "out" / "tiny" / "summary.json").read_text())
    assert len(summary["sweep"]["failures"]) == 30
    assert not [path for path in (tmp_path / "out" / ".blocks").rglob("*") if path.is_file()]


def test_data_that_cannot_be_used_are_refused_before_anything_is_computed(tmp_path, monkeypatch, capsys):
    (tmp_path / "table.csv").write_text("a,b,y\n1,2,3\n2,,5\n4,4,1\n")
    scenario(tmp_path, "sweep: {}", "data: {kind: file, path: table.csv, target: y}")
    done = count_computed(monkeypatch)
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 2
    assert "row 3" in capsys.readouterr().err
    assert done == []
    assert not (tmp_path / "out").exists()


def test_a_full_disk_ends_in_one_message_and_the_run_goes_on_when_there_is_room(linear, tmp_path, monkeypatch):
    writes = []

    def write(path, content):
        writes.append(path)
        with path.open("wb") as file:
            file.write(content[:50])
            if len(writes) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file.write(content[50:])

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(StoreError, match=r"No space left on device; make room and run this again"):
            swept(tmp_path)
    assert len([path for path in (tmp_path / "blocks").rglob("*") if path.is_file()]) == 1
    done = count_computed(monkeypatch)
    assert swept(tmp_path).identical(linear)
    assert len(done) == 1


def test_a_quick_sweep_has_a_tenth_of_the_steps_and_three_repetitions_at_most(tmp_path):
    quick = scenario(tmp_path, DESCENTS.replace("repetitions: 2", "repetitions: 20")).sweep.quick()
    assert quick.repetitions == 3
    assert [(entry.steps, entry.repetitions) for entry in quick.descent] == [(2, None), (3, 3)]
    assert quick.first_look is True
    search = scenario(tmp_path, "sweep: {critical: {steps: 500}}").sweep.quick()
    assert (search.critical.steps, search.first_look) == (50, True)
    small = scenario(tmp_path, "sweep: {repetitions: 3}").sweep
    assert small.quick() == small
    assert small.first_look is None


def test_an_accelerator_is_for_one_process(tmp_path, monkeypatch, capsys):
    class Accelerator:
        platform = "gpu"

    for module in (import_module("flowsim.cli.run"), WORKERS):
        monkeypatch.setattr(module, "default_device", Accelerator)
    scenario(tmp_path, "sweep: {}")
    assert default_jobs() == 1
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 2
    assert "--jobs 2: one process has all of a gpu; write --jobs 1, or --device cpu" in capsys.readouterr().err
