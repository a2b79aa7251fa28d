"""Every run is compared and drawn with its own edge of stability, on the time axis of the flow that it follows."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray
from jaxtyping import ArrayLike

import flowsim
from flowsim import report
from flowsim.cli import main
from flowsim.columns import CURVATURE, THRESHOLD, Edge, Run, run_coordinates, runs_of
from flowsim.scenarios import read_scenario
from flowsim.sweeps import BlockStore, run_sweep
from flowsim.sweeps.workers import InProcess

COMMON = """
data: {kind: gaussian, samples: 20, features: 3, noise: 0.5}
network: {kind: mlp, depth: 2, width: 3, scale: 0.6, activation: tanh}
"""
SCENARIO = COMMON + "descent: {learning_rates: [0.01], optimizer: {kind: sgd, batch: 50}}"
SWEEP = f"""{COMMON}
sweep:
  over: {{network.scale: [0.4]}}
  flow: false
  descent:
    - {{learning_rates: [0.02], steps: 30, optimizer: {{kind: heavy_ball, momentum: 0.5}}}}
    - {{learning_rates: [0.02], steps: 30, optimizer: {{kind: sgd, batch: 5}}}}
"""


@pytest.fixture(scope="module")
def parts():
    X = np.random.default_rng(0).standard_normal((12, 3))
    network = eqx.nn.MLP(3, "scalar", 4, 1, jnp.tanh, key=jax.random.key(0))
    return network, flowsim.EmpiricalRisk(X, np.sin(2 * X[:, 0]))


def heavy(eta):
    return flowsim.HeavyBall(eta, 0.75)


@pytest.fixture(scope="module")
def ball(parts):
    return flowsim.compare(*parts, [0.002, 0.02], optimizer=heavy, t1=4.0)


@pytest.fixture(scope="module")
def adaptive(parts):
    """RMSProp with a learning rate so large that the threshold is passed at the start."""
    probes = [flowsim.probes.PreconditionedSharpness()]
    return flowsim.compare(*parts, [0.5], optimizer=flowsim.RMSProp, steps=20, t1=1.0, probes=probes)


def test_the_edges_of_the_kinds():
    assert Edge.of(flowsim.GradientDescent(0.1)) == Edge.of_gradient_descent(0.1) == Edge(20.0, "sharpness")
    assert Edge.of(heavy(0.1)) == Edge(35.0, "sharpness")
    assert Edge.of(flowsim.HeavyBall(0.1, 0.0)) == Edge(20.0)  # it is gradient descent
    assert Edge.of(flowsim.Adam(0.1, b1=0.5)) == Edge(60.0, "preconditioned_sharpness")
    assert np.isnan(Edge.of(flowsim.SGD(0.1, 5)).threshold)


@pytest.mark.slow
def test_momentum_is_compared_with_the_flow_at_the_times_of_its_steps(ball):
    for run, eta, steps in zip(ball.descents, (0.002, 0.02), (500, 50), strict=True):
        assert int(run.trajectory.steps) == steps  # ⌈t1 (1 − β)/η⌉
        assert float(run.trajectory.time) == pytest.approx(4.0, rel=1e-12)
        assert run.distance_time == pytest.approx(4.0, rel=1e-12)
        assert run.learning_rate == eta
    # Of first order in η.
    close, far = (run.distance_to_flow for run in ball.descents)
    assert far / close == pytest.approx(10, rel=0.3)
    assert close < 0.02


@pytest.mark.slow
def test_table_data_set_and_folder_keep_the_edge_and_give_it_back(ball, adaptive, tmp_path):
    data = ball.to_dataset()
    np.testing.assert_allclose(data[THRESHOLD], [np.inf, 3.5 / 0.002, 3.5 / 0.02])
    assert list(data[CURVATURE].values) == ["sharpness"] * 3
    assert [run.threshold for run in runs_of(data)] == [np.inf, 3.5 / 0.002, 3.5 / 0.02]
    assert [row["threshold"] for row in report.rows(data)] == [None, 3.5 / 0.002, 3.5 / 0.02]
    assert "1750" in str(ball)
    assert "2/η" not in str(ball)
    assert "stable up to a preconditioned sharpness of 4" in str(adaptive)
    _, rmsprop = runs = runs_of(adaptive.to_dataset())
    assert rmsprop.threshold_of("preconditioned_sharpness") == pytest.approx(2 / 0.5)
    assert np.isnan(rmsprop.threshold)
    adaptive.save(tmp_path / "mine")
    stored = flowsim.open_results(tmp_path / "mine")
    assert [run.edge for run in runs_of(stored.trajectories)] == [run.edge for run in runs]
    assert stored.summary["descent"][0]["threshold"] == adaptive.descents[0].edge.threshold
    assert stored.summary["descent"][0]["threshold_of"] == adaptive.descents[0].edge.curvature


def test_a_data_set_without_edges_has_those_of_gradient_descent():
    """As they were stored before other descents were."""
    runs = (Run("gradient_flow"), Run("gradient_descent", 0.1))
    dataset = xarray.Dataset(coords=run_coordinates(runs))
    assert dataset[THRESHOLD].values.tolist() == [np.inf, 20.0]
    assert runs_of(dataset) == runs_of(dataset.drop_vars([THRESHOLD, CURVATURE])) == runs
    assert all(run.has_edge_of_descent for run in runs)


class Plain(flowsim.Descent):
    """Gradient descent that says another threshold of itself."""

    learning_rate: ArrayLike
    edge: ArrayLike

    def remember(self, weights):
        return None

    def step(self, weights, gradient, memory):
        return jax.tree.map(lambda w, g: w - self.learning_rate * g, weights, gradient), None

    def stability_threshold(self):
        return self.edge


@pytest.mark.slow
def test_the_crossing_is_that_of_the_threshold_of_the_descent(parts):
    def run(edge):
        options = {"steps": 100, "t1": 5.0, "optimizer": lambda eta: Plain(eta, jnp.asarray(edge))}
        return flowsim.compare(*parts, [0.05], **options).descents[0]

    free = run(2 / 0.05)
    sharpness, times = np.asarray(free.trajectory.sharpness), np.asarray(free.trajectory.times)
    rising = sharpness[: sharpness.argmax() + 1]
    middle = (rising[0] + rising[-1]) / 2
    assert free.crossing_time is None  # far below 2/η
    assert sharpness.argmax() > 5
    after = np.flatnonzero(sharpness >= middle)[0]
    assert times[after - 1] < run(middle).crossing_time <= times[after]


@pytest.mark.slow
def test_a_preconditioned_run_crosses_by_its_preconditioned_sharpness_where_that_is_recorded(adaptive, parts):
    run = adaptive.descents[0]
    first = np.flatnonzero(np.asarray(run.trajectory.diagnostics["preconditioned_sharpness"]) >= 2 / 0.5)[0]
    assert run.crossing_time == pytest.approx(float(run.trajectory.times[first]), abs=0.5)
    options = {"optimizer": flowsim.RMSProp, "steps": 20, "t1": 1.0, "sharpness": False}
    assert flowsim.compare(*parts, [0.5], **options).descents[0].crossing_time is None


def levels(figure):
    return [line.get_ydata()[0] for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1]


@pytest.mark.slow
def test_figures_draw_the_edge_of_each_run_and_no_other(adaptive, parts):
    fast = flowsim.compare(*parts, [0.5], optimizer=heavy, steps=20, t1=1.0)
    drawn = report.sharpness_figure(fast.to_dataset())
    assert 3.5 / 0.5 in levels(drawn)
    assert 2 / 0.5 not in levels(drawn)
    assert drawn.axes[0].get_xlabel() == r"time $t$"
    assert all(abs(level - 2 / 0.5) > 1e-9 for level in levels(report.sharpness_figure(adaptive.to_dataset())))
    assert {"sharpness", "preconditioned_sharpness"} <= set(report.figures(adaptive.to_dataset()))


def test_a_bare_transformation_is_not_compared_before_its_time_is_said(parts):
    with pytest.raises(TypeError, match="time_per_step"):
        flowsim.compare(*parts, [0.02], optimizer=optax.sgd, steps=5)


@pytest.mark.slow
def test_a_sweep_has_the_times_and_edges_of_its_optimizers(write, tmp_path):
    result = run_sweep(read_scenario(write(SWEEP)), tmp_path, BlockStore(tmp_path / "blocks"), InProcess())
    assert result.failures == ()
    dataset = result.dataset
    assert list(dataset["dynamics"].values) == ["heavy_ball", "sgd"]
    np.testing.assert_allclose(dataset["end_time"].isel(scale=0, repetition=0), [1.2, 0.6])
    np.testing.assert_allclose(dataset[THRESHOLD], [150.0, np.nan])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCENARIO, "descent.optimizer: batch=50 is more than the 20 samples: write 20 or fewer"),
        (SWEEP.replace("batch: 5", "batch: 50"), r"sweep.descent\[1\].optimizer: batch=50 is more than the 20 samples"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_in_one_line(text, message, tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text(text)
    assert main([str(tmp_path / "bad.yaml"), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert re.search(message, error)
