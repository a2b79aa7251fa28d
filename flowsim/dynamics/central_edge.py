"""Where a step of the central flow has led: the top of the spectrum there, and the way back to the edge."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import krylov, vectors
from ..curvature.davidson import eigenpairs_davidson
from ..curvature.eigenpair import decomposition
from .central_field import CentralField, Edge, Reading
from .complementarity import in_basis, symmetric_basis
from .field import norm

# Eigenvalues from this part of 2/η on are followed, whether or not they are at the edge.
_NEAR = 0.9
_DIMENSION = 16
_SCATTERED = 0.3
# Below this part of the largest, an eigenvalue of X counts as zero.
_NOTHING = 1e-9


def edge_unknown(weights: PyTree, most: int) -> Edge:
    """Return what is known of the spectrum before the first look, with room for `most` eigenvalues at the edge."""
    size = vectors.size_of(weights)
    count = min(most + 1, size)
    rows, none = empty_rows(weights, count + min(_DIMENSION, size)), jnp.array(0)
    return Edge(empty_rows(weights, count), jnp.full(count, -jnp.inf, vectors.dtype_of(weights)), none, none, rows)


def empty_rows(weights: PyTree, count: int) -> PyTree:
    """Return so many rows of zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), weights)


def looked(field: CentralField, weights: PyTree) -> tuple[Edge, Int[Array, ""]]:
    """Return the top of the spectrum at `weights`, and the products that it took.

    Eigenpairs near the edge are refined from those at the point that `field` knows. A Krylov space of all the rest
    gives the other rows of the curvature, and tells what joins them, which is then refined in turn.
    """
    gradient, product = jax.linearize(jax.grad(field.field.objective), weights)
    threshold = _NEAR * 2 / field.learning_rate

    def look(state: tuple) -> tuple:
        edge, _, spent = state
        correction = eqx.tree_at(lambda c: c.rows, field.curvature, edge.rows).correction()
        held = eigenpairs_davidson(
            product, edge.vectors, correction, begun=edge.near, wanted=edge.near, rtol=field.rtol
        )
        own = jnp.arange(len(edge.values)) < edge.near
        known = jax.tree.map(lambda leaf: jnp.where(_column(own, leaf), leaf, 0), held.vectors)
        rest, rows = _rest(product, known, gradient)
        found = _joined(edge, held.values, known, rest, rows)
        near = jnp.sum(found.values >= threshold)
        return eqx.tree_at(lambda e: e.near, found, near), near > edge.near, spent + held.products + len(rest)

    state = (field.edge, jnp.array(True), jnp.array(0))
    edge, _, spent = jax.lax.while_loop(lambda s: s[1], look, state)
    return edge, spent


def _joined(edge: Edge, values: Array, held: PyTree, rest: Array, rows: PyTree) -> Edge:
    """Return the top of what was near, refined, and of all the rest, and the curvature that both make."""
    places = jnp.arange(len(values))
    own, behind = places < edge.near, jnp.maximum(places - edge.near, 0)
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
    product: Callable[[PyTree], PyTree], known: PyTree, gradient: PyTree
) -> tuple[Float[Array, " dimension"], PyTree]:
    """Return Ritz values, in decreasing order, and vectors of what is at right angles to the `known` rows."""

    def off(vector: PyTree) -> PyTree:
        return vectors.difference(vector, vectors.combination(vectors.inner_products(known, vector), known))

    length = norm(gradient)
    unit = vectors.divided(gradient, jnp.where(length > 0, length, 1))
    scattered = vectors.scattered_like(unit, 0)
    start = jax.tree.map(lambda a, b: a + _SCATTERED / norm(scattered) * b, unit, scattered)
    dimension = min(_DIMENSION, vectors.size_of(gradient))
    space = krylov.begin(jax.tree.map(lambda leaf: leaf[None], off(start)), dimension)
    space = jax.lax.fori_loop(0, dimension, lambda _, s: krylov.widened(lambda v: off(product(off(v))), s), space)
    values, ritz = decomposition(space.projection())
    basis = jax.tree.map(lambda leaf: leaf[:dimension], space.basis)
    return values[::-1], vectors.combination(ritz.T[::-1], basis)


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
    def of(cls, reading: Reading, active: Int[Array, ""], edge: Float[Array, ""]) -> "Face":
        """Return the face at a point with so many `active` eigenvalues at the `edge`."""
        weights, turn = decomposition(reading.covariance)
        weights, turn = weights[::-1], turn[:, ::-1]
        count = len(weights)
        basis = jnp.asarray(symmetric_basis(count), weights.dtype)
        there = jnp.where(weights > _NOTHING * jnp.maximum(weights[0], 0), 1.0, 0.0) * (weights > 0)
        inside = jnp.max(jnp.abs(basis) * jnp.outer(there, there)[None], axis=(1, 2)) > 0
        congruence = jax.vmap(lambda matrix: in_basis(turn.T @ matrix @ turn))(basis).T
        tangents = vectors.combination(congruence, reading.tangents)
        beyond = jnp.where(jnp.arange(count) < active, reading.values[:count] - edge, 0)
        departure = jnp.where(inside, congruence @ in_basis(jnp.diag(beyond)), 0)
        gram = vectors.gram(tangents, tangents) / 2
        gram = jnp.where(inside[:, None] & inside[None], gram, 0)
        return cls(tangents, gram, departure, inside.astype(weights.dtype), jnp.sum(there).astype(int))

    def way_back(self) -> PyTree:
        """Return the shortest way to where, to first order, nothing departs."""
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


def overlaps(rows: PyTree, others: PyTree, count: Int[Array, ""]) -> Float[Array, " k"]:
    """Return how much of each row lies in the span of the first `count` others, which are orthonormal."""
    inner = vectors.gram(rows, others)
    return jnp.sum(jnp.where(jnp.arange(inner.shape[1])[None] < count, inner, 0) ** 2, axis=1)


def _roots(values: Float[Array, " m"]) -> Float[Array, " m"]:
    return jnp.sqrt(jnp.maximum(values, 0))


def _column(values: Array, like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))
