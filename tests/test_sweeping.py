"""Sweeps from Python: every cell is what its own flow and descents arrive at, and what is finished is kept."""

import functools
import multiprocessing
import sys
import threading
from importlib import import_module

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import own_networks
import pytest
import xarray
from own_networks import make

import flowsim
from flowsim import Outcome
from flowsim.kinds.seeds import start_key
from flowsim.report.document import Document
from flowsim.results import StoreError
from flowsim.sweeps import compute

WORKERS = import_module("flowsim.sweeps.workers")


class Bowl(eqx.Module):
    """The risk Σ λ_i w_i² / 2: its flows are exponentials, and its descents powers."""

    curvatures: jax.Array

    def __call__(self, weights):
        return jnp.sum(self.curvatures * weights**2) / 2


def bowl(curvature=0.4):
    return flowsim.Risk(Bowl(jnp.asarray(np.array([3.0, curvature]))), infimum=0.0)


def start(key, scale):
    return scale * jax.random.normal(key, (2,))


def size(weights):
    return jnp.linalg.norm(weights)


OVER = {"scale": [0.5, 0.8], "curvature": [0.2, 0.9], "learning_rate": [0.1, 0.02, 9.0]}
# One solver in place of a choice among several: a third of the compilation.
FLOW = {"solver": diffrax.Dopri5(), "rtol": 1e-9, "t1": 2.0}
OPTIONS = {"repetitions": 2, "steps": 20, "seed": 5, "probes": [size], **FLOW}


@pytest.fixture(scope="module")
def whole():
    """A grid of two by two, two repetitions, three learning rates."""
    return flowsim.sweep(start, bowl, OVER, **OPTIONS)


@pytest.fixture
def computed(monkeypatch):
    """Return a list that grows by every block that this process computes."""
    done = []
    really = compute.compute
    monkeypatch.setattr(WORKERS, "compute", lambda b, e: (done.append(b), really(b, e))[1])
    return done


@pytest.fixture
def _undrawn(monkeypatch):
    """Leave out the figures of a folder: they take most of the time of a small sweep."""
    monkeypatch.setattr(Document, "figures", {})


def test_every_flow_and_every_descent_of_a_sweep_is_that_of_the_closed_form(whole):
    dataset = whole.to_dataset()
    assert dict(dataset.sizes) == {"scale": 2, "curvature": 2, "repetition": 2, "run": 4}
    assert dataset.dynamics.values.tolist() == ["gradient_flow", *3 * ["gradient_descent"]]
    np.testing.assert_array_equal(dataset.learning_rate, [np.nan, 0.02, 0.1, 9.0])
    for scale, curvature, repetition in ((0.5, 0.2, 1), (0.8, 0.9, 0), (0.8, 0.2, 1)):
        cells = dataset.sel(scale=scale, curvature=curvature, repetition=repetition)
        first = np.asarray(start(start_key(5, f"curvature={curvature}, scale={scale}", repetition), scale))
        curvatures = np.array([3.0, curvature])
        assert cells.initial_risk == pytest.approx(np.sum(curvatures * first**2) / 2, rel=1e-14)
        assert cells.initial_sharpness == pytest.approx(3.0, rel=1e-14)
        assert cells.initial_gradient_norm == pytest.approx(np.linalg.norm(curvatures * first), rel=1e-14)
        flow = first * np.exp(-2 * curvatures)
        for run, rate in enumerate([None, 0.02, 0.1]):
            arrived = cells.isel(run=run)
            end = flow if rate is None else first * (1 - rate * curvatures) ** 20
            rounding = 1e-7 if rate is None else 1e-12
            assert arrived.outcome == (Outcome.TIME_LIMIT if rate is None else Outcome.STEP_LIMIT)
            assert arrived.end_time == pytest.approx(2 if rate is None else 20 * rate)
            assert arrived.final_risk == pytest.approx(np.sum(curvatures * end**2) / 2, rel=rounding)
            assert arrived.final_gradient_norm == pytest.approx(np.linalg.norm(curvatures * end), rel=rounding)
            assert arrived.final_size == pytest.approx(np.linalg.norm(end), rel=rounding)
            assert arrived.final_sharpness == pytest.approx(3.0, rel=1e-12)
            if rate is not None:
                assert arrived.steps == arrived.steps_asked == 20
                assert arrived.distance_to_flow == pytest.approx(np.linalg.norm(end - flow), rel=1e-6)
        assert cells.outcome[3] == Outcome.DIVERGED
        assert np.isnan(cells.final_sharpness[3])


def test_a_cell_does_not_depend_on_which_others_run_nor_in_what_order(whole):
    over = {"learning_rate": [0.02], "curvature": [0.9], "scale": [0.8, 1.5, 0.5]}
    fewer = flowsim.sweep(start, bowl, over, **OPTIONS | {"repetitions": 1}).to_dataset()
    there = whole.to_dataset().isel(run=[0, 1], repetition=[0], curvature=[1])
    for name in ("final_risk", "final_sharpness", "distance_to_flow", "steps", "final_size"):
        here = fewer[name].sel(scale=[0.5, 0.8]).transpose(*there[name].dims)
        np.testing.assert_array_equal(here, there[name], err_msg=name)


@pytest.mark.usefixtures("_undrawn")
def test_an_interrupt_loses_no_finished_block_and_more_values_and_repetitions_compute_these_alone(
    tmp_path, monkeypatch
):
    started, folder = [], tmp_path / "mine"

    def interrupted(block, environment):
        started.append(block)
        if len(started) > 2:
            raise KeyboardInterrupt
        return compute.compute(block, environment)

    with monkeypatch.context() as patch:
        patch.setattr(WORKERS, "compute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            flowsim.sweep(start, bowl, {"scale": [0.5]}, repetitions=3, folder=folder, **FLOW)
    assert sorted(path.name for path in folder.iterdir()) == [".blocks"]

    def blocks():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*.block")}

    first = blocks()
    assert len(first) == 2
    over = {"scale": [0.5, 0.8]}
    more = flowsim.sweep(start, bowl, over, repetitions=3, folder=folder, **FLOW)
    assert len(blocks()) == 6
    assert first.items() <= blocks().items()
    assert flowsim.sweep(start, bowl, over, repetitions=3, **FLOW).dataset.identical(more.dataset)
    stored = flowsim.open_results(folder)
    assert stored.required("sweep").identical(more.dataset)
    assert len(stored.summary["sweep"]["rows"]) == 2


@pytest.mark.slow
def test_two_processes_find_what_one_finds():
    over, options = {"scale": [0.5], "learning_rate": [0.1]}, {"repetitions": 2, "steps": 5, "flow": False}
    one, two = (flowsim.sweep(start, bowl, over, jobs=jobs, **options) for jobs in (1, 2))
    xarray.testing.assert_identical(two.dataset, one.dataset)


@pytest.mark.slow
def test_a_network_of_equinox_with_cross_entropy_is_swept_with_descents_beside_the_flow():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 4)), np.arange(12) % 3
    problem = flowsim.EmpiricalRisk(X, y, flowsim.losses.CrossEntropy())

    def network(key, width):
        return eqx.nn.MLP(4, 3, width, depth=1, activation=jax.nn.tanh, key=key)

    flow, accuracy = {"solver": diffrax.Dopri5(), "t1": 1.0}, flowsim.probes.Accuracy()
    over = {"width": [5], "learning_rate": [0.1]}
    result = flowsim.sweep(network, problem, over, steps=20, probes=[accuracy], **flow)
    assert result.failures == ()
    cells, first = result.dataset.isel(repetition=0), network(start_key(0, "width=5", 0), 5)
    assert (cells.outcome[:, 0] == Outcome.TIME_LIMIT).all()
    alone = flowsim.integrate(first, problem, ts=[], **flow)
    # Measured by another program, which rounds otherwise.
    np.testing.assert_allclose(cells.final_risk[0, 0], alone.final_risk, rtol=1e-14)
    descent = flowsim.descend(first, problem, learning_rate=0.1, steps=20)
    np.testing.assert_allclose(cells.final_risk[0, 1], descent.final_risk, rtol=1e-12)
    right = jnp.mean(jnp.argmax(jax.vmap(alone.network)(jnp.asarray(X)), axis=1) == y)
    np.testing.assert_allclose(cells.final_accuracy[0, 0], right)
    assert "did not reach their limit" not in str(result)  # it was to end at t1
    assert "as asked" in str(result)


def test_options_of_the_flow_are_swept_from_the_same_starts():
    over = {"rtol": [1e-4, 1e-8], "scale": [0.5], "t1": [1.0, 2.0]}
    flows = flowsim.sweep(start, bowl(), over, solver=diffrax.Dopri5()).dataset.isel(scale=0, repetition=0, run=0)
    assert np.ptp(flows.initial_risk.values) == 0
    assert (flows.steps.sel(rtol=1e-4) < flows.steps.sel(rtol=1e-8)).all()
    end = np.asarray(start(start_key(0, "scale=0.5", 0), 0.5)) * np.exp(-np.outer([1.0, 2.0], [3.0, 0.4]))
    np.testing.assert_allclose(flows.final_risk.sel(rtol=1e-8), end**2 @ [1.5, 0.2], rtol=1e-6)


def test_a_cell_whose_gradient_is_nan_at_the_start_fails_and_the_others_go_on():
    root = flowsim.Risk(lambda w: (jnp.linalg.norm(w) - 1) ** 2)
    over = {"scale": [0.0, 0.5], "learning_rate": [0.1, 0.2]}
    result = flowsim.sweep(start, root, over, steps=20, **FLOW)
    cells = [f"scale=0.0, repetition 0, {run}" for run in ("start", "flow", "learning rate 0.1", "learning rate 0.2")]
    assert [failure.cell for failure in result.failures] == cells
    assert all("the gradient is NaN at " in failure.message for failure in result.failures)
    assert (result.dataset.outcome.sel(scale=0.5) > Outcome.RUNNING).all()


def test_a_cell_whose_network_cannot_be_made_is_named_and_the_others_go_on():
    unlucky = jax.random.key_data(start_key(0, "scale=0.8", 1))

    def sometimes(key, scale):
        if np.array_equal(jax.random.key_data(key), unlucky):
            raise RuntimeError("no luck")
        return start(key, scale)

    result = flowsim.sweep(sometimes, bowl(), {"scale": [0.5, 0.8]}, repetitions=2, **FLOW)
    (failure,) = result.failures
    assert (failure.cell, failure.message) == ("scale=0.8, repetition 1", "RuntimeError: no luck")
    assert "failed: scale=0.8, repetition 1: RuntimeError: no luck" in " ".join(str(result).split())
    assert (result.dataset.outcome.values.ravel() == Outcome.TIME_LIMIT).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((start, bowl, {"scael": [1.0]}), {}, ValueError, "make_network needs scale"),
        ((start, bowl, {"scale": [1.0], "widht": [1]}), {}, ValueError, r"over\['widht'\]: nothing takes that name"),
        ((start, bowl, {"scale": []}), {}, ValueError, r"over\['scale'\] has no values"),
        ((start, bowl, {"scale": [1.0, 1]}), {}, ValueError, r"over\['scale'\] has 1 twice"),
        ((start, bowl, {"scale": "0.5"}), {}, ValueError, r"over\['scale'\] must be a list"),
        ((start, bowl, {"scale": [object()]}), {}, ValueError, r"over\['scale'\] has a object"),
        ((start, bowl, {"scale": [1.0], "learning_rate": [-0.1]}), {}, ValueError, "learning_rate must be a positive"),
        ((start, bowl, {"scale": [1.0]}), {"repetitions": 2.0}, ValueError, "repetitions must be a whole number"),
        ((start, bowl, {"scale": [1.0]}), {"flow": False}, ValueError, "nothing would run"),
        ((start, bowl, {"scale": [1.0]}), {"rtol": 2.0}, ValueError, "the cell scale=1.0: ValueError: .*rtol"),
        ((lambda: 1, bowl, {}), {"repetitions": 2}, ValueError, "make_network takes no key"),
        ((lambda key, scale: 1 / 0, bowl, {"scale": [2]}), {}, ValueError, "the cell scale=2: ZeroDivisionError"),
        ((start, bowl, {"scale": range(4000)}), {"repetitions": 4000}, ValueError, "a sweep of 16000000 runs"),
        ((start, 3.0, {"scale": [1.0]}), {}, TypeError, "expected a flowsim.LinearRegression"),
        ((start, bowl, [("scale", [1.0])]), {}, TypeError, "over must map names to lists"),
        ((start, bowl, {"scale": [1.0]}), {"optimizer": "adam"}, TypeError, "write optimizer=flowsim.Adam"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_runs(computed, arguments, options, error, message):
    with pytest.raises(error, match=message):
        flowsim.sweep(*arguments, **options)
    assert computed == []


def test_the_key_is_given_by_name_or_as_the_first_argument_and_a_problem_may_do_without():
    def by_name(*, scale, key):
        return start(key, scale)

    over, options = {"scale": [0.5], "curvature": [0.2]}, {"repetitions": 2, **FLOW}
    expected = flowsim.sweep(start, bowl, over, **options).dataset.final_risk
    for problem in (bowl, lambda key, curvature: bowl(curvature), functools.partial(bowl)):
        risk = flowsim.sweep(by_name, problem, over, **options).dataset.final_risk
        np.testing.assert_array_equal(risk, expected)


def test_problems_are_drawn_from_one_key_whatever_the_repetition():
    keys = []

    def drawn(key):
        keys.append(jax.random.key_data(key).tolist())
        return bowl()

    flowsim.sweep(start, drawn, {"scale": [0.5, 0.8]}, repetitions=2, seed=1, **FLOW)
    flowsim.sweep(start, drawn, {"scale": [0.5]}, seed=2, **FLOW)
    assert keys[0] != keys[1]
    assert len(keys) == 2  # one for each sweep, as it takes no values


@pytest.mark.slow
def test_words_and_widths_are_values_too():
    def shaped(key, widths, start):
        return {"small": 0.1, "large": 0.5}[start] * jax.random.normal(key, widths)

    result = flowsim.sweep(shaped, bowl(), {"widths": [(2,)], "start": ["small", "large"]}, **FLOW)
    assert result.failures == ()
    assert result.dataset.widths.values.tolist() == ["(2,)"]
    assert result.dataset.start.values.tolist() == ["small", "large"]
    assert result.figures()["excess_risk"]


@pytest.mark.slow
@pytest.mark.usefixtures("_undrawn")
def test_a_folder_with_another_sweep_is_refused_in_words_and_given_up_when_told_to(tmp_path, computed):
    options = {"folder": tmp_path / "mine", **FLOW}
    flowsim.sweep(start, bowl(), {"scale": [0.5]}, **options)
    files = [tmp_path / "mine" / name for name in ("sweep.nc", "summary.json")]
    before = [file.read_bytes() for file in files]
    del computed[:]

    def other(key, scale):
        return start(key, 2 * scale)

    for make_network, problem, scale, wrong, match in (
        (start, bowl(), 0.5, {"seed": 1}, r"holds other results \(the sweep.seed is 0 there and 1 here\)"),
        (start, bowl(), 0.5, {"rtol": 1e-5}, r"the sweep.options is '\w+' there and '\w+' here"),
        (start, bowl(), 0.8, {}, r"the sweep.over.scale is \[0.5\] there and \[0.8\] here"),
        (other, bowl(), 0.5, {}, r"the sweep.make_network is 'test_sweeping:start' there and 'test_sw"),
        (start, bowl(0.7), 0.5, {}, r"the sweep.code or data of problem is '\w+' there"),
    ):
        with pytest.raises(StoreError, match=match):
            flowsim.sweep(make_network, problem, {"scale": [scale]}, **options | wrong)
    assert computed == []
    assert [file.read_bytes() for file in files] == before
    replaced = flowsim.sweep(other, bowl(), {"scale": [0.5]}, **options, overwrite=True)
    assert flowsim.open_results(tmp_path / "mine").required("sweep").identical(replaced.dataset)


def test_a_folder_of_a_scenario_is_not_taken(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "scenario.yaml").write_text("scenario: {}\n")
    with pytest.raises(StoreError, match=r"holds other results \(scenario.yaml is there\)"):
        flowsim.sweep(start, bowl(), {"scale": [0.5]}, folder=tmp_path / "mine")


def test_a_function_that_other_processes_cannot_have_is_refused_in_words(monkeypatch):
    with pytest.raises(ValueError, match=r"jobs=2: a function, or an option, cannot be sent .* top level of a module"):
        flowsim.sweep(lambda key, scale: start(key, scale), bowl(), {"scale": [0.5]}, jobs=2)
    with monkeypatch.context() as patch:
        patch.setattr(make, "__module__", "__main__")
        patch.setitem(sys.modules, "__main__", own_networks)
        patch.delattr(own_networks, "__file__")
        with pytest.raises(ValueError, match=r"other processes cannot import make from this session"):
            flowsim.sweep(make, bowl(), {"scale": [0.5]}, jobs=2)
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match='write the call under if __name__ == "__main__":'):
        flowsim.sweep(start, bowl(), {"scale": [0.5]}, jobs=2)


def test_what_cannot_be_known_again_is_refused_with_a_folder_and_runs_without(tmp_path):
    lock = threading.Lock()

    def network(key, scale):
        with lock:
            return start(key, scale)

    assert flowsim.sweep(network, bowl(), {"scale": [0.5]}, **FLOW).failures == ()
    with pytest.raises(ValueError, match=r"folder: what is kept has to be known again"):
        flowsim.sweep(network, bowl(), {"scale": [0.5]}, folder=tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.slow
def test_single_precision_stays_single_and_the_setting_of_jax_as_it_was():
    def single(key, scale):
        return start(key, scale).astype(jnp.float32)

    flow = {"solver": diffrax.Dopri5(), "t1": 1.0}
    cells = flowsim.sweep(single, bowl(), {"scale": [0.5]}, **flow).dataset
    alone = flowsim.integrate(single(start_key(0, "scale=0.5", 0), 0.5), bowl(), ts=[], **flow)
    np.testing.assert_allclose(cells.final_risk.item(), float(alone.final_risk), rtol=1e-6)
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        narrow = flowsim.sweep(start, bowl(), {"scale": [0.5]}, **flow)
        assert not jax.config.jax_enable_x64
    assert jax.config.jax_enable_x64
    assert narrow.failures == ()


def test_progress_is_told_in_words_and_flows_that_do_not_converge_are_counted():
    messages, options = [], FLOW | {"t1": np.inf, "max_steps": 2}
    result = flowsim.sweep(start, bowl(), {"scale": [0.5]}, repetitions=2, progress=messages.append, **options)
    assert (result.dataset.outcome == Outcome.STEP_LIMIT).all()
    assert "2 flows did not reach their limit" in str(result)
    assert messages == ["sweep", "sweep: 1 of 2 initializations", "sweep: 2 of 2 initializations"]


@pytest.mark.slow
@pytest.mark.usefixtures("_undrawn")
def test_flow_and_descent_of_a_sweep_stop_by_one_criterion_which_is_not_convergence(tmp_path):
    options = {"steps": 400, "stopping": flowsim.Stopping(excess_risk=0.001), **FLOW, "t1": np.inf}
    over = {"scale": [0.4], "learning_rate": [0.05]}
    swept = flowsim.sweep(start, bowl(), over, folder=tmp_path / "swept", **options)
    assert np.all(swept.dataset["outcome"] == Outcome.RISK_REACHED)
    assert np.all(swept.dataset["final_excess_risk"] <= 0.001)
    assert np.all(swept.dataset["final_excess_risk"] > 1e-4)
    rows = flowsim.open_results(tmp_path / "swept").summary["sweep"]["rows"]
    assert [(row["converged"], row["as_asked"]) for row in rows] == [(0.0, 1.0)] * 2
    assert "did not reach" not in str(swept)


def test_the_legend_names_an_edge_of_stability_where_a_line_shows_it(whole):
    dataset = whole.to_dataset()
    of_adam = dataset.assign_coords(threshold_of=dataset.threshold_of.copy(data=4 * ["another curvature"]))
    for name, descents in ((r"$2/\eta$", dataset), (None, of_adam)):
        (legend,) = flowsim.Sweep(descents, ()).figures()["sharpness"].legends
        texts = {text.get_text() for text in legend.get_texts()}
        assert texts & {r"$2/\eta$", "edge of stability"} == {name} - {None}
