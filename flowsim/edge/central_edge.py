"""The top of the spectrum along the central flow, and the face of the semidefinite cone that X lies in."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import krylov, vectors
from ..curvature.davidson import eigenpairs_davidson
from ..curvature.eigenpair import decomposition
from ..solvers.field import norm
from ..solvers.solver import Work, no_work
from .central_field import CentralField, Edge, Reading
from .complementarity import congruence, in_basis, symmetric_basis


def edge_unknown(weights: PyTree, most: int, *, dimension: int = 16) -> Edge:
    """Return the spectrum before anything is known of it, with room for `most` eigenvalues at the edge.

    `dimension` is that of the Krylov space in which all other eigenvalues are searched.
    """
    size = vectors.size_of(weights)
    count = min(most + 1, size)
    rows, none = empty_rows(weights, count + min(dimension, size)), jnp.array(0)
    return Edge(empty_rows(weights, count), jnp.full(count, -jnp.inf, vectors.dtype_of(weights)), none, none, rows)


def empty_rows(weights: PyTree, count: int) -> PyTree:
    """Return so many rows of zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), weights)


def spectrum(field: CentralField, weights: PyTree, *, near: float = 0.9) -> tuple[Edge, Int[Array, ""]]:
    """Return the top of the spectrum at `weights`, and the products that it took.

    Eigenpairs from the part `near` of 2/η on, whether or not they are at the edge, are refined from those at the point
    that `field` knows. A Krylov space of all the rest gives the other rows of the curvature, and tells what joins them,
    which is then refined in turn.
    """
    gradient, product = jax.linearize(jax.grad(field.field.objective), weights)
    threshold = near * 2 / field.learning_rate
    dimension = jax.tree.leaves(field.edge.rows)[0].shape[0] - len(field.edge.values)

    def look(state: tuple) -> tuple:
        edge, _, spent = state
        correction = eqx.tree_at(lambda c: c.rows, field.curvature, edge.rows).correction()
        held = eigenpairs_davidson(
            product, edge.vectors, correction, begun=edge.near, wanted=edge.near, rtol=field.rtol
        )
        own = jnp.arange(len(edge.values)) < edge.near
        known = jax.tree.map(lambda leaf: jnp.where(_column(own, leaf), leaf, 0), held.vectors)
        rest, rows = _rest(product, known, gradient, dimension)
        found = _joined(edge, held.values, known, rest, rows)
        joined = jnp.maximum(jnp.sum(found.values >= threshold), edge.active)  # what was held is followed down
        return eqx.tree_at(lambda e: e.near, found, joined), joined > edge.near, spent + held.products + len(rest)

    state = (field.edge, jnp.array(True), jnp.array(0))
    edge, _, spent = jax.lax.while_loop(lambda s: s[1], look, state)
    return edge, spent


def _joined(edge: Edge, values: Array, held: PyTree, rest: Array, rows: PyTree) -> Edge:
    """Return the top of what was near, refined, and of all the rest, and the curvature that both make."""
    index = jnp.arange(len(values))
    own, behind = index < edge.near, jnp.maximum(index - edge.near, 0)
    rest_known = jnp.pad(rest, (0, len(values)), constant_values=-jnp.inf)
    found = jnp.where(own, values, rest_known[behind])

    def of_vectors(old: Array, new: Array) -> Array:
        return jnp.where(_column(own, old), old, jnp.pad(new, [(0, len(values))] + [(0, 0)] * (new.ndim - 1))[behind])

    def of_curvature(old: Array, new: Array) -> Array:
        stiff = jnp.where(own, _roots(values), 0)
        return jnp.concatenate([_column(stiff, old) * old, _column(_roots(rest), new) * new])

    joined, curvature = (jax.tree.map(of, held, rows) for of in (of_vectors, of_curvature))
    return Edge(joined, found, edge.active, edge.near, curvature)


def _rest(
    product: Callable[[PyTree], PyTree], known: PyTree, gradient: PyTree, dimension: int, *, share: float = 0.3
) -> tuple[Float[Array, " dimension"], PyTree]:
    """Return Ritz values, in decreasing order, and vectors of what is at right angles to the `known` rows.

    The Krylov space begins with the gradient and a `share` of all directions.
    """

    def off(vector: PyTree) -> PyTree:
        return vectors.difference(vector, vectors.combination(vectors.inner_products(known, vector), known))

    length = norm(gradient)
    unit = vectors.divided(gradient, jnp.where(length > 0, length, 1))
    scattered = vectors.scattered_like(unit, 0)
    start = jax.tree.map(lambda a, b: a + share / norm(scattered) * b, unit, scattered)
    space = krylov.begin(jax.tree.map(lambda leaf: leaf[None], off(start)), dimension)
    space = jax.lax.fori_loop(0, dimension, lambda _, s: krylov.widen(lambda v: off(product(off(v))), s), space)
    values, ritz = decomposition(space.projection())
    basis = jax.tree.map(lambda leaf: leaf[:dimension], space.basis)
    return values[::-1], vectors.combination(ritz.T[::-1], basis)


def overlaps(rows: PyTree, others: PyTree, count: Int[Array, ""]) -> Float[Array, " k"]:
    """Return how much of each row lies in the span of the first `count` others, which are orthonormal."""
    inner = vectors.gram(rows, others)
    return jnp.sum(jnp.where(jnp.arange(inner.shape[1])[None] < count, inner, 0) ** 2, axis=1)


def _roots(values: Float[Array, " m"]) -> Float[Array, " m"]:
    return jnp.sqrt(jnp.maximum(values, 0))


def _column(values: Array, like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))


class Face(eqx.Module):
    """The face of the semidefinite cone that X lies in: T on it, in rows, and by how much H_U − 2/η departs there.

    `inside` tells the rows that count, of which `gram` is B.
    """

    tangents: PyTree
    gram: Float[Array, "n n"]
    departure: Float[Array, " n"]
    inside: Float[Array, " n"]
    rank: Int[Array, ""]

    @classmethod
    def of(cls, reading: Reading, active: Int[Array, ""], edge: Float[Array, ""], *, nothing: float = 1e-9) -> "Face":
        """Return the face at a point with so many `active` eigenvalues at the `edge`.

        An eigenvalue of X below the part `nothing` of the largest counts as zero.
        """
        weights, turn = decomposition(reading.covariance)
        weights, turn = weights[::-1], turn[:, ::-1]
        count = len(weights)
        basis = symmetric_basis(count, weights.dtype)
        there = jnp.where(weights > nothing * jnp.maximum(weights[0], 0), 1.0, 0.0) * (weights > 0)
        inside = jnp.max(jnp.abs(basis) * jnp.outer(there, there)[None], axis=(1, 2)) > 0
        turned = congruence(turn.T).T
        tangents = vectors.combination(turned, reading.tangents)
        beyond = jnp.where(jnp.arange(count) < active, reading.values[:count] - edge, 0)
        departure = jnp.where(inside, turned @ in_basis(jnp.diag(beyond)), 0)
        gram = vectors.gram(tangents, tangents) / 2
        gram = jnp.where(inside[:, None] & inside[None], gram, 0)
        return cls(tangents, gram, departure, inside.astype(weights.dtype), jnp.sum(there).astype(int))

    def way_back(self) -> PyTree:
        """Return the shortest step that, to first order, leads back onto the edge."""
        units = jnp.diag(1 - self.inside) * jnp.max(jnp.diag(self.gram), initial=1)
        ridge = 512 * jnp.finfo(self.gram.dtype).eps * jnp.max(jnp.diag(self.gram))
        system = self.gram + units + ridge * jnp.eye(len(self.inside), dtype=self.gram.dtype)
        return vectors.combination(-jnp.linalg.solve(system, self.departure) / 2, self.tangents)

    def normals(self) -> PyTree:
        """Return orthonormal rows that span T on the face, the others zero."""
        values, columns = decomposition(2 * self.gram)
        least = len(values) * 1e3 * jnp.finfo(values.dtype).eps * values[-1]
        lengths = jnp.where(values > jnp.maximum(least, 0), values, jnp.inf) ** -0.5
        return vectors.combination(lengths[:, None] * columns.T, self.tangents)


def projected(
    field: CentralField,
    y: PyTree,
    edge: Edge,
    bounds: tuple[Float[Array, ""], Float[Array, ""]],
    *,
    most_steps: int = 4,
) -> tuple[PyTree, Reading, Work]:
    """Return the point next to `y` at which what X holds is at the edge, and the field there; by Newton's method.

    What departs from the edge by less than the first of the `bounds` stays, and by more than the second. It takes up to
    `most_steps`.
    """
    near, far = bounds

    def read_and_move(state: tuple) -> tuple:
        y, reading, way, _, work, tries = state
        y = jax.tree.map(jnp.add, y, way)
        reading = eqx.tree_at(lambda f: f.edge, field, with_vectors(edge, reading)).reading(y)
        face = Face.of(reading, edge.active, 2 / field.learning_rate)
        departure = jnp.max(jnp.abs(face.departure), initial=0)
        again = (departure > near) & (departure < far)
        return y, reading, face.way_back(), again, work + Work(jnp.array(1), reading.products), tries + 1

    nowhere = jax.tree.map(jnp.zeros_like, y)
    begin = (y, _unread(y, edge, field.most), nowhere, jnp.array(True), no_work(), jnp.array(0))
    y, reading, _, _, work, _ = jax.lax.while_loop(lambda s: s[3] & (s[5] <= most_steps), read_and_move, begin)
    return y, reading, work


def _unread(y: PyTree, edge: Edge, most: int) -> Reading:
    """Return a reading in which only the spectrum is known."""
    count = edge.room(most)
    zero = jnp.zeros((), edge.values.dtype)
    tangents = jax.tree.map(lambda leaf: jnp.zeros((count * (count + 1) // 2, *leaf.shape), leaf.dtype), y)
    return Reading(
        slope=y,
        objective=zero,
        gradient_norm=zero,
        vectors=edge.vectors,
        values=edge.values,
        covariance=jnp.zeros((count, count), zero.dtype),
        slack=zero,
        tangents=tangents,
        products=jnp.array(0),
    )


def with_vectors(edge: Edge, reading: Reading) -> Edge:
    """Return the spectrum with the vectors of a reading, which refines those that are near."""
    near = jnp.arange(len(edge.values)) < edge.near

    def of(old: Array, new: Array) -> Array:
        return jnp.where(_column(near, new), new, old)

    found = jax.tree.map(of, edge.vectors, reading.vectors)
    return eqx.tree_at(lambda e: (e.vectors, e.values), edge, (found, of(edge.values, reading.values)))
