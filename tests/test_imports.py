"""What is imported when: `import flowsim` hardly anything, `flowsim.integrate` JAX, the command line what it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flowsim

LAB = ["pydantic", "pydantic_core", "yaml", "xarray", "pandas", "matplotlib", "bokeh", "jinja2"]
LAB += ["h5netcdf", "h5py", "filelock"]
HEAVY = ("jax", "equinox", "diffrax", "numpy")
LATER = (*LAB, "rich", "scipy", "optax", "platformdirs", "IPython")


def printed(code):
    """Return the words that `code` prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def modules_after(code, *, before=""):
    """Return the modules that `code` imports in a new process, in which `before` has run."""
    return printed(f"import sys\n{before}\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)")


def test_the_package_lists_its_names_and_imports_nothing_that_takes_long():
    words = modules_after("import flowsim\nprint(*dir(flowsim))")
    assert {"integrate", "solvers", "Perceptron"} <= words
    assert words.isdisjoint([*HEAVY, *LATER])


@pytest.mark.slow
def test_what_only_results_and_scenarios_need_is_not_imported_by_a_run():
    run = modules_after("import flowsim; flowsim.integrate, flowsim.EmpiricalRisk", before="import diffrax")
    assert "flowsim.dynamics.integrate" in run
    assert run.isdisjoint([*LATER, "flowsim.sweeps", "flowsim.scenarios", "flowsim.comparison"])


CORE = f"""
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LAB!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusal())
import flowsim, jax, numpy as np

X, y = flowsim.data.gaussian_teacher(np.random.default_rng(0), 9, 3)
key = jax.random.key(0)
deep = flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=0.5, key=key)
problem = flowsim.LinearRegression(X, y.tolist())
flowsim.integrate(deep, problem, t1=0.1)
flowsim.compare(deep, problem, learning_rates=[0.1], models=["gradient"], steps=5, t1=0.1)
targets = {{"index": (y > 0).astype(int), "one_hot": y, "sign": np.sign(y)}}
for kind in (flowsim.losses.LOSSES[name] for name in flowsim.losses.LOSSES):
    labels = kind().labels(2)
    network = flowsim.Perceptron.gaussian(widths=[3, 3, 1 + (labels == "index")], scale=0.5, key=key)
    flowsim.integrate(network, flowsim.EmpiricalRisk(X, targets[labels], kind()), t1=0.1)
try:
    flowsim.data.real_array([["1.0", None]], (2,), place="X")
except flowsim.data.DataError as error:
    assert "row 1, column 2 (counted from 1): the value is missing" in str(error)
"""


@pytest.mark.slow
def test_the_core_runs_where_the_libraries_of_the_lab_cannot_be_imported():
    printed(CORE)


@pytest.mark.slow
def test_what_a_stub_promises_is_there():
    rooms, promised = ["", ".data", ".kinds", ".networks", ".results", ".scenarios"], set()
    for room in rooms:
        stub = Path(flowsim.__file__).parent.joinpath(*room.split("."), "__init__.pyi")
        promised |= {alias.asname for node in ast.parse(stub.read_text()).body for alias in node.names}  # pyright: ignore
    code = "from flowsim{0} import *; import flowsim{0} as room; print(*room.__all__)"
    assert printed("\n".join(map(code.format, rooms))) == promised


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "kinds"),
    [
        ("dynamics", "DYNAMICS", {"central", "edge", "gradient_flow", "optax", "sgd"}),
        ("probes.probe", "PROBES", {"test_risk", "margin"}),
    ],
)
def test_a_registry_knows_its_kinds_whatever_else_is_imported(module, name, kinds):
    code = f"from flowsim.{module} import {name}; print(*{name}); assert {name}[{min(kinds)!r}]"
    assert kinds <= printed(code)


WELL = ["--help", "check --help", "report --help", "new --help", "new"]
BADLY = ["new residul", "", "--no-such-option", "missing.yaml", "check missing.yaml", "report missing"]
BADLY += ["residul.yaml --set no_value"]
COMMANDS = dict.fromkeys(WELL, 0) | dict.fromkeys(BADLY, 2)
USAGE = f"""
import sys
from flowsim.cli import main
for words, expected in {COMMANDS!r}.items():
    try:
        code = main(words.split())
    except SystemExit as ended:
        code = ended.code
    heavy = {{"jax", "equinox", "diffrax", "matplotlib", "xarray"}} & set(sys.modules)
    assert (code, heavy) == (expected, set()), words
"""


def test_help_and_errors_of_usage_do_without_jax():
    printed(USAGE)


def test_without_pytorch_its_room_is_there_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"flowsim\.torch needs PyTorch, which is not there: pip install 'flowsim\["):
        flowsim.torch.network(None, None)
