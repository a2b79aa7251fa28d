"""How fast this machine is: one gradient of a scenario, compiled and timed."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..networks import split
from ..problems import Problem

_SECONDS, _LONG_ENOUGH = 1.0, 0.1
# So small a part of the gradient changes no weight, and yet no compiler may leave the gradient out.
_NOTHING = 1e-30


@dataclass(frozen=True)
class Pace:
    """The seconds that a gradient takes inside of a compiled loop, and those that this loop took to compile.

    Constants instead would be wrong by the factor between two machines, and by that between two networks of as many
    weights. Both numbers feel what else the machine does meanwhile, as the run will.
    """

    gradient: float
    compilation: float


def measure_pace(network: PyTree, problem: Problem, *, clock: Callable[[], float] = time.perf_counter) -> Pace:
    """Compile the gradient of the risk, take it for a second, once at least, and return how fast it is.

    Times are the shortest of several: the first ones wake up the compiler and the threads, others meet other work.
    """
    (_, first), (program, second) = (_compiled(network, problem, clock) for _ in range(2))
    weights, count, best, begun = split(network)[0], 1, math.inf, clock()
    while True:
        start = clock()
        jax.block_until_ready(program(weights, jnp.asarray(count), problem))
        end = clock()
        best = min(best, (end - start) / count)
        if end - begun >= _SECONDS:
            return Pace(best, min(first, second))
        if end - start < _LONG_ENOUGH:
            count *= 4


def _compiled(network: PyTree, problem: Problem, clock: Callable[[], float]) -> tuple[Callable[..., PyTree], float]:
    """Return a loop of gradients, and the seconds that it took to compile."""
    weights, rest = split(network)

    def repeated(weights: PyTree, count: Int[Array, ""], problem: Problem) -> PyTree:
        def objective(weights: PyTree) -> Any:
            return problem.objective(eqx.combine(weights, rest))

        def once(_: Any, weights: PyTree) -> PyTree:
            return jax.tree.map(lambda w, g: w - _NOTHING * g, weights, jax.grad(objective)(weights))

        return jax.lax.fori_loop(0, count, once, weights)

    begun = clock()
    program = eqx.filter_jit(repeated).lower(weights, jnp.asarray(1), problem).compile()
    return program, clock() - begun
