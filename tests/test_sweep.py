"""What a sweep computes: every cell is what the library computes for it alone, whatever runs beside it."""

import errno
import functools
import json
import os
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest

import flowsim
from flowsim import Outcome, Stopping, cli
from flowsim.kinds.seeds import start_key
from flowsim.report.sweeps.runs import progress_measure
from flowsim.results import StoreError
from flowsim.results.schema import NOT_ASKED
from flowsim.scenarios import Scenario, environment, read_scenario
from flowsim.scenarios.grid import points
from flowsim.scenarios.runner import build_network, build_problem, read_data
from flowsim.sweeps import BlockStore, block, compute, default_jobs, measures, plan, run_sweep
from flowsim.sweeps.dataset import axis_names
from flowsim.sweeps.workers import InProcess

# Not by its name, which is that of a function too.
WORKERS = import_module("flowsim.sweeps.workers")
DATA = "data: {kind: gaussian, samples: 20, features: 3, test_samples: 7}"
LINEAR = "network: {kind: mlp, depth: 1, scale: 0.5}"
NETWORK = "network: {kind: mlp, depth: 3, scale: 0.5}"
SWEEP = """
sweep:
  over: {network.scale: [0.4, 0.6], data.noise: [0.5, 1.0]}
  repetitions: 2
  descent:
    - {learning_rates: [0.1, 0.05], steps: 100}
    - {learning_rates: [5.0], steps: 30, repetitions: 3}
"""
FLOWS = """
sweep:
  over: {network.scale: [0.4, 0.6]}
  repetitions: 1
  descent:
    - {learning_rates: [0.05], steps: 30}
    - {learning_rates: [5.0], steps: 30, repetitions: 2}
"""
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
  repetitions: 3
  flow: false
  critical: {lowest: 0.01, highest: 2.0, steps: 400, excess_risk: 1.0e-3, precision: 0.02}
"""


def scenario(folder, sweep=SWEEP, data=DATA, name="tiny", network=NETWORK):
    path = folder / f"{name}.yaml"
    path.write_text(f"seed: 3\n{data}\n{network}\n{sweep}")
    return read_scenario(path)


def swept(folder, sweep=SWEEP, **options):
    found = run_sweep(scenario(folder, sweep, **options), folder, BlockStore(folder / "blocks"), InProcess())
    assert found.failures == ()
    return found.dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("linear")


@pytest.fixture(scope="module")
def linear(folder):
    """Descents of a linear network, in `folder`."""
    return swept(folder, DESCENTS, network=LINEAR)


def of_flow(dataset):
    return dataset.isel(run=dataset["dynamics"].values == "gradient_flow").squeeze("run")


def of_descent(dataset, *rates):
    """Return the runs of gradient descent, of some learning rates or of all."""
    found = dataset.isel(run=dataset["dynamics"].values == "gradient_descent")
    return found.isel(run=np.isin(found["learning_rate"], rates)) if rates else found


def cells(dataset):
    """Yield the place of every start in the grid, with its problem, its network and its data."""
    for point in points(Scenario.model_validate(json.loads(dataset.attrs["scenario"]))):
        data = read_data(point.scenario, None)
        problem = build_problem(point.scenario, *data.training)
        for repetition in range(dataset.sizes["repetition"]):
            key = start_key(3, point.name, repetition)
            network = build_network(point.scenario, data.inputs, data.outputs, key)
            yield (*point.index, repetition), problem, network, data


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
    found = scenario(tmp_path, sweep).sweep
    np.testing.assert_allclose(found.over["network.scale"], [0.2, 0.4, 0.6], rtol=1e-15)
    np.testing.assert_allclose(found.over["data.noise"], [1, 10, 100], rtol=1e-15)
    np.testing.assert_allclose(found.descent[0].learning_rates, [1e-3, 1e-2, 1e-1], rtol=1e-14)


def test_the_grid_is_every_combination_of_the_axes_the_last_one_fastest(tmp_path):
    found = list(points(scenario(tmp_path)))
    assert [point.index for point in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [point.name for point in found][:2] == [
        "data.noise=0.5, network.scale=0.4",
        "data.noise=1.0, network.scale=0.4",
    ]
    assert [(point.scenario.network.scale, point.scenario.data.noise) for point in found][2] == (0.6, 0.5)


def test_a_coordinate_is_named_by_its_value_however_it_is_written(tmp_path):
    whole, broken = (
        [point.name for point in points(scenario(tmp_path, f"sweep: {{over: {{network.scale: [{value}]}}}}"))]
        for value in ("1", "1.0")
    )
    assert whole == broken == ["network.scale=1.0"]


def test_axes_are_named_by_their_last_part_and_by_all_of_it_where_two_agree(tmp_path):
    sweep = "sweep: {over: {network.scale: [1], flow.gradient_norm: [1.0e-6], flow.excess_risk: [1.0e-6]}}"
    assert list(axis_names(scenario(tmp_path, sweep)).values()) == ["scale", "gradient_norm", "excess_risk"]
    sweep = "sweep: {over: {network.kind: [mlp], seed: [1, 2], precision: [float32]}}"
    assert list(axis_names(scenario(tmp_path, sweep)).values()) == ["kind", "seed", "precision"]


def test_a_data_set_is_labelled_by_grid_repetition_and_run(linear):
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


def test_a_descent_with_fewer_repetitions_is_not_run_for_the_others(linear):
    asked = linear.outcome != NOT_ASKED
    assert not asked.sel(repetition=2).isel(run=[0, 1]).any()
    assert asked.sel(repetition=[0, 1]).all()
    assert asked.isel(run=2).all()


def test_starts_and_descents_of_a_linear_network_are_those_of_the_closed_form(linear):
    """The error w − w* is multiplied by 1 − 2ηXᵀX/n in every step."""
    starts = linear.initial_risk.values.ravel()
    assert len(np.unique(starts)) == starts.size
    for place, _, network, data in cells(linear):
        at = linear.isel(scale=place[0], noise=place[1], repetition=place[2])
        (X, y), (X_test, y_test) = data.training, data.held_out
        first, limit = np.asarray(network.weights[0])[0], np.linalg.lstsq(X, y, rcond=None)[0]
        hessian = 2 * X.T @ X / len(X)
        np.testing.assert_allclose(at.initial_risk, np.mean((y - X @ first) ** 2), rtol=1e-12)
        np.testing.assert_allclose(at.initial_test_risk, np.mean((y_test - X_test @ first) ** 2), rtol=1e-12)
        np.testing.assert_allclose(at.initial_sharpness, np.linalg.eigvalsh(hessian)[-1], rtol=1e-10)
        np.testing.assert_allclose(at.initial_squared_distance, np.sum((first - limit) ** 2), rtol=1e-10)
        assert at.outcome[2] == Outcome.DIVERGED
        assert np.isnan(at.final_sharpness[2])

        def end(rate, steps, first=first, limit=limit, hessian=hessian):
            step = np.linalg.matrix_power(np.eye(3) - rate * hessian, steps)
            return limit + step @ (first - limit)

        for run, rate in enumerate([0.05, 0.1] if place[2] < 2 else []):
            here, weights = at.isel(run=run), end(rate, 20)
            assert (here.outcome, here.steps) == (Outcome.STEP_LIMIT, 20)
            np.testing.assert_allclose(here.end_time, 20 * rate)
            np.testing.assert_allclose(here.final_risk, np.mean((y - X @ weights) ** 2), rtol=1e-10)
            np.testing.assert_allclose(here.final_test_risk, np.mean((y_test - X_test @ weights) ** 2), rtol=1e-10)
            np.testing.assert_allclose(here.final_sharpness, at.initial_sharpness, rtol=1e-10)
            assert np.isnan(here.distance_to_flow)
        lower, upper = (float(at[f"critical_learning_rate_{side}"]) for side in ("lower", "upper"))
        assert 0.1 < lower < upper <= 1.02 * (1 + 1e-12) * lower

        def excess(rate, X=X, limit=limit, end=end):
            return np.mean((X @ (end(rate, 40) - limit)) ** 2)

        assert excess(lower) <= 1e-2 < excess(upper)


@pytest.mark.slow
def test_flows_and_descents_of_a_sweep_are_those_of_their_networks_alone(tmp_path):
    never, whole = Stopping(gradient_norm=None), swept(tmp_path, FLOWS)
    for place, problem, network, data in cells(whole):
        at = whole.isel(scale=place[0], repetition=place[1])
        alone = flowsim.integrate(network, problem, ts=[])
        flow = of_flow(at)
        assert flow.outcome == Outcome.CONVERGED
        np.testing.assert_allclose(flow.initial_sharpness, flowsim.sharpness(network, problem), rtol=1e-10)
        np.testing.assert_allclose(flow.final_sharpness, alone.final_sharpness, rtol=1e-10)
        np.testing.assert_allclose(flow.final_risk, problem(alone.network), rtol=1e-12)
        assert flow.final_gradient_norm <= 1e-8
        assert np.isnan(flow.distance_to_flow)
        X_test, y_test = data.held_out
        limit = np.asarray(problem.optimum)
        np.testing.assert_allclose(flow.final_test_risk, np.mean((y_test - X_test @ limit) ** 2), rtol=1e-6)
        for rate in (0.05, 5.0):
            here = of_descent(at, rate).squeeze("run")
            if here.outcome == NOT_ASKED:
                continue
            one = flowsim.descend(network, problem, learning_rate=rate, steps=30, stopping=never, record_steps=[0])
            arrived = one.gradient_norm[-1] <= 1e-8
            assert here.outcome == (Outcome.CONVERGED if arrived else one.outcome)
            assert here.steps == one.steps
            if one.outcome == Outcome.DIVERGED:
                continue
            np.testing.assert_allclose(here.final_sharpness, one.final_sharpness, rtol=1e-9)
            np.testing.assert_allclose(here.final_risk, problem(one.network), rtol=1e-12)
            apart = [a - b for a, b in zip(one.network.weights, alone.network.weights, strict=True)]
            distance = np.sqrt(sum(float((part**2).sum()) for part in apart))
            np.testing.assert_allclose(here.distance_to_flow, distance, rtol=1e-8)


@pytest.mark.slow
def test_a_descent_that_is_still_at_the_saddle_has_not_converged(tmp_path):
    found = swept(
        tmp_path,
        "sweep: {flow: false, descent: [{learning_rates: [0.1], steps: 5}]}",
        network="network: {kind: mlp, depth: 3, scale: 1.0e-6}",
    )
    assert found.final_gradient_norm.item() <= 1e-8
    assert found.outcome.item() == Outcome.STEP_LIMIT


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


@pytest.mark.slow
def test_a_cell_does_not_depend_on_the_block_that_it_is_in(linear, tmp_path, monkeypatch):
    monkeypatch.setattr(block, "_parts", functools.partial(block._parts, least=2, most=2, seconds=0.0))
    assert swept(tmp_path, DESCENTS, network=LINEAR).identical(linear)


def test_the_distance_to_one_of_many_optimal_regressors_is_no_measure_of_progress(linear):
    assert not linear["covariance_nullity"].any()  # 20 samples of 3 features
    assert progress_measure(linear) == "squared_distance"
    assert progress_measure(linear.assign(covariance_nullity=linear["covariance_nullity"] + 1)) == "excess_risk"


@pytest.mark.usefixtures("linear")
def test_sweeps_that_share_cells_share_their_blocks(folder, monkeypatch):
    done = count_computed(monkeypatch)
    beside = "theory: {subjects: [minimizers]}\ndescent: {learning_rates: [0.3]}"
    swept(folder, beside + DESCENTS, name="other", network=LINEAR)
    assert done == []
    swept(folder, DESCENTS.replace("[0.5, 1.0]", "[1.0, 2.0]"), name="another", network=LINEAR)
    assert [entry.recipe.scenario.data.noise for entry in done] == [2.0]


def test_a_damaged_block_is_computed_again(linear, folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "blocks", tmp_path / "blocks")
    for path in (path for path in (tmp_path / "blocks").rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes()[:100])
    done = count_computed(monkeypatch)
    assert swept(tmp_path, DESCENTS, network=LINEAR).identical(linear)
    assert len(done) == 2


def test_another_data_file_is_another_block(tmp_path):
    plans = []
    for last in (1, 2):
        (tmp_path / "table.csv").write_text(f"a,b,y\n1,2,3\n2,1,5\n4,4,{last}\n")
        (one,) = plan(scenario(tmp_path, "sweep: {}", "data: {kind: file, path: table.csv, target: y}"), tmp_path)
        plans.append(one)
    first, second = plans
    assert first.address({}) != second.address({})
    # The folder is not part of the name, the environment is.
    assert replace(second, recipe=replace(second.recipe, folder="elsewhere")).address({}) == second.address({})
    assert second.address({"jax": "0"}) != second.address({})
    (failure,) = compute.compute(first, environment()).failures
    assert "table.csv is another one than when the run was started" in failure.message


def test_a_worker_with_other_versions_computes_nothing(tmp_path):
    (one,) = plan(scenario(tmp_path, "sweep: {}"), tmp_path)
    (failure,) = compute.compute(one, environment() | {"jax": "0.1"}).failures
    assert "the worker has jax" in failure.message
    assert failure.message.endswith("and the run was started with 0.1")


def test_a_critical_learning_rate_is_known_to_its_precision_or_said_to_be_outside_the_range(tmp_path):
    def bracket(**settings):
        asked = ", ".join(f"{key}: {value}" for key, value in settings.items())
        found = swept(tmp_path, f"sweep: {{flow: false, critical: {{{asked}}}}}", network=LINEAR)
        return [found[f"critical_learning_rate_{end}"].item() for end in ("lower", "upper")]

    assert bracket(lowest=1e-3, highest=1e-2, steps=20, excess_risk=10.0) == [1e-2, np.inf]
    assert bracket(lowest=5.0, highest=50.0, steps=20) == [0.0, 5.0]
    lower, upper = bracket(lowest=0.1, highest=1e4, steps=400, excess_risk=1e-3, precision=0.02)
    assert 0.1 < lower < upper <= 1.02 * lower < 10


@pytest.mark.slow
def test_a_sweep_without_runs_is_reported_and_read_back(tmp_path, capsys):
    scenario(tmp_path, f"{CRITICAL}  over: {{network.scale: [0.4, 0.6]}}\n", network=LINEAR)
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert "no run to tell of" in capsys.readouterr().out
    found = flowsim.open_results(tmp_path / "out" / "tiny").required("sweep")
    assert (found["critical_learning_rate_lower"] > 0.01).all()
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
    specification = scenario(tmp_path, DESCENTS.replace("flow: false", "flow: true"), network=LINEAR)
    found = run_sweep(specification, tmp_path, BlockStore(tmp_path / "blocks"), InProcess())
    assert len(found.failures) == 2 * 2 * 3
    failure = found.failures[0]
    assert failure.cell == "data.noise=0.5, network.scale=0.4, repetition 0, flow"
    assert failure.message == "ValueError: integrate went wrong"
    assert json.loads(found.dataset.attrs["failures"])[0] == {"cell": failure.cell, "message": failure.message}
    assert (of_flow(found.dataset).outcome == NOT_ASKED).all()
    np.testing.assert_array_equal(of_descent(found.dataset).final_risk, linear.final_risk)
    assert not list(tmp_path.rglob("*.block"))


def test_a_descent_that_raises_is_named_and_those_beside_it_are_as_ever(linear, tmp_path, monkeypatch):
    fail_for(monkeypatch, "descend_batch", lambda _, options: 0.1 in options["learning_rates"])
    specification = scenario(tmp_path, DESCENTS, network=LINEAR)
    found = run_sweep(specification, tmp_path, BlockStore(tmp_path / "blocks"), InProcess())
    assert len(found.failures) == 2 * 2 * 2
    assert found.failures[0].cell == "data.noise=0.5, network.scale=0.4, repetition 0, learning rate 0.1"
    assert (of_descent(found.dataset, 0.1).outcome == NOT_ASKED).all()
    kept = (of_descent(dataset, 0.05, 5.0).final_risk for dataset in (found.dataset, linear))
    np.testing.assert_array_equal(*kept)


def test_a_bisection_that_raises_is_named(tmp_path, monkeypatch):
    fail_for(monkeypatch, "descend_batch", lambda *_: True, measures)
    specification = scenario(tmp_path, CRITICAL, network=LINEAR)
    found = run_sweep(specification, tmp_path, BlockStore(tmp_path / "blocks"), InProcess())
    cells = [f"the only point, repetition {n}, critical learning rate" for n in range(3)]
    assert [failure.cell for failure in found.failures] == cells
    assert np.isnan(found.dataset.critical_learning_rate_lower).all()


@pytest.mark.slow
def test_of_a_sweep_of_which_everything_fails_the_first_failures_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compute, "_Work", lambda block: 1 / 0)
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
            swept(tmp_path, DESCENTS, network=LINEAR)
    assert len([path for path in (tmp_path / "blocks").rglob("*") if path.is_file()]) == 1
    done = count_computed(monkeypatch)
    assert swept(tmp_path, DESCENTS, network=LINEAR).identical(linear)
    assert len(done) == 1


def test_a_quick_sweep_has_a_tenth_of_the_steps_and_three_repetitions_at_most(tmp_path):
    quick = scenario(tmp_path, SWEEP.replace("repetitions: 2", "repetitions: 20")).sweep.quick()
    assert quick.repetitions == 3
    assert [(entry.steps, entry.repetitions) for entry in quick.descent] == [(10, None), (3, 3)]
    assert quick.first_look is True
    whole = scenario(tmp_path, "sweep: {repetitions: 3}").sweep
    assert whole.quick() == whole
    assert whole.first_look is None


@pytest.mark.slow
def test_a_quick_sweep_goes_to_a_folder_of_its_own(tmp_path):
    scenario(tmp_path, "sweep: {repetitions: 5, flow: false}", network=LINEAR)
    arguments = [str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert cli.main([*arguments, "--quick"]) == 0
    assert cli.main(arguments) == 0
    for name, repetitions in {"tiny": 5, "tiny-quick": 3}.items():
        found = flowsim.open_results(tmp_path / "out" / name).required("sweep")
        assert found.sizes["repetition"] == repetitions


def test_an_accelerator_is_for_one_process(tmp_path, monkeypatch, capsys):
    class Accelerator:
        platform = "gpu"

    for module in (import_module("flowsim.cli.run"), WORKERS):
        monkeypatch.setattr(module, "default_device", Accelerator)
    scenario(tmp_path, "sweep: {}")
    assert default_jobs() == 1
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 2
    assert "--jobs 2: one process has all of a gpu; write --jobs 1, or --device cpu" in capsys.readouterr().err
