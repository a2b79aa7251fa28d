import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flowsim import cli
from flowsim.report.document import Document

SMALL = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
descent: {learning_rates: [0.05, 5.0], steps: 300}
"""
# all_keys.yaml is the experiment of residual.yaml, and a scenario with a figure is run by the tests of that figure.
SHIPPED = [
    path
    for path in sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))
    if path.stem != "all_keys" and "\nfigure:" not in path.read_text()
]


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
    summary = json.loads((results / "summary.json").read_text())
    flow, (gentle, wild) = summary["flow"], summary["descent"]
    assert [run["outcome"] for run in (flow, gentle, wild)] == ["CONVERGED", "CONVERGED", "DIVERGED"]
    assert flow["gradient_norm"] <= 1e-8
    assert {"time", "steps", "excess_risk", "sharpness"} <= flow.keys()
    assert {"learning_rate", "steps", "excess_risk", "sharpness", "distance_to_flow"} <= gentle.keys()
    assert wild["sharpness"] is None
    assert summary["bounds"]["lower"] <= flow["sharpness"]
    assert summary["critical_learning_rate"] == 2 / summary["bounds"]["lower"]


@pytest.mark.slow
def test_the_same_scenario_gives_the_same_bytes_and_another_does_not_overwrite_them(results, tmp_path, capsys):
    arguments = [str(results.parents[1] / "small.yaml"), "--out", str(tmp_path / "again")]
    assert cli.main(arguments) == 0
    again = tmp_path / "again" / "small"
    assert files(again) == files(results)
    capsys.readouterr()
    assert cli.main([*arguments, "--set", "seed=1"]) == 2
    message = capsys.readouterr().err
    assert "seed" in message
    assert "--overwrite" in message
    for name in ("summary.json", "scenario.yaml", "figures/sharpness.png", "figures/distance.pdf"):
        assert (again / name).read_bytes() == (results / name).read_bytes(), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no scenario given"),
        (["missing.yaml"], "missing.yaml"),
        (["small.yaml", "--set", "network.scal=1"], "scale"),
        (["small.yaml", "other/small.yaml"], "same folder"),
        (["small.yaml", "--out", "small.yaml"], "is a file"),
    ],
)
def test_bad_input_gets_one_message_exit_code_2_and_writes_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    for place in ("small.yaml", "other/small.yaml"):
        Path(place).write_text(SMALL)
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
def test_an_interrupt_leaves_nothing_half_written_and_exit_code_130(tmp_path, quick_environment):
    path = tmp_path / "long.yaml"
    path.write_text(SMALL.replace("steps: 300", "steps: 1000000000").replace("0.05, 5.0", "1.0e-9"))
    command = [sys.executable, "-m", "flowsim", str(path), "--out", str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, env=quick_environment)
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
OVER = "{network.depth: [5], data.condition: [1, 10]}"
CRITICAL = "{lowest: 0.005, highest: 20.0, steps: 500, precision: 0.1}"
LIGHTER = {
    "critical_learning_rate": [f"sweep={{over: {OVER}, critical: {CRITICAL}}}"],
    "diabetes": ["descent={learning_rates: [0.01], steps: 500}"],
    "digits": ["descent.learning_rates=[0.1]", "flow.t1=120"],
    "digits_cross_entropy": ["descent.learning_rates=[0.4]", "flow.t1=60"],
    "edge_of_stability": ["descent={learning_rates: [0.1], steps: 200}", "flow={models: [gradient], limits: 2}"],
    "lemma3": ["lemma_3.initializations=20", "lemma_3.widths=[5, 10]"],
    "multivariate": ["descent={learning_rates: [0.05], steps: 200}"],
    "residual": ["descent={learning_rates: [0.1], steps: 200}"],
    "small_scale": ["descent={learning_rates: [0.1], steps: 200}"],
    "theory_conditioning": ["theory.repetitions=1", "theory.conditions=[1.0, 250.0]"],
    "theory_residual": ["theory.depths=[5]"],
    "theory_small_scale": ["theory.depths=[3]"],
}


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_scenario_shipped_converges_or_classifies_what_it_has_not_seen_by_its_time(path, tmp_path, monkeypatch):
    monkeypatch.setattr(Document, "figures", {})  # which other tests draw
    options = [word for option in ["sharpness=false", *LIGHTER.get(path.stem, [])] for word in ("--set", option)]
    assert cli.main([str(path), "--out", str(tmp_path), "--jobs", "1", *options]) == 0
    summary = json.loads((tmp_path / path.stem / "summary.json").read_text())
    if "sweep" in summary:
        rows = [(row["method"], row["converged"]) for row in summary["sweep"]["rows"]]
        assert rows == [("GF", 1.0)] * 2
    elif "t1:" in path.read_text():
        assert summary["flow"]["outcome"] == "TIME_LIMIT"
        assert summary["flow"]["probes"]["test_accuracy"] > 0.9
    else:
        assert summary["flow"]["outcome"] == "CONVERGED"
        assert summary["flow"]["gradient_norm"] <= 1e-8
