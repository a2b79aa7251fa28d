"""`import flowsim` brings JAX, Equinox and Diffrax, and leaves out what only results, figures and tables need."""

import subprocess
import sys

import pytest

LATER = ("pandas", "xarray", "matplotlib", "rich", "scipy", "optax", "h5py", "h5netcdf", "platformdirs", "IPython")


@pytest.fixture(scope="module")
def imported():
    """What `import flowsim` imports beyond what Diffrax, and with it JAX, does."""
    code = "import diffrax, sys; before = set(sys.modules); import flowsim; print(*set(sys.modules) - before)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("name", LATER)
def test_what_only_results_need_is_not_imported(imported, name):
    assert "flowsim.integrate" not in imported  # it is a function
    assert "flowsim.sweeps.sweep" in imported
    assert name not in imported
