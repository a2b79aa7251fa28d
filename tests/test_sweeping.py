"""Sweeps from Python: every cell is what `integrate` and `descend` find alone, and what is finished is kept."""

import functools
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import own_networks
import pytest
import xarray
from own_networks import first_weight, make, regression

import flowsim
from flowsim import Outcome
from flowsim.kinds.seeds import start_key
from flowsim.results import StoreError
from flowsim.sweeps import compute

WORKERS = import_module("flowsim.sweeps.workers")
OVER = {"scale": [0.5, 0.8], "noise": [0.2, 0.9], "learning_rate": [0.1, 0.02, 9.0]}
OPTIONS = {"repetitions": 2, "steps": 60, "seed": 5, "probes": [first_weight]}


@pytest.fixture(scope="module")
def whole():
    """A grid of two by two, two repetitions, three learning rates."""
    return flowsim.sweep(make, regression, OVER, **OPTIONS).to_dataset()


@pytest.fixture
def computed(monkeypatch):
    """Return a list that grows by every block that this process computes."""
    done = []
    really = compute.compute
    monkeypatch.setattr(WORKERS, "compute", lambda b, e: (done.append(b), really(b, e))[1])
    return done


def digests(folder, *names):
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.slow
def test_each_flow_is_what_integrate_finds_alone(whole):
    for scale, noise, repetition in ((0.5, 0.2, 1), (0.8, 0.9, 0)):
        network = make(start_key(5, f"noise={noise}, scale={scale}", repetition), scale)
        alone = flowsim.integrate(network, regression(noise), ts=[])
        cell = whole.sel(scale=scale, noise=noise, repetition=repetition).isel(run=0)
        assert str(cell.dynamics.values) == "gradient_flow"
        assert cell.outcome == alone.outcome == Outcome.CONVERGED
        assert (cell.steps, cell.end_time) == (alone.steps, alone.time)
        assert cell.final_risk == alone.final_risk
        # A norm: the order of its sum is that of its program, and of the processor.
        np.testing.assert_allclose(cell.final_first_weight, first_weight(alone.network), rtol=1e-15)
        np.testing.assert_allclose(cell.final_sharpness, alone.final_sharpness, rtol=1e-12)
        np.testing.assert_allclose(cell.initial_risk, regression(noise)(network), rtol=1e-12)


@pytest.mark.slow
def test_each_descent_is_what_descend_finds_alone_from_the_start_of_the_flow(whole):
    network = make(start_key(5, "noise=0.9, scale=0.8", 1), 0.8)
    flow = flowsim.integrate(network, regression(0.9), ts=[])
    cells = whole.sel(scale=0.8, noise=0.9, repetition=1)
    assert np.isnan(cells.learning_rate[0])
    np.testing.assert_array_equal(cells.learning_rate[1:], [0.02, 0.1, 9.0])
    for run, rate in ((1, 0.02), (2, 0.1)):
        alone = flowsim.descend(
            network, regression(0.9), learning_rate=rate, steps=60, stopping=flowsim.Stopping(gradient_norm=None)
        )
        np.testing.assert_allclose(cells.final_risk[run], alone.final_risk, rtol=1e-12)
        apart = jnp.sqrt(
            sum(jnp.sum((a - b) ** 2) for a, b in zip(alone.network.weights, flow.network.weights, strict=True))
        )
        np.testing.assert_allclose(cells.distance_to_flow[run], apart, rtol=1e-9)
    assert cells.outcome[3] == Outcome.DIVERGED


def test_a_cell_does_not_depend_on_which_others_run_nor_in_what_order(whole):
    over = {"learning_rate": [0.02], "noise": [0.9], "scale": [0.8, 1.5, 0.5]}
    fewer = flowsim.sweep(make, regression, over, **OPTIONS | {"repetitions": 1}).to_dataset()
    there = whole.isel(run=[0, 1], repetition=[0], noise=[1])
    for name in ("final_risk", "final_sharpness", "distance_to_flow", "steps", "final_first_weight"):
        here = fewer[name].sel(scale=[0.5, 0.8]).transpose(*there[name].dims)
        np.testing.assert_array_equal(here, there[name], err_msg=name)


@pytest.mark.slow
def test_the_result_has_table_figures_and_data_set_as_a_sweep_of_a_scenario(whole, tmp_path):
    found = flowsim.Sweep(whole, ())
    printed = str(found)
    assert "first weight" in printed
    assert "η = 0.02" in printed
    assert {"sharpness", "squared_distance", "divergence"} == set(found.figures())
    assert "η = 0.02" in found._repr_html_()
    found.save(tmp_path / "mine")
    stored = flowsim.open_results(tmp_path / "mine")
    xarray.testing.assert_identical(stored.required("sweep"), whole)
    assert len(stored.summary["sweep"]["rows"]) == 2 * 2 * 4
    with pytest.raises(StoreError, match=r"repetitions is 2 there and 1 here\); write overwrite=True"):
        flowsim.sweep(make, regression, OVER, **OPTIONS | {"repetitions": 1}, folder=tmp_path / "mine")


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_finished_is_kept_and_more_values_and_repetitions_compute_these_alone(tmp_path, jobs):
    options = {"repetitions": 2, "folder": tmp_path / "mine", "jobs": jobs}
    assert flowsim.sweep(make, regression, {"scale": [0.5]}, **options).failures == ()
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*.block")}
    assert len(first) == 2
    more = flowsim.sweep(make, regression, {"scale": [0.5, 0.8]}, **options | {"repetitions": 3})
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*.block")}
    assert len(kept) == 6
    assert first.items() <= kept.items()
    without = flowsim.sweep(make, regression, {"scale": [0.5, 0.8]}, repetitions=3).dataset
    xarray.testing.assert_identical(without, more.dataset)
    xarray.testing.assert_identical(flowsim.open_results(tmp_path / "mine").required("sweep"), more.dataset)


@pytest.mark.slow
def test_nothing_is_computed_twice(tmp_path, computed):
    options = {"repetitions": 2, "folder": tmp_path / "mine"}
    found = flowsim.sweep(make, regression, {"scale": [0.5]}, **options)
    assert len(computed) == 2
    xarray.testing.assert_identical(flowsim.sweep(make, regression, {"scale": [0.5]}, **options).dataset, found.dataset)
    assert len(computed) == 2
    flowsim.sweep(make, regression, {"scale": [0.5]}, **options | {"repetitions": 3})
    assert len(computed) == 3


@pytest.mark.slow
def test_ctrl_c_loses_no_finished_block_and_the_end_is_the_same_to_the_bit(tmp_path, monkeypatch):
    really, done = compute.compute, []

    def interrupted(block, environment):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(block)
        return really(block, environment)

    options = {"repetitions": 2, "folder": tmp_path / "mine"}
    with monkeypatch.context() as patch:
        patch.setattr(WORKERS, "compute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            flowsim.sweep(make, regression, {"scale": [0.5, 0.8]}, **options)
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [".blocks"]
    monkeypatch.setattr(WORKERS, "compute", lambda b, e: (done.append(b), really(b, e))[1])
    resumed = flowsim.sweep(make, regression, {"scale": [0.5, 0.8]}, **options)
    assert len(done) == 4
    xarray.testing.assert_identical(
        resumed.dataset, flowsim.sweep(make, regression, {"scale": [0.5, 0.8]}, repetitions=2).dataset
    )


SCRIPT = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import flowsim, own_networks

if __name__ == "__main__":
    over = {"scale": [0.5, 0.8]}
    flowsim.sweep(own_networks.slowly, own_networks.regression, over, repetitions=4, folder=sys.argv[1])
"""


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on_and_ends_with_the_same_files(tmp_path, quick_environment):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = quick_environment | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def start(folder):
        place = tmp_path / folder / "swept"  # a page says the name of its folder
        return subprocess.Popen([sys.executable, tmp_path / "script.py", place], env=environment)

    assert start("whole").wait() == 0
    blocks = []
    while True:
        process = start("killed")
        while process.poll() is None and len(list((tmp_path / "killed").rglob("*.block"))) < len(blocks) + 5:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        found = list((tmp_path / "killed").rglob("*.block"))
        assert len(found) >= len(blocks)
        blocks = found
    assert len(blocks) >= 5  # it was killed on the way
    names = [str(path.relative_to(tmp_path / "whole")) for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    assert digests(tmp_path / "whole", *names) == digests(tmp_path / "killed", *names)


@pytest.mark.slow
def test_a_network_of_equinox_with_cross_entropy_is_swept_with_descents_beside_the_flow():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)), np.arange(12) % 3
    problem = flowsim.EmpiricalRisk(X, y, flowsim.losses.CrossEntropy())

    def network(key, width):
        return eqx.nn.MLP(4, 3, width, depth=1, activation=jax.nn.tanh, key=key)

    accuracy = flowsim.probes.Accuracy()
    found = flowsim.sweep(network, problem, {"width": [5], "learning_rate": [0.1]}, steps=20, t1=1.0, probes=[accuracy])
    assert found.failures == ()
    cells = found.dataset.isel(repetition=0)
    assert (cells.outcome[:, 0] == Outcome.TIME_LIMIT).all()
    alone = flowsim.integrate(network(start_key(0, "width=5", 0), 5), problem, t1=1.0, ts=[])
    # Measured by another program, which rounds otherwise.
    np.testing.assert_allclose(cells.final_risk[0, 0], alone.final_risk, rtol=1e-14)
    descent = flowsim.descend(network(start_key(0, "width=5", 0), 5), problem, learning_rate=0.1, steps=20)
    np.testing.assert_allclose(cells.final_risk[0, 1], descent.final_risk, rtol=1e-12)
    right = jnp.mean(jnp.argmax(jax.vmap(alone.network)(jnp.asarray(X)), axis=1) == y)
    np.testing.assert_allclose(cells.final_accuracy[0, 0], right)
    assert "did not reach their limit" not in str(found)  # it was to end at t1
    assert "as asked" in str(found)


def test_options_of_the_flow_are_swept_from_the_same_starts():
    found = flowsim.sweep(make, regression(), {"rtol": [1e-4, 1e-8], "scale": [0.5], "t1": [1.0]}).dataset
    np.testing.assert_array_equal(found.initial_risk[0], found.initial_risk[1])
    assert found.steps[0].item() < found.steps[1].item()
    network = make(start_key(0, "scale=0.5", 0), 0.5)
    alone = flowsim.integrate(network, regression(), rtol=1e-8, t1=1.0, ts=[])
    assert found.final_risk[1].item() == alone.final_risk


def test_a_cell_whose_network_cannot_be_made_is_named_and_the_others_go_on():
    def sometimes(key, scale):
        if jnp.array_equal(jax.random.key_data(key), jax.random.key_data(start_key(0, "scale=0.8", 1))):
            raise RuntimeError("no luck")
        return make(key, scale)

    found = flowsim.sweep(sometimes, regression(), {"scale": [0.5, 0.8]}, repetitions=2)
    (failure,) = found.failures
    assert (failure.cell, failure.message) == ("scale=0.8, repetition 1", "RuntimeError: no luck")
    assert "failed: scale=0.8, repetition 1: RuntimeError: no luck" in " ".join(str(found).split())
    assert (found.dataset.outcome.values.ravel() == Outcome.CONVERGED).tolist() == [True, True, True, False]


def with_key(problem=None):
    return lambda key, noise: regression(noise)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((make, regression(), {"scael": [1.0]}), {}, r"make_network needs scale: write the values in over"),
        (
            (make, regression(), {"scale": [1.0], "widht": [1]}),
            {},
            r"over\['widht'\]: nothing takes that name: make_ne",
        ),
        ((make, regression(), {"scale": []}), {}, r"over\['scale'\] has no values"),
        ((make, regression(), {"scale": [1.0, 1]}), {}, r"over\['scale'\] has 1 twice"),
        ((make, regression(), {"scale": [float("nan")]}), {}, r"over\['scale'\] has NaN"),
        ((make, regression(), {"scale": 0.5}), {}, r"over\['scale'\] must be a list of values"),
        ((make, regression(), {"scale": "0.5"}), {}, r"over\['scale'\] must be a list of values"),
        ((make, regression(), {"scale": [object()]}), {}, r"over\['scale'\] has a object: expected numbers"),
        ((make, regression(), {"scale": [1.0], "learning_rate": [None, 0.1]}), {}, r"has None: expected positive"),
        ((make, regression(), {"scale": [1.0], "learning_rate": [-0.1]}), {}, r"learning_rate must be a positive"),
        ((make, regression(), {"scale": [1.0], "steps": [1]}), {}, r"over\['steps'\]: the results have something"),
        ((make, regression(), {"scale": [1.0]}), {"repetitions": 0}, r"repetitions must be a whole number from 1"),
        ((make, regression(), {"scale": [1.0]}), {"repetitions": 2.0}, r"repetitions must be a whole number from 1"),
        ((make, regression(), {"scale": [1.0]}), {"seed": -1}, r"seed must be a whole number from 0"),
        ((make, regression(), {"scale": [1.0]}), {"flow": False}, r"nothing would run"),
        ((make, regression(), {"scale": [1.0]}), {"rtol": 2.0}, r"the cell scale=1.0: ValueError: .*rtol"),
        ((make, regression(), {"scale": [1.0]}), {"t1": -1}, r"the cell scale=1.0: ValueError: t1 must be a number, z"),
        ((make, regression(), {"scale": [1.0], "t1": [1.0, "2"]}), {}, r"t1 must be a number, zero or more, got '2'"),
        ((lambda: 1, regression(), {}), {"repetitions": 2}, r"make_network takes no key, so that all repetitions"),
        ((lambda key, scale: 1 / 0, regression(), {"scale": [2]}), {}, r"the cell scale=2: ZeroDivisionError"),
        ((make, lambda noise: noise, {"scale": [2], "noise": [1]}), {}, r"the cell noise=1, scale=2: TypeError: the p"),
        ((make, regression(), {"scale": range(4000)}), {"repetitions": 4000}, r"a sweep of 16000000 runs"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_runs(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        flowsim.sweep(*arguments, **options)


def test_what_is_no_problem_and_no_mapping_is_refused():
    with pytest.raises(TypeError, match=r"expected a flowsim.LinearRegression"):
        flowsim.sweep(make, 3.0, {"scale": [1.0]})
    with pytest.raises(TypeError, match=r"over must map names to lists"):
        flowsim.sweep(make, regression(), [("scale", [1.0])])
    with pytest.raises(TypeError, match=r"optimizer is 'adam': expected a function .* write optimizer=flowsim.Adam"):
        flowsim.sweep(make, regression(), {"scale": [1.0]}, optimizer="adam")


def test_the_key_is_given_by_name_or_as_the_first_argument_and_a_problem_may_do_without():
    by_name = functools.partial(flowsim.DeepLinear.gaussian, widths=[3, 3, 1])
    for problem in (regression, with_key(), functools.partial(regression)):
        over = {"scale": [0.5], "noise": [0.2]}
        found = flowsim.sweep(by_name, problem, over).dataset
        np.testing.assert_array_equal(found.final_risk, flowsim.sweep(make, regression, over).dataset.final_risk)


def test_problems_are_drawn_from_one_key_whatever_the_repetition():
    keys = []

    def drawn(key):
        keys.append(jax.random.key_data(key).tolist())
        return regression()

    flowsim.sweep(make, drawn, {"scale": [0.5, 0.8]}, repetitions=2, seed=1)
    flowsim.sweep(make, drawn, {"scale": [0.5]}, seed=2)
    assert keys[0] != keys[1]
    assert len(keys) == 2  # one for each sweep, as it takes no values


@pytest.mark.slow
def test_words_and_widths_are_values_too():
    def shaped(key, widths, start):
        scale = {"small": 0.1, "large": 0.5}[start]
        return flowsim.DeepLinear.gaussian(widths=[3, *widths, 1], scale=scale, key=key)

    over = {"widths": [(2,), (3,)], "start": ["small", "large"]}
    found = flowsim.sweep(shaped, regression(), over, t1=0.1)
    assert found.failures == ()
    assert found.dataset.widths.values.tolist() == ["(2,)", "(3,)"]
    assert found.dataset.start.values.tolist() == ["small", "large"]
    assert found.figures()["squared_distance"]


@pytest.mark.slow
def test_a_folder_with_another_sweep_is_refused_in_words_and_given_up_when_told_to(tmp_path, computed):
    options = {"folder": tmp_path / "mine"}
    flowsim.sweep(make, regression(), {"scale": [0.5]}, **options)
    before = digests(tmp_path / "mine", "sweep.nc", "summary.json")
    del computed[:]

    def other(key, scale):
        return make(key, 2 * scale)

    for wrong, match in (
        ({"seed": 1}, r"holds other results \(the sweep.seed is 0 there and 1 here\)"),
        ({"rtol": 1e-5}, r"the sweep.options is '\w+' there and '\w+' here"),
    ):
        with pytest.raises(StoreError, match=match):
            flowsim.sweep(make, regression(), {"scale": [0.5]}, **options, **wrong)
    with pytest.raises(StoreError, match=r"the sweep.over.scale is \[0.5\] there and \[0.8\] here"):
        flowsim.sweep(make, regression(), {"scale": [0.8]}, **options)
    with pytest.raises(StoreError, match=r"the sweep.make_network is 'own_networks:make' there and 'test_sw"):
        flowsim.sweep(other, regression(), {"scale": [0.5]}, **options)
    with pytest.raises(StoreError, match=r"the sweep.code or data of problem is '\w+' there"):
        flowsim.sweep(make, regression(0.7), {"scale": [0.5]}, **options)
    assert computed == []
    assert digests(tmp_path / "mine", "sweep.nc", "summary.json") == before
    replaced = flowsim.sweep(other, regression(), {"scale": [0.5]}, **options, overwrite=True)
    xarray.testing.assert_identical(flowsim.open_results(tmp_path / "mine").required("sweep"), replaced.dataset)


def test_a_folder_of_a_scenario_is_not_taken(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "scenario.yaml").write_text("scenario: {}\n")
    with pytest.raises(StoreError, match=r"holds other results \(scenario.yaml is there\)"):
        flowsim.sweep(make, regression(), {"scale": [0.5]}, folder=tmp_path / "mine")


def test_a_function_that_other_processes_cannot_have_is_refused_in_words(monkeypatch):
    with pytest.raises(ValueError, match=r"jobs=2: a function, or an option, cannot be sent .* top level of a module"):
        flowsim.sweep(lambda key, scale: make(key, scale), regression(), {"scale": [0.5]}, jobs=2)
    monkeypatch.setattr(make, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", own_networks)
    monkeypatch.delattr(own_networks, "__file__")
    with pytest.raises(ValueError, match=r"other processes cannot import make from this session"):
        flowsim.sweep(make, regression(), {"scale": [0.5]}, jobs=2)


def test_a_script_that_runs_again_in_its_processes_is_told_what_to_write(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match='write the call under if __name__ == "__main__":'):
        flowsim.sweep(make, regression(), {"scale": [0.5]}, jobs=2)


def test_what_cannot_be_known_again_is_refused_with_a_folder_and_runs_without(tmp_path):
    held = threading.Lock()

    def network(key, scale):
        with held:
            return make(key, scale)

    assert flowsim.sweep(network, regression(), {"scale": [0.5]}).failures == ()
    with pytest.raises(ValueError, match=r"folder: what is kept has to be known again"):
        flowsim.sweep(network, regression(), {"scale": [0.5]}, folder=tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.slow
def test_single_precision_stays_single_and_the_setting_of_jax_as_it_was():
    def single(key, scale):
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), make(key, scale))

    found = flowsim.sweep(single, regression(), {"scale": [0.5]}).dataset
    alone = flowsim.integrate(single(start_key(0, "scale=0.5", 0), 0.5), regression(), ts=[])
    np.testing.assert_allclose(found.final_risk.item(), float(alone.final_risk), rtol=1e-6)
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        narrow = flowsim.sweep(make, regression(), {"scale": [0.5]})
        assert not jax.config.jax_enable_x64
    assert jax.config.jax_enable_x64
    assert narrow.failures == ()


def test_progress_is_told_in_words():
    said = []
    flowsim.sweep(make, regression(), {"scale": [0.5]}, repetitions=2, progress=said.append)
    assert said == ["sweep", "sweep: 1 of 2 initializations", "sweep: 2 of 2 initializations"]


@pytest.mark.slow
def test_flow_and_descent_of_a_sweep_stop_by_one_criterion_which_is_not_convergence(tmp_path):
    X = np.random.default_rng(0).standard_normal((15, 2))
    problem = flowsim.LinearRegression(X, X[:, 0])
    swept = flowsim.sweep(
        lambda key, scale: flowsim.DeepLinear.gaussian(widths=[2, 3, 1], scale=scale, key=key),
        problem,
        {"scale": [0.4], "learning_rate": [0.05]},
        repetitions=2,
        steps=3000,
        stopping=flowsim.Stopping(excess_risk=0.01),
        folder=tmp_path / "swept",
    )
    dataset = swept.to_dataset()
    assert np.all(dataset["outcome"].values == flowsim.Outcome.RISK_REACHED)
    assert np.all(dataset["final_excess_risk"].values <= 0.01)
    assert np.all(dataset["final_excess_risk"].values > 1e-4)
    rows = flowsim.open_results(tmp_path / "swept").summary["sweep"]["rows"]
    assert [(row["converged"], row["as_asked"]) for row in rows] == [(0.0, 1.0)] * 2
    assert "did not reach" not in str(swept)


@pytest.mark.parametrize(("optimizer", "names"), [(flowsim.Adam, set()), (flowsim.GradientDescent, {r"$2/\eta$"})])
def test_the_legend_names_an_edge_of_stability_where_a_line_shows_it(optimizer, names):
    """Adam is stable up to a curvature that is not the sharpness, which the panel shows."""
    made = flowsim.sweep(
        make, regression(), {"scale": [0.5, 0.8], "learning_rate": [0.01]}, optimizer=optimizer, steps=9
    )
    (legend,) = made.figures()["sharpness"].legends
    edges = {r"$2/\eta$", "edge of stability"}
    assert {text.get_text() for text in legend.get_texts()} & edges == names
