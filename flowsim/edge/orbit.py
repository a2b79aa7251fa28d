"""The orbit of a descent: its step as a map of weights and memory, and what is smooth and what alternates along it.

An orbit z_k = x_k + (−1)^k v_k near an edge of stability has a smooth part x and an alternating one, v, which changes
slowly, too. Central differences of even order n tell them apart, up to n derivatives of x, divided by 2ⁿ.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from ..curvature import vectors
from ..dynamics.descent import Descent, DescentState
from ..solvers import Work
from ..solvers.field import GradientField, norm


class Position(NamedTuple):
    """Where a descent is: its weights, and its memory, with floats for integers."""

    weights: PyTree
    memory: PyTree


class StepMap(eqx.Module):
    """One step of an `optimizer`, as a map of positions to positions."""

    field: GradientField
    optimizer: Descent

    def at(self, time: Float[ArrayLike, ""]) -> "StepMap":
        """Return the map of the step that begins at a time."""
        return StepMap(self.field, self.optimizer.at(jnp.asarray(time)))

    def first(self, weights: PyTree) -> Position:
        """Return the position before the first step."""
        dtype = vectors.dtype_of(weights)
        return Position(weights, jax.tree.map(lambda leaf: _floating(leaf, dtype), self.optimizer.remember(weights)))

    def __call__(self, position: Position) -> Position:
        """Return the position one step later."""
        return self._after(DescentState(*position, *jax.value_and_grad(self.field.objective)(position.weights)))

    def along(self, position: Position, direction: PyTree) -> tuple[Position, PyTree, PyTree]:
        """Return the position one step later, the Hessian times a direction, and the diagonal of P."""

        def measured(weights: PyTree) -> tuple[Array, PyTree]:
            return jax.value_and_grad(self.field.objective)(weights)

        here, (_, image) = jax.jvp(measured, (position.weights,), (direction,))
        state = DescentState(*position, *here)
        scale = self.optimizer.preconditioner(state)
        return self._after(state), image, jax.tree.map(jnp.ones_like, direction) if scale is None else scale

    def squares(self, weights: PyTree) -> Float[Array, " arrays"]:
        """Return one for each array of the memory that is nowhere negative whatever the gradient's sign, else zero.

        Such is a mean of squares, by which a preconditioner divides. What counts steps is not among them.
        """
        found = []
        for sign in (1.0, -1.0):
            gradient = jax.tree.map(lambda w, s=sign: jnp.where(jnp.isnan(w), w, s), weights)
            state = DescentState(weights, self.optimizer.remember(weights), jnp.ones_like(norm(weights)), gradient)
            leaves = jax.tree.leaves(self._after(state).memory)
            found.append([jnp.issubdtype(leaf.dtype, jnp.floating) & jnp.all(leaf >= 0) for leaf in leaves])
        both = [one & other for one, other in zip(*found, strict=True)]
        return jnp.array(both, vectors.dtype_of(weights))

    def _after(self, state: DescentState) -> Position:
        return Position(*self.optimizer.advanced(self.field.objective, state))


class Takeover(eqx.Module):
    """Where a flow takes over from a descent: after so many `steps`, at a `centre`, with what alternates about it.

    `direction` is the eigenvector, of length one, along which the descent oscillates, and `onset` the amplitude with
    which it comes to its edge. To find out took a gradient and a product with the Hessian for each of the `followed`.
    """

    steps: Int[Array, ""]
    centre: Position
    alternating: Position
    direction: PyTree
    onset: Float[Array, ""]
    followed: Int[Array, ""]

    @property
    def work(self) -> Work:
        """The work that it took."""
        return Work(self.followed, self.followed)


# How many iterates are kept, as many as `_THIRD` takes, and which of them, counted from zero, the others tell of.
_KEPT, _PLACE, _ORDERS = 12, 5, (2, 4, 8)
_MEAN = np.abs(np.poly([1.0] * 8)) / 2**8
# What alternates, by central differences of several orders, and differences of means over nine iterates.
_ALTERNATING = np.zeros((len(_ORDERS), _KEPT))
for _row, _order in zip(_ALTERNATING, _ORDERS, strict=True):
    _row[_PLACE - _order // 2 : _PLACE + _order // 2 + 1] = np.poly([1.0] * _order) * (-1) ** (_order // 2) / 2**_order
_FIRST = np.pad(np.convolve(_MEAN, [-1, 1]), 1)
_THIRD = np.convolve(_MEAN, [-1, 3, -3, 1])


def takeover(
    step: StepMap, weights: PyTree, *, smooth: float = 0.01, doubling: float = 64.0, most: int = 1000
) -> Takeover:
    """Follow a descent from `weights`, for at most so many steps, and return where a flow takes over.

    That is where the third difference of its centres is at most a part `smooth` of the first, and twice as large a part
    after every `doubling` steps: so much is missing in the expansion of the flow (`flowsim.edge.centre_field`). From
    there on the descent is followed up to where it passes its edge, which tells with what an oscillation begins; where
    it is beyond already, it is what alternates there. A descent that diverges before is followed to where it does.
    """
    start, direction = step.at(0.0).first(weights), vectors.scattered_like(weights, 0)

    def goes_on(search: _Search) -> Array:
        finite = jnp.isfinite(norm(vectors.row(search.recent.weights, -1)))
        return (search.onset < 0) & finite & (search.steps < most)

    def further(search: _Search) -> _Search:
        now = step.at(search.time)
        after, image, scale = now.along(vectors.row(search.recent, -1), search.direction)
        own = jax.tree.map(jnp.multiply, scale, search.direction)
        size = vectors.inner_product(search.direction, own)
        past = vectors.inner_product(search.direction, image) > jnp.asarray(now.optimizer.stability_threshold()) * size
        ahead = jax.tree.map(jnp.divide, image, scale)
        length = jnp.sqrt(vectors.inner_product(ahead, image))
        recent = jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), search.recent, after)
        place = search.steps - (_KEPT - 2 - _PLACE)

        parts = vectors.combination(jnp.asarray(_ALTERNATING, length.dtype), recent)
        least = vectors.row(parts, jnp.argmin(jax.vmap(norm)(parts.weights)))
        moves = vectors.combination(jnp.asarray(np.stack([_FIRST, _THIRD]), length.dtype), recent.weights)
        steep, change = jax.vmap(norm)(moves)
        # A centre that hardly moves beside what alternates, or up to rounding, is smooth enough.
        still = 0.01 * norm(least.weights) + jnp.finfo(steep.dtype).eps * norm(weights)
        allowed = smooth * 2 ** (place / doubling) * (steep + still)
        begins = (search.begun < 0) & (place >= _PLACE) & (change <= allowed)
        begun = jnp.where(begins, place, search.begun)
        centre = jax.tree.map(lambda z, v: z - v, vectors.row(recent, _PLACE), least)

        passes = (begun >= 0) & past & (search.passed < 0)
        passed = jnp.where(passes, search.steps, search.passed)
        across = jax.vmap(vectors.inner_product, (0, None))(parts.weights, own)
        measured = jnp.min(jnp.abs(across)) * norm(search.direction) / size
        onset = jnp.where((passed >= 0) & (place == passed), measured, search.onset)
        onset = jnp.where(begins & past, norm(least.weights), onset)
        return _Search(
            recent,
            vectors.where(length > 0, vectors.divided(ahead, jnp.where(length > 0, length, 1)), search.direction),
            search.steps + 1,
            begun,
            passed,
            vectors.where(begins, centre, search.centre),
            vectors.where(begins, least, search.alternating),
            onset,
            search.time + now.optimizer.time_of_step(),
        )

    recent, none = jax.tree.map(lambda leaf: jnp.stack([leaf] * _KEPT), start), jnp.array(-1)
    zero = jax.tree.map(jnp.zeros_like, start)
    unknown = -jnp.ones_like(norm(weights))
    search = jax.lax.while_loop(
        goes_on,
        further,
        _Search(recent, direction, jnp.array(0), none, none, start, zero, unknown, jnp.zeros_like(unknown)),
    )
    unit = vectors.divided(search.direction, norm(search.direction))
    steps, onset = jnp.where(search.begun < 0, search.steps, search.begun), jnp.maximum(search.onset, 0)
    return Takeover(steps, search.centre, search.alternating, unit, onset, search.steps)


class _Search(eqx.Module):
    """The newest iterates, an eigenvector, the steps, those to where a flow begins and past the edge, and the time.

    Numbers and the `onset` are −1 as long as they are not known.
    """

    recent: Position
    direction: PyTree
    steps: Int[Array, ""]
    begun: Int[Array, ""]
    passed: Int[Array, ""]
    centre: Position
    alternating: Position
    onset: Float[Array, ""]
    time: Float[Array, ""]


def _floating(leaf: Array, dtype: jnp.dtype) -> Array:
    return leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.astype(dtype)
