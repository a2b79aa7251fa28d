"""One thread of BLAS beside two: at their best, and where every core is busy with something else."""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import residual
from console import begin, table
from threadpoolctl import threadpool_limits
from timing import once

import flowsim

BUSY = "while True: sum(k * k for k in range(100_000))"
# Where flowsim asks for one thread.
PLACES = ("flowsim.dynamics.driver.few_blas_threads", "flowsim.curvature.hessian.few_blas_threads")


def main() -> None:
    quick = begin("threads: flows, sharpnesses and factorizations in one thread of BLAS and in two")
    repeats = 5 if quick else 40
    calls = {"tanh, 1141 weights, 60 samples, t = 20": tanh_flow(), "residual network, 250 weights": residual_flow()}
    calls["sharpness of 250 weights"] = sharpness()
    columns = ("what", "one, ms", "two, ms", "two / one", "one, loaded, ms", "two, loaded, ms", "two / one, loaded")
    idle = {name: compared(call, repeats, min) for name, call in calls.items()}
    with busy_cores():
        loaded = {name: compared(call, repeats, statistics.median) for name, call in calls.items()}
    table("flowsim as it is, and with two threads", columns, rows(idle, loaded))

    sizes = (100, 500) if quick else (50, 100, 200, 300, 500, 700)
    loops = {f"{name}, {size} rows": factorizations(one, size) for name, one in KINDS.items() for size in sizes}
    idle = {name: in_threads(loop, repeats, min) for name, loop in loops.items()}
    with busy_cores():
        loaded = {name: in_threads(loop, repeats, statistics.median) for name, loop in loops.items()}
    table("factorizations in a compiled loop", columns, rows(idle, loaded))


def rows(idle: dict[str, tuple[float, ...]], loaded: dict[str, tuple[float, ...]]) -> Iterator[tuple]:
    for name, (one, two) in idle.items():
        busy_one, busy_two = loaded[name]
        yield name, 1e3 * one, 1e3 * two, two / one, 1e3 * busy_one, 1e3 * busy_two, busy_two / busy_one


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with a Python loop of its own meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    time.sleep(1)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def compared(call: Callable[[], object], repeats: int, of: Callable[[list[float]], float]) -> tuple[float, ...]:
    """Return the seconds of a call as flowsim makes it, and with two threads: one number `of` all calls, by turns."""

    def freely() -> object:
        with contextlib.ExitStack() as stack:
            for place in PLACES:
                stack.enter_context(patch(place, lambda rows: contextlib.nullcontext()))
            return call()

    with threadpool_limits(2, "blas"):
        return seconds(repeats, of, call, freely)


def in_threads(call: Callable[[], object], repeats: int, of: Callable[[list[float]], float]) -> tuple[float, ...]:
    """Return the seconds of a call in one thread, and in two: one number `of` all calls, by turns."""

    def within(threads: int) -> object:
        with threadpool_limits(threads, "blas"):
            return jax.block_until_ready(call())

    return seconds(repeats, of, lambda: within(1), lambda: within(2))


def seconds(repeats: int, of: Callable, *calls: Callable[[], object], most: float = 6.0) -> tuple[float, ...]:
    """Return the seconds of each of the calls, by turns: `repeats` of them, or three that take very long."""
    for call in calls:
        once(call)
    rounds, began = [], time.perf_counter()
    while len(rounds) < 3 or (len(rounds) < repeats and time.perf_counter() - began < most):
        rounds.append([once(call) for call in calls])
    return tuple(of(list(times)) for times in zip(*rounds, strict=True))


def tanh_flow() -> Callable[[], object]:
    X = np.random.default_rng(0).normal(size=(60, 5))
    problem = flowsim.EmpiricalRisk(X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2])
    network = eqx.nn.MLP(5, "scalar", width_size=30, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    return lambda: flowsim.integrate(network, problem, t1=20.0, ts=[])


def residual_flow() -> Callable[[], object]:
    case = residual()
    return lambda: flowsim.integrate(case.network, case.problem, ts=[])


def sharpness() -> Callable[[], object]:
    case = residual()
    return lambda: flowsim.sharpness(case.network, case.problem)


KINDS = {
    "Cholesky": lambda matrix: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), matrix[0])[0],
    "eigenvalues": lambda matrix: jnp.linalg.eigh(matrix)[0][0],
}


def factorizations(one: Callable, size: int) -> Callable[[], object]:
    """Return a compiled loop of three factorizations of a matrix that changes a little."""
    drawn = np.random.default_rng(size).normal(size=(size, size))
    matrix = jnp.asarray(drawn @ drawn.T / size + np.eye(size))
    return jax.jit(lambda: jax.lax.fori_loop(0, 3, lambda _, last: one(matrix * (1 + 1e-12 * last)), 0.0))


if __name__ == "__main__":
    main()
