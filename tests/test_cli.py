import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flowsim import cli

SMALL = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
descent: {learning_rates: [0.05, 5.0], steps: 300}
"""
# all_keys.yaml is the experiment of residual.yaml, and a scenario with a figure is run by the tests of that figure.
SCENARIOS = Path(__file__).parents[1] / "scenarios"
SHIPPED = {path: path.read_text() for path in sorted(SCENARIOS.glob("*.yaml")) if path.stem != "all_keys"}
SHIPPED = {path: text for path, text in SHIPPED.items() if "\nfigure:" not in text}
SWEEPS = [path for path, text in SHIPPED.items() if "\nsweep:" in text]
TIMED = [path for path, text in SHIPPED.items() if "t1:" in text]
SINGLE = [path for path in SHIPPED if path not in [*SWEEPS, *TIMED]]


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(SMALL)
    assert cli.main([str(folder / "small.yaml"), "--out", str(folder / "out")]) == 0
    return folder / "out" / "small"


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_run_leaves_scenario_summary_trajectories_and_figures(results):
    import xarray

    names = ["distance", "sharpness", "squared_distance"]
    figures = [f"figures/{name}.{suffix}" for name in names for suffix in ("pdf", "png")]
    assert files(results) == sorted([*figures, "report.html", "scenario.yaml", "summary.json", "trajectories.nc"])
    with xarray.open_dataset(results / "trajectories.nc", engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["learning_rate"], [np.nan, 0.05, 5.0])
        assert dataset["dynamics"].values.tolist() == ["gradient_flow", "gradient_descent", "gradient_descent"]


@pytest.mark.slow
def test_the_summary_holds_the_numbers_of_the_table(results):
    summary = json.loads((results / "summary.json").read_text())
    flow = summary["flow"]
    assert flow["outcome"] == "CONVERGED"
    assert flow["gradient_norm"] <= 1e-8
    assert {"time", "steps", "excess_risk", "sharpness"} <= flow.keys()
    gentle, wild = summary["descent"]
    assert gentle["outcome"] == "CONVERGED"
    assert {"learning_rate", "steps", "excess_risk", "sharpness", "distance_to_flow"} <= gentle.keys()
    assert wild["outcome"] == "DIVERGED"
    assert wild["sharpness"] is None
    assert summary["bounds"]["lower"] <= flow["sharpness"]
    assert summary["critical_learning_rate"] == 2 / summary["bounds"]["lower"]


@pytest.mark.slow
def test_the_same_scenario_gives_the_same_bytes(results, tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    assert cli.main([str(path), "--out", str(tmp_path / "again")]) == 0
    again = tmp_path / "again" / "small"
    assert files(again) == files(results)
    for name in ("summary.json", "scenario.yaml", "figures/sharpness.png", "figures/distance.pdf"):
        assert (again / name).read_bytes() == (results / name).read_bytes(), name


@pytest.mark.slow
def test_another_scenario_of_the_same_name_is_not_overwritten_unasked(results, tmp_path, capsys):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    before = (results / "summary.json").read_bytes()
    assert cli.main([str(path), "--out", str(results.parent), "--set", "seed=1"]) == 2
    message = capsys.readouterr().err
    assert "seed" in message
    assert "--overwrite" in message
    assert (results / "summary.json").read_bytes() == before


@pytest.mark.slow
def test_the_zero_network_is_reported_as_a_point_that_does_not_move(scenario, tmp_path, capsys):
    arguments = [str(scenario), "--out", str(tmp_path / "out"), "--set", "network.scale=0"]
    assert cli.main(arguments) == 1
    assert " ".join(capsys.readouterr().out.split()).count("nothing moves") == 1


@pytest.mark.slow
def test_single_precision_and_a_nonlinear_network_run(scenario, tmp_path):
    arguments = [str(scenario), "--out", str(tmp_path / "out"), "--set", "precision=float32"]
    options = ["network.activation=tanh", "flow.gradient_norm=1e-3", "descent.learning_rates=[0.05]"]
    code = cli.main([*arguments, *[word for option in options for word in ("--set", option)]])
    assert code == 0
    summary = json.loads((tmp_path / "out" / "small" / "summary.json").read_text())
    assert summary["bounds"] is None
    assert summary["flow"]["outcome"] == "GRADIENT_REACHED"  # the risk falls towards no weights in sight
    assert summary["flow"]["excess_risk"] is None
    assert 0 < summary["flow"]["risk"] < 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no scenario given"),
        (["missing.yaml"], "missing.yaml"),
        (["small.yaml", "--set", "network.scal=1"], "scale"),
        (["small.yaml", "--set", "network.width"], "KEY=VALUE"),
        (["small.yaml", "other/small.yaml"], "same folder"),
        (["table.yaml"], "row 3"),
        (["small.yaml", "--out", "small.yaml"], "is a file"),
    ],
)
def test_bad_input_gets_one_message_exit_code_2_and_writes_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    for place in ("small.yaml", "other/small.yaml"):
        Path(place).write_text(SMALL)
    Path("table.csv").write_text("a,b,y\n1,2,3\n4,,6\n")
    data = "data: {kind: file, path: table.csv, target: y}"
    Path("table.yaml").write_text(f"{data}\nnetwork: {{kind: mlp, depth: 2, scale: 0.5}}\n")
    before = files(tmp_path)
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert error.startswith("flowsim: ")
    assert files(tmp_path) == before


def test_the_schema_is_printed_for_editors(monkeypatch, capsys):
    schema = {"properties": {"seed": {"type": "integer"}}}
    monkeypatch.setattr("flowsim.scenarios.scenario_json_schema", lambda: schema)
    assert cli.main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema


@pytest.mark.slow
def test_an_interrupt_between_files_leaves_whole_ones_and_exit_code_130(
    results, scenario, tmp_path, monkeypatch, capsys
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupt)
    assert cli.main([str(scenario), "--out", str(tmp_path / "out")]) == 130
    assert "interrupted" in capsys.readouterr().err
    left = tmp_path / "out" / "small"
    assert set(files(left)) <= set(files(results))
    for name in set(files(left)) - {"trajectories.nc"}:
        assert (left / name).read_bytes() == (results / name).read_bytes(), name


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_half_written_and_exit_code_130(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(SMALL.replace("steps: 300", "steps: 1000000000").replace("0.05, 5.0", "1.0e-9"))
    command = [sys.executable, "-m", "flowsim", str(path), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    try:
        while not (tmp_path / "out" / "long" / ".lock").exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(3)  # into the descent, which would take hours
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


# Of what takes minutes, a part that visits every branch.
LIGHTER = {
    "critical_learning_rate": [
        "sweep.over={network.depth: [5], data.condition: [1, 10]}",
        "sweep.repetitions=1",
        "sweep.critical={lowest: 0.005, highest: 20.0, steps: 2000, precision: 0.1}",
    ],
    "diabetes": ["descent.steps=2000"],
    "digits": ["descent.learning_rates=[0.1]", "sharpness.records=12", "flow.t1=120"],
    "digits_cross_entropy": ["descent.learning_rates=[0.4]", "sharpness.records=12", "flow.t1=60"],
    "edge_of_stability": ["descent={learning_rates: [0.1], steps: 1000}", "flow.models=[gradient, central]"],
    "lemma3": ["lemma_3.initializations=20", "lemma_3.widths=[5, 10]"],
    "theory_conditioning": ["theory.repetitions=1", "theory.conditions=[1.0, 250.0]"],
    "theory_residual": ["theory.depths=[5]"],
    "theory_small_scale": ["theory.depths=[3]"],
}


def run_lightly(path, folder):
    options = [word for option in LIGHTER.get(path.stem, []) for word in ("--set", option)]
    assert cli.main([str(path), "--out", str(folder), "--jobs", "1", *options]) == 0
    return json.loads((folder / path.stem / "summary.json").read_text())


def shipped(paths):
    return [pytest.param(path, marks=pytest.mark.slow, id=path.stem) for path in paths]


@pytest.mark.parametrize("path", shipped(SINGLE))
def test_every_scenario_shipped_converges(path, tmp_path):
    flow = run_lightly(path, tmp_path)["flow"]
    assert flow["outcome"] == "CONVERGED"
    assert flow["gradient_norm"] <= 1e-8


@pytest.mark.parametrize("path", shipped(TIMED))
def test_a_scenario_shipped_that_ends_by_its_time_says_so_and_classifies_what_it_has_not_seen(path, tmp_path):
    flow = run_lightly(path, tmp_path)["flow"]
    assert flow["outcome"] == "TIME_LIMIT"
    assert flow["probes"]["test_accuracy"] > 0.9


@pytest.mark.parametrize("path", shipped(SWEEPS))
def test_every_flow_of_a_sweep_shipped_converges(path, tmp_path):
    rows = run_lightly(path, tmp_path)["sweep"]["rows"]
    assert [(row["method"], row["converged"]) for row in rows] == [("GF", 1.0)] * 2
