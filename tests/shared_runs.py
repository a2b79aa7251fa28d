"""What many tests look at: problems, networks and their runs, each computed once in a session."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import QUICK_COMPILATION, known_flags
from matplotlib import rcParams
from matplotlib.mathtext import MathTextParser

import flowsim
from flowsim.data import gaussian_teacher
from flowsim.runtime.compiling import compiled as compiled_with


@pytest.fixture(scope="session", autouse=True)
def _formulas_are_laid_out_once():
    """Lay out each formula once: Matplotlib keeps 50 for each renderer, and layouts take half the time of a figure."""
    lay_out, layouts = MathTextParser.parse, {}

    def parse(parser, text, dpi=72, prop=None, **options):
        # By `hash`: Matplotlib changes the properties of a font in place.
        key = (parser._output_type, text, dpi, hash(prop), rcParams["text.antialiased"], *options.items())
        if key not in layouts:
            layouts[key] = lay_out(parser, text, dpi, prop, **options)
        return layouts[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MathTextParser, "parse", parse)
        yield


@pytest.fixture(scope="session")
def quick_environment():
    """The environment for a process that is killed and started again, many times perhaps: it compiles quickly."""
    return os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": known_flags(QUICK_COMPILATION)}


@pytest.fixture(scope="session")
def compiled_quickly():
    """Return a function that compiles another, one that runs once, with as little optimization as XLA knows."""
    return lambda function: compiled_with(function, options={"xla_backend_optimization_level": 0})


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
