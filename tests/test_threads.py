"""Small matrices are factorized in one thread of BLAS, and whoever set the number of threads finds it as it was."""

import subprocess
import sys
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import scipy.linalg.cython_lapack  # noqa: F401  the BLAS that JAX calls
from threadpoolctl import threadpool_info, threadpool_limits

import flowsim
from flowsim.runtime.compiling import few_blas_threads


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    if jax.default_backend() != "cpu":
        pytest.skip("BLAS computes on a CPU")
    with threadpool_limits(2, "blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield
        assert blas_threads() == {2}


def test_the_threads_are_limited_for_small_matrices_alone_until_they_are_done_or_fail():
    with few_blas_threads(499):
        assert blas_threads() == {1}
    with few_blas_threads(500):
        assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), few_blas_threads(1):
        raise ZeroDivisionError
    assert blas_threads() == {2}


def test_a_limit_within_a_limit_or_in_another_thread_ends_with_the_outer_one():
    def other():
        with few_blas_threads(1):
            pass

    with few_blas_threads(1):
        other()
        assert blas_threads() == {1}
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert blas_threads() == {1}


@pytest.mark.slow
def test_a_run_and_a_sharpness_are_computed_in_one_thread():
    counts = set()

    def risk(network):
        jax.debug.callback(lambda: counts.update(blas_threads()))
        return jnp.sum((network.weight - 1) ** 4) + jnp.sum(network.weight**2)

    network, problem = eqx.nn.Linear(3, 1, use_bias=False, key=jax.random.key(5)), flowsim.Risk(risk)
    for compute in (
        lambda: flowsim.integrate(network, problem, t1=1.0),
        lambda: flowsim.descend(network, problem, learning_rate=0.01, steps=3),
        lambda: flowsim.sharpness(network, problem),
    ):
        compute()
        jax.effects_barrier()
        assert counts == {1}
        counts.clear()


@pytest.mark.slow
def test_the_blas_that_a_program_loads_is_limited_too(quick_environment):
    """SciPy's: the first steps of this flow need none, the later ones factorize."""
    code = """
import jax
jax.config.update("jax_enable_x64", True)
import equinox as eqx, jax.numpy as jnp, flowsim
from threadpoolctl import threadpool_info

counts = []

def risk(network):
    jax.debug.callback(lambda: counts.extend(
        library["num_threads"] for library in threadpool_info() if "numpy" not in library["filepath"]
    ))
    return 0.5 * jnp.sum(jnp.logspace(0, 7, 8) * network.weight**2)

network = eqx.nn.Linear(8, 1, use_bias=False, key=jax.random.key(0))
run = flowsim.integrate(network, flowsim.Risk(risk))
jax.effects_barrier()
print(run.outcome.name, sorted(set(counts)))
"""
    environment = {name: value for name, value in quick_environment.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "CONVERGED [1]\n", done.stderr
