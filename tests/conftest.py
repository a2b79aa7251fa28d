"""Strict settings for every test, and which of them run; the runs that many tests share are in `shared_runs.py`."""

import gc
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from zlib import crc32

import pytest

# Decompositions of small matrices: more threads than one only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The command line keeps compiled programs in the user's folder; what tests compile is not for it.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

# Each paper is a module in its own folder, found from its scenario as any plug-in is.
sys.path += map(str, sorted((Path(__file__).parents[1] / "papers").glob("*/")))

# The rooms that speak of arrays.
_CHECKED = ["data", "networks", "losses", "problems", "curvature", "probes", "solvers", "dynamics", "edge", "batch"]
_CHECKED += ["theory", "comparison"]

# Nearly all the time of a test goes into compiling programs that then run for milliseconds.
QUICK_COMPILATION = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
]
# With `--optimize`: as flowsim compiles its own programs of few numbers.
_OWN_COMPILATION = ["--xla_backend_optimization_level=1", "--xla_cpu_use_fusion_emitters=false"]


def pytest_addoption(parser):
    text = "run one of N shares of the tests: a module whole, but a test over files that are shipped file by file"
    parser.addoption("--share", metavar="I/N", help=text)
    text = "check what annotations say of arrays at every call, as a run of the slow tests always does"
    parser.addoption("--check-shapes", action="store_true", help=text)
    parser.addoption("--optimize", action="store_true", help="compile as flowsim does, not as quickly as can be")


def pytest_collection_modifyitems(config, items):
    """Leave out what is not of the share that `--share` names; the shares 0/N to N−1/N are all of the tests.

    The longest module comes first: a worker has a module whole, and the others fill the time of the other workers.
    """
    items.sort(key=lambda item: item.path.name != "test_pairs.py")
    if config.option.share:
        share, shares = map(int, config.option.share.split("/"))
        if not 0 <= share < shares:
            raise pytest.UsageError(f"--share {share}/{shares}: expected one of 0/{shares} to {shares - 1}/{shares}")
        chosen = [item for item in items if crc32(_unit(item).encode()) % shares == share]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


def _unit(item) -> str:
    """What stays together: a module may share a fixture that takes long; files that are shipped, and pairs, do not."""
    if item.path.name == "test_pairs.py":
        return item.name
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else []
    return next((value.name for value in parameters if isinstance(value, Path)), item.path.name)


def pytest_configure(config):
    """Compile quickly, unless `--optimize` is given; slow tests compile flowsim's own programs as flowsim does.

    Workers and the processes that tests start inherit the setting. XLA reads it when the first program is compiled,
    and ends a process that names an option it does not know: which ones it knows is found out in another.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; interrupts are tested
        signal.signal(signal.SIGINT, signal.default_int_handler)
    quickly = config.option.markexpr == "not slow" and not config.option.optimize
    if "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = known_flags(_OWN_COMPILATION if config.option.optimize else QUICK_COMPILATION)
    distributes = config.getoption("dist", "no") != "no" and not config.option.collectonly
    if distributes and not hasattr(config, "workerinput"):
        return  # the workers run the tests: this process needs neither JAX nor flowsim
    gc.disable()  # until all tests are collected: a quarter of that time
    if config.option.check_shapes or config.option.markexpr != "not slow":
        _check_shapes()
    _be_strict()
    if quickly:
        from flowsim.runtime.compiling import QUICK_OPTIONS

        QUICK_OPTIONS["xla_backend_optimization_level"] = 0  # flowsim's own programs ask for a level themselves
    config.pluginmanager.import_plugin("shared_runs")


def pytest_collection_finish(session):
    """Leave modules and tests, which stay to the end, out of every further collection of garbage."""
    gc.freeze()
    gc.enable()


def _be_strict() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")


def _check_shapes() -> None:
    """Check the annotations of arrays at every call. It makes tracing slower by a fifth, and each start by seconds."""
    from jaxtyping import install_import_hook

    with install_import_hook([f"flowsim.{name}" for name in _CHECKED], "shape_checks.checked"):
        for name in _CHECKED:  # flowsim imports them where they are first asked for, and then nothing would check them
            import_module(f"flowsim.{name}")


def known_flags(flags: list[str]) -> str:
    code = "from jaxlib import xla_client; xla_client.make_cpu_client()"
    environment = os.environ | {"XLA_FLAGS": " ".join(flags)}
    tried = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    return " ".join(flag for flag in flags if flag.encode() not in tried.stderr)
