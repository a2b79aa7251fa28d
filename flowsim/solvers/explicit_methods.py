"""Explicit methods as rows of numbers: one of high order, and stabilized ones of orders four and two."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree
from numpy.typing import NDArray

from ..curvature import vectors
from .chebyshev import Family, chebyshev_recurrence, chebyshev_stages, reach_of, stability_lengths
from .field import Measured
from .step_control import SpectralRadius

_SLOTS = diffrax.Tsit5.tableau.num_stages

Evaluate = Callable[[Float[Array, ""], PyTree], Measured]


class ExplicitMethods(NamedTuple):
    """Tsit5 (row 0), stabilized methods of order four and then of order two, each with more stages than the one before.

    A stabilized method begins with a recurrence of three terms in increments over y0, stage j being
    μ_j h f(previous) + ν_j previous + κ_j (the one before) + δ_j h f(y0). That of order two (`RungeKuttaChebyshev`) is
    no more; that of order four ends with an explicit Runge–Kutta method of four stages (ROCK4; Abdulle 2002).

    `evaluations` counts those of f beyond f(y0), that of f(y1) among them, which is the first of the next step. `reach`
    is the length of the stability interval on the negative real axis, `recurring` counts the stages of the recurrence.
    Those of all methods lie in `recurrence` one after the other, from `first` on: μ, ν, κ, δ and the fraction of the
    step where they are. `rows` are the stages of the final Runge–Kutta method over its slots, the last of them the
    step itself; `fractions` are theirs, and `error` is the error estimate over the slots, zero for those of order two.
    """

    evaluations: NDArray
    reach: NDArray
    recurring: NDArray
    first: NDArray
    recurrence: NDArray
    rows: NDArray
    fractions: NDArray
    error: NDArray


def explicit_step(
    evaluate: Evaluate,
    y0: PyTree,
    slope: PyTree,
    h: Float[Array, ""],
    method: Int[Array, ""],
    radius: SpectralRadius,
    iterations: ArrayLike = 0,
) -> tuple[PyTree, Measured, PyTree, SpectralRadius]:
    """Return y1, what is measured there, and the error estimate of a step by one method, a row of the table.

    `evaluate` maps a fraction of the step and y to what is measured there, and `slope` is f(y0). All methods share one
    loop, in which f stands once, so a program with all of them compiles as fast as one with a single gradient. A step
    of no length evaluates f once, at y0. With `iterations` there is no step: f is evaluated as often for that many of
    power iteration at y0, and the `radius` is returned that they find.
    """
    kept = explicit_methods()
    columns = kept.evaluations, kept.recurring, kept.first, kept.rows, kept.fractions, kept.error
    evaluations, recurring, first, rows, fractions, error = (jnp.asarray(column)[method] for column in columns)
    recurrence = jnp.asarray(kept.recurrence)
    iterates, explicit = jnp.asarray(iterations) > 0, recurring == 0
    behind = recurring - 1  # evaluations before the first that fills a slot; f(y0) fills one of Tsit5's

    def stage(j: Array, state: tuple) -> tuple:
        before, here, slots, point, fraction, _, radius = state
        measured = evaluate(fraction, jax.tree.map(jnp.add, y0, point))
        f = measured.slope
        slot = j - behind
        recurs = slot < 0
        mu, nu, kappa, delta, ahead = recurrence[jnp.where(recurs, first + j + 1, 0)]
        following = _sum((mu * h, f), (nu, here), (kappa, before), (delta * h, slope))
        before, here = vectors.where(recurs, (here, following), (before, here))
        slots = jax.tree.map(lambda all_of_them, s: all_of_them.at[jnp.maximum(slot, 0)].set(s), slots, f)
        row = jnp.maximum(slot + 1, 0)

        def forward() -> tuple[SpectralRadius, PyTree]:
            through = vectors.combination(jnp.where(recurs, 0, h * rows[row]), slots)
            return radius, jax.tree.map(jnp.add, here, through)

        radius, point = jax.lax.cond(iterates, lambda: radius.seen(point, slope, f), forward)
        return before, here, slots, point, jnp.where(recurs, ahead, fractions[row]), measured, radius

    opening = vectors.scaled(jnp.where(explicit, 0, h * recurrence[first, 0]), slope)
    slots = jax.tree.map(lambda f: jnp.zeros((_SLOTS, *f.shape), f.dtype).at[0].set(f), slope)
    point = jax.tree.map(jnp.add, opening, vectors.combination(jnp.where(explicit, h * rows[1], 0), slots))
    point = vectors.where(iterates, radius.displacement(y0), point)
    fraction = jnp.where(explicit, fractions[1], recurrence[first, 4])
    fraction = jnp.where(iterates, 0, fraction)
    zeros = jax.tree.map(jnp.zeros_like, y0)
    state = zeros, opening, slots, point, fraction, Measured(slope, jnp.full((), jnp.nan, h.dtype)), radius
    begin = jnp.where((h == 0) & ~iterates, evaluations - 1, 0)
    end = jnp.where(iterates, iterations, evaluations)
    _, _, slots, increment, _, last, radius = jax.lax.fori_loop(begin, end, stage, state)
    return jax.tree.map(jnp.add, y0, increment), last, vectors.combination(h * error, slots), radius


def fourth_order(dtype: jnp.dtype, *, rounding: float = 1e-4) -> Family:
    """Return the stabilized methods of order four that are of use in a precision.

    The last stages make up for a recurrence whose values fall like 96/(hρ)⁴ in the stiffest direction, and multiply its
    rounding by the inverse of that, which may come to the share `rounding` of the increment.
    """
    within = (96 * rounding / float(jnp.finfo(dtype).eps)) ** 0.25
    reach = explicit_methods().reach[1 : 1 + len(_kept())]
    return Family(1, reach[reach <= max(within, reach[0])])


def second_order(max_stages: int) -> Family:
    """Return the stabilized methods of order two of up to so many stages."""
    return Family(1 + len(_kept()), stability_lengths(max_stages))


def _sum(*terms: tuple[Array, PyTree]) -> PyTree:
    return functools.reduce(lambda one, other: jax.tree.map(jnp.add, one, other), (vectors.scaled(*t) for t in terms))


@functools.cache
def explicit_methods() -> ExplicitMethods:
    """Return the table of all methods."""
    methods, recurrences, first = [_tsit5()], [], 0
    for evaluations, reach, recurrence, *rest in (*map(_fourth, _kept()), *map(_second, chebyshev_stages())):
        methods.append((evaluations, reach, len(recurrence), first, *rest))
        recurrences.append(recurrence)
        first += len(recurrence)
    evaluations, reach, recurring, starts, rows, fractions, error = map(np.array, zip(*methods, strict=True))
    whole = np.concatenate(recurrences)
    return ExplicitMethods(evaluations, reach, recurring, starts, whole, rows, fractions, error)


@functools.cache
def _kept() -> list[list[float]]:
    """Return stages, length of the stability interval and coefficients of the methods of order four."""
    return json.loads((Path(__file__).parent / "stability_polynomials.json").read_text())["rows"]


def _fourth(kept: list[float]) -> tuple:
    stages, length, *numbers = kept
    recurrence = _recurrence(int(stages), length, np.array(numbers[:5]))
    return stages, length, recurrence, *_last_stages(recurrence, np.array(numbers[5:]))


def _second(stages: int) -> tuple:
    recurrence = chebyshev_recurrence(stages)
    return stages, reach_of(stages), recurrence, np.zeros((_SLOTS + 1, _SLOTS)), np.ones(_SLOTS + 1), np.zeros(_SLOTS)


def _tsit5() -> tuple:
    tableau = diffrax.Tsit5.tableau
    rows, fractions = np.zeros((_SLOTS + 1, _SLOTS)), np.ones(_SLOTS + 1)
    for row, entries in enumerate(tableau.a_lower, start=1):
        rows[row, : len(entries)] = entries
    rows[_SLOTS - 1 :, : len(tableau.b_sol)] = tableau.b_sol  # the last stage is the step itself
    fractions[1:_SLOTS] = tableau.c
    fractions[0] = 0
    reach = 3.0  # of 3.3 on the negative real axis
    return _SLOTS - 1, reach, 0, 0, rows, fractions, np.array(tableau.b_error)


def _recurrence(stages: int, length: float, numbers: NDArray) -> NDArray:
    """Return μ, ν, κ, δ = 0 and the fraction of the step for each stage of a recurrence.

    Its polynomials are orthogonal with respect to w²/√(1 − x²), w the polynomial of degree four with the zeros in
    `numbers`, by the Stieltjes procedure in Gauss–Chebyshev nodes, where x is such that the interval is [−1, 1].
    """
    count = stages + 4
    nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    per_unit = (length - numbers[4]) / 2
    origin = 1 + numbers[4] / per_unit
    (re1, im1, re2, im2), weight = numbers[:4] / per_unit, np.ones(count)
    for real, imaginary in ((re1, im1), (re2, im2)):
        weight = weight * ((nodes - origin - real) ** 2 + imaginary**2)
    weight = (weight / weight.max()) ** 2
    before, here, size_before, values, steps, fractions = np.zeros(count), np.ones(count), np.inf, [0, 1], [], [0, 0]
    for _ in range(stages - 4):
        size = np.sum(weight * here**2)
        alpha, beta = np.sum(weight * nodes * here**2) / size, size / size_before
        before, here, size_before = here, (nodes - alpha) * here - beta * before, size
        values.append((origin - alpha) * values[-1] - beta * values[-2])
        older, old, new = values[-3:]
        mu, nu, kappa = old / (per_unit * new), (origin - alpha) * old / new, -beta * older / new
        fractions.append(mu + nu * fractions[-1] + kappa * fractions[-2])
        steps.append((mu, nu, kappa, 0, fractions[-1]))
    return np.array(steps)


def _last_stages(recurrence: NDArray, numbers: NDArray, *, share: float = 0.01) -> tuple[NDArray, NDArray, NDArray]:
    """Return the rows of the Runge–Kutta method after a recurrence, the fractions, and the error estimate.

    That is this `share` of the miss of f(y1) by the combination of the four stages that is right to order three, which
    keeps the error of a whole run near its tolerance.
    """
    rows = np.zeros((_SLOTS + 1, _SLOTS))
    rows[1, 0], rows[2, :2], rows[3, :3], rows[4:6, :4] = numbers[0], numbers[1:3], numbers[3:6], numbers[6:]
    series = np.zeros((5, 4))  # weights of the trees of order 1, 2, 3 and 3 in each h f
    start = _series_of(recurrence)
    for slot in range(5):
        c, ac, *_ = start + rows[slot, :5] @ series
        series[slot] = 1, c, c * c, ac
    error = np.zeros(_SLOTS)
    error[:5] = np.append(-np.linalg.solve(series[:4].T, series[4]), 1)
    return rows, start[0] + rows.sum(1), share * error


def _series_of(recurrence: NDArray) -> NDArray:
    """Return the weights of the trees of order 1, 2, 3 and 3 in the increment that a recurrence makes."""
    before, here = np.zeros(4), np.zeros(4)
    for mu, nu, kappa, _, _ in recurrence:
        c, ac, *_ = here
        before, here = here, mu * np.array([1, c, c * c, ac]) + nu * here + kappa * before
    return here
