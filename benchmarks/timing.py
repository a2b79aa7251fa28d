"""Wall times of warm calls."""

import time
from collections.abc import Callable

import jax


def warm_seconds(*functions: Callable[[], object], repeats: int = 9, seconds: float = 2.0) -> list[float]:
    """Return the shortest of `repeats` calls of each function, or of more if `seconds` have not passed by then.

    One call of each is not counted. The functions take turns, so that a busy moment of a shared machine hits all
    of them; the shortest time is the one that it disturbed least.
    """
    for function in functions:
        jax.block_until_ready(function())
    rounds, began = [], time.perf_counter()
    while len(rounds) < repeats or time.perf_counter() - began < seconds:
        rounds.append([once(function) for function in functions])
    return [min(times) for times in zip(*rounds, strict=True)]


def once(function: Callable[[], object]) -> float:
    """Return the wall time of one call, up to the moment when its result is there."""
    began = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - began
