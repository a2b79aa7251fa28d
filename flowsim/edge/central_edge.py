"""The top of the spectrum along the central flow: what is near the edge, and what is known of all the rest."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import krylov, vectors
from ..curvature.davidson import eigenpairs_davidson
from ..curvature.eigenpair import decomposition
from ..solvers.field import norm
from .central_field import CentralField, Edge

# Eigenvalues from this part of 2/η on are followed, whether or not they are at the edge.
_NEAR = 0.9
_DIMENSION = 16
_SCATTERED = 0.3


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
        near = jnp.maximum(jnp.sum(found.values >= threshold), edge.active)  # what was held is followed down
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
