"""The field of the flow of any descent's centre, and of what alternates about it from step to step.

One step of a descent maps weights and memory z to Φ(z). Iterates z_k = x_k + (−1)^k v_k with the map

    T(x, v) = ½(a + b, b − a),    a = Φ(x + v),    b = Φ(x − v),

are those of the descent exactly: x + v and x − v each take a step, and change places. Along T both x and v are smooth
near an edge of stability, where v is multiplied by a little more or less than one. A path y through yₖ₊₁ = T(yₖ) with
one step in a time τ has the derivative τy' = Δy − ½Δ²y + ⅓Δ³y − …, by Newton's forward differences Δy = T(y) − y,
Δ²y = T(T(y)) − 2T(y) + y. The flow ends that series after the second:

    τy' = −½T(T(y)) + 2T(y) − 3/2 y.

It needs of the descent no more than its step. A mode that a step multiplies by μ decays as (μ − 1) − ½(μ − 1)², with
which no |μ| ≤ 1 grows; after the third term some would. For gradient descent the second has −(η/2)H∇R, as the edge flow
of order two does (`flowsim.edge.edge_flow`). Two parts are followed by the series of their logarithms: v where it is
multiplied by much the same number from step to step, as this may be far above one, and means of squares, which must
not become negative.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..curvature import vectors
from ..solvers.field import norm
from .onset import least_amplitude
from .orbit import Position, StepMap
from .oscillation_flow import growth_alone

Point = TypeVar("Point")


class CentrePoint(eqx.Module):
    """The `centre` x, what is `alternating` about it, v, and the logarithm of the amplitude that an oscillation keeps.

    The latter two are `None` for a flow without an oscillation. The `sizes` of the arrays of the memory where the flow
    began stay as they are, as do `squares`, one for each array that is never negative (`StepMap.squares`): errors of
    other arrays, which may pass through zero, are measured in their sizes.
    """

    centre: Position
    sizes: Float[Array, " arrays"]
    squares: Float[Array, " arrays"]
    alternating: Position | None
    log_onset: Float[Array, ""] | None


class CentreField(eqx.Module):
    """The right-hand side for the centre and the alternating part of the orbit of a `step` that takes the time τ.

    As in `flowsim.edge.oscillation_flow`, an amplitude r decays no further than to s, with which the descent comes to
    its edge, and which is used up while it grows, down to that of rounding.
    """

    step: StepMap
    largest: float = eqx.field(static=True, default=10.0)
    """At most so fast, in units of 1/τ, does an amplitude below s grow to it."""
    used_up: float = eqx.field(static=True, default=20.0)
    """How many times as fast as an oscillation grows, what it began with falls."""
    steady: float = eqx.field(static=True, default=0.5)
    """By which part of itself a factor may change from one step to the next for its logarithm to be taken,"""
    aligned: float = eqx.field(static=True, default=0.3)
    """by which part of itself what alternates may turn,"""
    decaying: float = eqx.field(static=True, default=0.5)
    """and above which the factor has to be."""

    @property
    def time(self) -> Array:
        """The time τ of a step."""
        return jnp.asarray(self.step.optimizer.time_of_step())

    def __call__(self, t: Any, point: CentrePoint, args: object) -> CentrePoint:
        """Return the derivative of a point in time; it depends on `t` only if η does, and not on `args`."""
        return self.at(t).derivative(point)

    def at(self, t: Any) -> "CentreField":
        """Return the field at a time, for the step that is half over then."""
        step = StepMap(self.step.field, self.step.optimizer.between(t))
        return dataclasses.replace(self, step=step) if self.step.optimizer.is_scheduled() else self

    def derivative(self, point: CentrePoint) -> CentrePoint:
        """Return the derivative of a point in time, η being a number."""
        moved = self.moved(point)
        centre, zero = vectors.divided(moved.centre, self.time), jnp.zeros_like(point.sizes)
        if point.alternating is None or moved.alternating is None:
            return CentrePoint(centre, zero, zero, None, None)
        kept, weights = jnp.exp(jnp.asarray(point.log_onset)), point.alternating.weights
        renewal = jnp.minimum((kept / moved.amplitude) ** 4, self.largest)
        alternating = jax.tree.map(lambda v, d: (d + renewal * v) / self.time, point.alternating, moved.alternating)
        rounding = least_amplitude(point.centre.weights, vectors.divided(weights, norm(weights)))
        falling = -self.used_up * growth_alone(moved.growth, renewal) * jnp.maximum(1 - rounding / kept, 0)
        return CentrePoint(centre, zero, zero, alternating, falling / self.time)

    def moved(self, point: CentrePoint) -> "Moved":
        """Return τy' at a point, without what an amplitude is held by."""
        if point.alternating is None:
            return Moved(vectors.difference(self.step(point.centre), point.centre), None, None, None)
        # What is too small to be told from rounding is made larger: so near to the centre the map is linear.
        length, size = norm(point.centre.weights), norm(point.alternating.weights)
        known = jnp.finfo(length.dtype)
        factor = jnp.maximum(known.eps**0.5 * length / (size + known.tiny), 1)
        squares = jax.tree.structure(point.centre.memory).unflatten(list(point.squares > 0))

        def stepped(z: tuple[Position, Position]) -> tuple[Position, Position]:
            """Return T of a centre and an alternating part."""
            weights, memory = (
                jax.tree.map(lambda x, v: jnp.stack([x + v, x - v]), *parts) for parts in zip(*z, strict=True)
            )
            memory = jax.tree.map(_kept_positive, memory, z[0].memory, squares)
            after = jax.vmap(self.step)(Position(weights, memory))
            mean = jax.tree.map(lambda pair: (pair[0] + pair[1]) / 2, after)
            return mean, jax.tree.map(lambda pair: (pair[1] - pair[0]) / 2, after)

        path = _path(stepped, (point.centre, vectors.scaled(factor, point.alternating)))
        (centre, here), (_, ahead), (_, later) = path
        sizes = jnp.stack([norm(part.weights) for part in (here, ahead, later)])
        early, late = jnp.hypot(sizes[0], sizes[1]), jnp.hypot(sizes[1], sizes[2])
        alternating = vectors.divided(self._alternating(here, ahead, later, squares), factor)
        steps = [position for position, _ in path]
        centre = Position(
            _differences(*(at.weights for at in steps)),
            jax.tree.map(_differences_of_squares, *(at.memory for at in steps), squares),
        )
        return Moved(centre, alternating, early / factor / 2**0.5, jnp.log(late / early))

    def _alternating(self, here: Position, ahead: Position, later: Position, squares: PyTree) -> Position:
        """Return τv' from v and where the next two steps take it.

        Where all of v but its squares is multiplied by much the same m in both, the series is that of its logarithm: m
        may be far above one. A mode of momentum turns below the edge from weights to memory and back, and is not.
        """
        first, second = _factor(here, ahead), _factor(ahead, later)
        change = jnp.abs(second - first) / jnp.maximum(jnp.abs(first), jnp.abs(second))
        turned = jax.tree.map(lambda v, a: a - first * v, here, ahead)
        momenta = [
            jnp.where(skipped, 0, norm(turn) / (norm(first * v) + jnp.finfo(first.dtype).tiny))
            for turn, v, skipped in zip(*map(jax.tree.leaves, (turned.memory, here.memory, squares)), strict=True)
        ]
        aside = jnp.max(jnp.stack([norm(turned.weights) / norm(vectors.scaled(first, here.weights)), *momenta]))
        uneven = (change / self.steady) ** 4 + (aside / self.aligned) ** 4
        share = 1 / (1 + uneven) * jnp.clip(first / self.decaying - 1, 0, 1)
        inside = jnp.where(share > 0, jnp.stack([first, second]), 1)
        growth = 1.5 * jnp.log(inside[0]) - 0.5 * jnp.log(jnp.maximum(inside[1], self.decaying / 2))
        plain = _differences(here, ahead, later)
        return jax.tree.map(
            lambda v, a, d: d + share * ((a - inside[0] * v) / inside[0] + growth * v - d), here, ahead, plain
        )


class Moved(eqx.Module):
    """τy' of a centre and its alternating part, the amplitude of that in two steps, and by which logarithm it grows.

    The latter three are `None` for a flow without an oscillation.
    """

    centre: Position
    alternating: Position | None
    amplitude: Any
    growth: Any


def _path(stepped: Callable[[Point], Point], start: Point) -> tuple[Point, Point, Point]:
    """Return `start` and where the next two steps lead."""

    def further(here: Point, _: None) -> tuple[Point, Point]:
        after = stepped(here)
        return after, after

    _, path = jax.lax.scan(further, start, length=2)
    return start, vectors.row(path, 0), vectors.row(path, 1)


def _differences(here: Point, ahead: Point, later: Point) -> Point:
    """Return the first of Newton's differences less half of the second."""
    return jax.tree.map(lambda a, b, c: -1.5 * a + 2 * b - 0.5 * c, here, ahead, later)


def _differences_of_squares(
    here: Array, ahead: Array, later: Array, squares: Bool[Array, ""], *, steady: float = 8.0
) -> Array:
    """Return the same for an array of the memory, and for its logarithm where it is one of squares.

    A mean of squares grows by more than itself in a step where an oscillation sets in, and must not fall below zero.
    What grows by more than `steady` times itself is followed by the first difference alone.
    """
    first, second = (b / jnp.where(a > 0, a, 1) for a, b in ((here, ahead), (ahead, later)))
    within = [(1 / steady < ratio) & (ratio < steady) for ratio in (first, second)]
    logarithms = [jnp.log(jnp.where(okay, ratio, 1)) for okay, ratio in zip(within, (first, second), strict=True)]
    grown = here * (1.5 * logarithms[0] - 0.5 * logarithms[1])
    positive = jnp.where((here > 0) & within[0] & within[1], grown, ahead - here)
    return jnp.where(squares, positive, _differences(here, ahead, later))


def _kept_positive(sides: Array, centre: Array, squares: Bool[Array, ""], *, share: float = 0.05) -> Array:
    """Return an array of the memory at both sides, if it is one of squares no less than a share of the centre's."""
    return jnp.where(squares, jnp.maximum(sides, share * centre[None]), sides)


def _factor(before: Position, after: Position) -> Float[Array, ""]:
    """Return by how much an alternating part is multiplied from one step to the next, along itself."""
    square = vectors.inner_product(before.weights, before.weights)
    return vectors.inner_product(before.weights, after.weights) / square
