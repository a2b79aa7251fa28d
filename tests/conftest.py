"""Strict settings for every test, and the problems and runs that many tests look at."""

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from zlib import crc32

# Decompositions of small matrices: more threads than one only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The command line keeps compiled programs in the user's folder; what tests compile is not for it.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

# What speaks of arrays; to check all of the package would take each process some seconds more.
_CHECKED = ["data", "networks", "losses", "problems", "curvature", "probes", "solvers", "dynamics", "edge", "batch"]
_CHECKED += ["theory", "comparison"]
with install_import_hook([f"flowsim.{name}" for name in _CHECKED], "shape_checks.checked"):
    import flowsim
    from flowsim.data import gaussian_teacher
    from flowsim.runtime.compiling import with_options

    for _name in _CHECKED:  # flowsim imports them where they are first asked for, and then nothing would check them
        import_module(f"flowsim.{_name}")

# Each paper is a module in its own folder, found from its scenario as any plug-in is.
sys.path += map(str, sorted((Path(__file__).parents[1] / "papers").glob("*/")))

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


# Nearly all the time of a test goes into compiling programs that then run for milliseconds.
_QUICK_COMPILATION = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
]
# As flowsim compiles its own programs of few numbers: so slow tests compile what they compile themselves, too.
_OWN_COMPILATION = ["--xla_backend_optimization_level=1", "--xla_cpu_use_fusion_emitters=false"]


def pytest_addoption(parser):
    text = "run one of N shares of the tests: a module whole, but a test over files that are shipped file by file"
    parser.addoption("--share", metavar="I/N", help=text)


def pytest_collection_modifyitems(config, items):
    """Leave out what is not of the share that `--share` names; the shares 0/N to N−1/N are all of the tests."""
    if config.option.share:
        share, shares = map(int, config.option.share.split("/"))
        if not 0 <= share < shares:
            raise pytest.UsageError(f"--share {share}/{shares}: expected one of 0/{shares} to {shares - 1}/{shares}")
        chosen = [item for item in items if crc32(_unit(item).encode()) % shares == share]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def _unit(item) -> str:
    """What stays together: it may share a fixture that takes long, and files that are shipped do not."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else []
    return next((value.name for value in parameters if isinstance(value, Path)), item.path.name)


def pytest_configure(config):
    """Compile quickly where the slow tests are left out; they, in a run of their own, compile as flowsim does.

    Workers and the processes that tests start inherit the setting. XLA reads it when the first program is compiled,
    and ends a process that names an option it does not know: which ones it knows is found out in another.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; interrupts are tested
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "XLA_FLAGS" not in os.environ:
        quickly = config.option.markexpr == "not slow"
        os.environ["XLA_FLAGS"] = _known(_QUICK_COMPILATION if quickly else _OWN_COMPILATION)


def _known(flags: list[str]) -> str:
    code = "from jaxlib import xla_client; xla_client.make_cpu_client()"
    environment = os.environ | {"XLA_FLAGS": " ".join(flags)}
    tried = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    return " ".join(flag for flag in flags if flag.encode() not in tried.stderr)


@pytest.fixture(scope="session")
def quick_environment():
    """The environment for a process that is killed and started again, many times perhaps: it compiles quickly."""
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": _known(_QUICK_COMPILATION)}


@pytest.fixture(scope="session")
def compiled_quickly():
    """Return a function that compiles another, one that runs once, with as little optimization as XLA knows."""
    return lambda function: with_options(function, {"xla_backend_optimization_level": 0})


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a scenario, beside a table of data, and returns its path."""
    (tmp_path / "table.csv").write_text("a,b,y\n1,2,3\n")

    def write(content: str | bytes) -> Path:
        path = tmp_path / "scenario.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_are_let_go():
    """Let go of compiled programs before they are too many for a process (65 530 memory maps under Linux)."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()


@pytest.fixture(scope="session")
def problem():
    """The paper's data: 50 samples, 5 features, ‖w*‖ = 1."""
    return flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 50, 5))


@pytest.fixture(scope="session")
def residual():
    """A residual network of depth 10 with s = 0.5."""
    projection = np.random.default_rng(1).standard_normal(5)
    projection /= np.linalg.norm(projection)
    return flowsim.DeepLinear.residual(width=5, depth=10, scale=0.5, projection=projection, key=jax.random.key(0))


@pytest.fixture(scope="session")
def mlp():
    """A multi-layer perceptron of depth 10 with scale 0.35."""
    return flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.35, key=jax.random.key(0))


@pytest.fixture(scope="session")
def residual_flow(residual, problem):
    """The flow of the residual network to its limit, at default settings."""
    return flowsim.integrate(residual, problem)


@pytest.fixture(scope="session")
def mlp_flow(mlp, problem):
    """The flow of the perceptron to its limit, at default settings."""
    return flowsim.integrate(mlp, problem)


@pytest.fixture(scope="session")
def comparison(mlp, problem):
    """The perceptron's flow beside descents that converge, meet the edge of stability, and diverge."""
    return flowsim.compare(mlp, problem, [0.02, 0.08, 0.5], steps=4000)


@pytest.fixture(scope="session")
def compiled():
    """Return a function that counts the programs compiled so far in this process."""
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: events.append(name) if name.endswith("backend_compile_duration") else None
    )
    return lambda: len(events)
