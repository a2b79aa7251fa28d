"""The example of a kind of everything in a user's own module, run by the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import flowsim
from flowsim.cli import main

EXAMPLE = Path(__file__).parents[1] / "examples" / "plug_in"
SMALL = ["--set", "flow.t1=1", "--set", "data.samples=12"]


@pytest.mark.slow
def test_a_module_from_outside_brings_a_kind_of_everything(tmp_path, capsys):
    assert main([str(EXAMPLE / "scenario.yaml"), *SMALL, "--set", "descent.steps=20", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "HeavyBall" in printed
    assert "time limit" in printed
    assert "layer_norms: norm of each block" in printed
    results = flowsim.open_results(tmp_path / "scenario")
    runs = results.trajectories
    assert list(runs["dynamics"].values) == ["gradient_flow", "my_module:HeavyBall", "my_module:HeavyBall"]
    assert runs["layer_norms"].dims == ("run", "record", "layer_norms_0")
    assert runs["layer_norms"].attrs["long_name"] == "norm of each block"
    assert np.isfinite(runs["layer_norms"].isel(run=1, record=0)).all()
    assert results.summary["descent"][0]["dynamics"] == "my_module:HeavyBall"
    last = int(runs["records"][1]) - 1
    np.testing.assert_array_equal(
        results.summary["descent"][0]["probes"]["layer_norms"], runs["layer_norms"].isel(run=1, record=last)
    )
    assert (tmp_path / "scenario" / "figures" / "layer_norms.png").exists()


@pytest.mark.slow
def test_a_sweep_of_its_kinds_holds_the_probe_at_the_end_of_every_run(tmp_path, capsys):
    options = [*SMALL, "--set", "sweep.repetitions=2", "--set", "network.width=3", "--jobs", "1"]
    assert main([str(EXAMPLE / "sweep.yaml"), *options, "--out", str(tmp_path)]) == 0
    results = flowsim.open_results(tmp_path / "sweep")
    sweep, printed = results.sweep, capsys.readouterr().out
    assert "HeavyBall" in printed
    assert "layer_norms: norm of each block" in printed
    assert list(sweep["dynamics"].values) == ["gradient_flow", "my_module:HeavyBall", "my_module:HeavyBall"]
    assert sweep["final_layer_norms"].dims == ("scale", "repetition", "run", "layer_norms_0")
    assert np.isfinite(sweep["final_layer_norms"]).all()
    assert np.isfinite(sweep["initial_layer_norms"]).all()
    assert json.loads(sweep.attrs["failures"]) == []
    rows = results.summary["sweep"]["rows"]
    of_a_cell = sweep["final_layer_norms"].isel(run=1).median("repetition").isel(scale=0)
    np.testing.assert_allclose(rows[1]["probes"]["layer_norms"], of_a_cell, rtol=1e-12)
    assert (tmp_path / "sweep" / "figures" / "layer_norms.png").exists()
