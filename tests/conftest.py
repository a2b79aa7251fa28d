"""Strict settings for every test, and the problems and runs that many tests look at."""

import os

# Decompositions of small matrices: more threads than one only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
import pytest

import flowsim
from flowsim.data import gaussian_teacher

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_are_let_go():
    """Let go of each module's compiled programs: a process may hold only so many (65 530 memory maps under Linux)."""
    yield
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
