"""What is imported when: `import flowsim` hardly anything, `flowsim.integrate` JAX, the command line what it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flowsim

HEAVY = ("jax", "equinox", "diffrax", "numpy", "pydantic")
LATER = ("pandas", "xarray", "matplotlib", "rich", "scipy", "optax", "h5py", "h5netcdf", "platformdirs", "IPython")


def modules_after(code, *, before=""):
    """Return the modules that `code` imports in a new process, in which `before` has run."""
    code = f"import sys\n{before}\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_package_brings_nothing_that_takes_long():
    assert modules_after("import flowsim").isdisjoint([*HEAVY, *LATER])


@pytest.fixture(scope="module")
def run():
    """What a run imports beyond what Diffrax, and with it JAX, does."""
    return modules_after("import flowsim; flowsim.integrate, flowsim.EmpiricalRisk", before="import diffrax")


@pytest.mark.parametrize("name", [*LATER, "flowsim.sweeps", "flowsim.scenarios", "flowsim.comparison"])
@pytest.mark.slow
def test_what_only_results_and_scenarios_need_is_not_imported_by_a_run(run, name):
    assert "flowsim.dynamics.integrate" in run
    assert name not in run


@pytest.mark.parametrize("room", ["", ".scenarios", ".results"])
@pytest.mark.slow
def test_what_a_stub_promises_is_there(room):
    code = f"from flowsim{room} import *; import flowsim{room} as room; print(*room.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = Path(flowsim.__file__).parent.joinpath(*room.split("."))
    nodes = ast.parse((folder / "__init__.pyi").read_text()).body
    assert {alias.asname for node in nodes for alias in node.names} == set(done.stdout.split())  # pyright: ignore


def test_names_are_listed_before_they_are_imported():
    code = "import flowsim; print(*dir(flowsim))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"integrate", "solvers", "Perceptron"} <= set(done.stdout.split())


# Those of two rooms, and those of one.
KINDS = {
    "dynamics:DYNAMICS": {"central", "edge", "gradient_flow", "optax", "sgd"},
    "dynamics.flow:MODELS": {"central", "edge"},
    "probes.probe:PROBES": {"test_risk", "margin"},
}


@pytest.mark.parametrize("place", KINDS)
@pytest.mark.slow
def test_a_registry_knows_its_kinds_whatever_else_is_imported(place):
    module, name = place.split(":")
    code = f"from flowsim.{module} import {name}; print(*{name}); assert {name}[{sorted(KINDS[place])[0]!r}]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert KINDS[place] <= set(done.stdout.split())


COMMANDS = {
    "--help": 0,
    "check --help": 0,
    "report --help": 0,
    "new --help": 0,
    "new": 0,
    "new residul": 2,
    "": 2,
    "--no-such-option": 2,
    "missing.yaml": 2,
    "check missing.yaml": 2,
    "report missing": 2,
    "residul.yaml --set no_value": 2,
}


@pytest.mark.parametrize("words", COMMANDS)
def test_help_and_errors_of_usage_do_without_jax(words):
    code = f"""
from flowsim.cli import main
try:
    code = main({words.split()!r})
except SystemExit as ended:
    code = ended.code
assert code == {COMMANDS[words]}
print()
"""
    assert modules_after(code).isdisjoint({"jax", "equinox", "diffrax", "matplotlib", "xarray"})


def test_without_pytorch_its_room_is_there_and_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; import flowsim; flowsim.torch.network(None, None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = "ImportError: flowsim.torch needs PyTorch, which is not there: pip install 'flowsim[torch]'"
    assert done.stderr.splitlines()[-1] == said
