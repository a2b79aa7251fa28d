"""Steps of fixed length in one compiled loop, to an end time that is told: classical Runge–Kutta, gradient descent."""

import functools
import math
from collections.abc import Callable

import jax
from courses import Course, NoResultError, Run, Stacks, flat_stacks, gradient
from plain import flat
from timing import once


def runge_kutta(course: Course, multiple: float, cap: float) -> Run:
    """The classical method of order 4 with steps of `multiple` over the sharpness, at the start or the limit."""
    sharpest = max(abs(course.sharpness(weights)) for weights in (flat(course.case.network), course.limit))
    count = math.ceil(course.end * sharpest / multiple)
    return _repeated(course, _runge_kutta_step, course.end / count, count, cap)


def descent(course: Course, rate: float, cap: float) -> Run:
    """Gradient descent for as many steps of `rate` as reach the end time."""
    return _repeated(course, descent_step, rate, max(1, round(course.end / rate)), cap)


def _runge_kutta_step(slope: Callable[[Stacks], Stacks], y: Stacks, h: jax.Array) -> Stacks:
    def ahead(share: float, k: Stacks) -> Stacks:
        return slope(jax.tree.map(lambda leaf, g: leaf - share * h * g, y, k))

    first = slope(y)
    second = ahead(0.5, first)
    third = ahead(0.5, second)
    stages = (first, second, third, ahead(1.0, third))
    return jax.tree.map(lambda leaf, a, b, c, d: leaf - h / 6 * (a + 2 * b + 2 * c + d), y, *stages)


def descent_step(slope: Callable[[Stacks], Stacks], y: Stacks, h: jax.Array) -> Stacks:
    return jax.tree.map(lambda leaf, g: leaf - h * g, y, slope(y))


@functools.lru_cache
def _loop(course: Course, step: Callable) -> Callable:
    slope = gradient(course.case)
    return jax.jit(lambda y, h, count: jax.lax.fori_loop(0, count, lambda _, y: step(slope, y, h), y))


def pace(course: Course, step: Callable, h: float, count: int = 100) -> float:
    """Return the seconds that one step takes in a compiled loop."""
    return min(once(lambda: _loop(course, step)(course.case.network.stacks, h, count)) for _ in range(4)) / count


def _repeated(course: Course, step: Callable, h: float, count: int, cap: float) -> Run:
    """Return a run of `count` steps, if by the time of the first few it stays below the cap."""
    if pace(course, step, h) * count > cap:
        raise NoResultError(f"> {cap:g} s")
    return lambda: flat_stacks(_loop(course, step)(course.case.network.stacks, h, count))
