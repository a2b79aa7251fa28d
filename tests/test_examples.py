"""The short programs of examples/ run as they stand."""

import os
import subprocess
import sys

import pytest
from shown_outputs import ROOT

PRINTED = {
    "own_network": "GD  0.05",
    "own_loss": "Cauchy CONVERGED",
    "own_data": "442 samples of 10 features",
    "sweep_over_width": "width 16: S =",
    "edge_of_stability": "distance from the centre  edge",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_an_example_runs_from_its_folder_or_another(name, tmp_path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout
