"""Davidson's method for the largest eigenpairs of an operator, preconditioned by a nearby one of known curvature."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from . import krylov, vectors
from .eigenpair import Eigenpairs, decomposition


class _Space(eqx.Module):
    """Orthonormal rows, of which the first `filled` have `images`, and their Ritz pairs."""

    basis: PyTree
    images: PyTree
    filled: Int[Array, ""]
    values: Float[Array, " k"]
    ritz: Float[Array, "k dimension"]
    residuals: Float[Array, " k"]
    products: Int[Array, ""]


def eigenpairs_davidson(
    product: Callable[[PyTree], PyTree],
    start: PyTree,
    correction: Callable[[PyTree, Float[Array, ""]], PyTree],
    *,
    begun: Int[Array, ""],
    wanted: Int[Array, ""],
    rtol: Float[Array, ""] | float,
    dimension: int = 16,
    max_products: int = 60,
) -> Eigenpairs:
    """Return the top eigenpairs of a symmetric operator near which those of another one, near it, are known.

    `product` maps a pytree to one of the same structure; `start` is such a pytree with a leading axis of k rows, of
    which the first `begun` are taken, and the first `wanted` ≤ `begun` pairs are refined until their residuals are
    below `rtol` times the largest value; of the others comes what falls off. Both numbers may be traced: this is what
    Lanczos cannot do. The space grows by correction(r, θ) ≈ (H − θ)⁻¹r for the Ritz pair (θ, x) with the longest
    residual r = Hx − θx (Davidson 1975): with −r it is the Krylov space of Lanczos, and with a curvature known nearby
    each product gains as many digits as that agrees with H. At `dimension` rows it is restarted from k + 2 of them.

    Rows from `begun` on have the value −∞ where k is not reached, and no residual.
    """
    k = jax.tree.leaves(start)[0].shape[0]
    dimension = min(dimension, vectors.size_of(start) // k)
    space = _first_space(product, start, begun, dimension, k)

    def unfinished(space: _Space) -> Bool[Array, ""]:
        left = jnp.where(jnp.arange(k) < wanted, space.residuals, 0)
        good = jnp.all(left <= rtol * jnp.max(jnp.abs(space.values[:1])))
        return ~good & (space.products < max_products) & jnp.all(jnp.isfinite(left))

    def widen(space: _Space) -> _Space:
        worst = jnp.argmax(jnp.where(jnp.arange(k) < wanted, space.residuals, -1))
        residual = _residual(space, worst)
        step = correction(residual, space.values[worst])
        return _rayleigh_ritz(_add_row(product, _make_room(space, k), step), k)

    space = jax.lax.while_loop(unfinished, widen, space)
    rows = vectors.combination(space.ritz, space.basis)
    left = jnp.where(jnp.arange(k) < jnp.minimum(begun, dimension), space.residuals, 0)
    converged = left <= rtol * jnp.max(jnp.abs(space.values[:1]))
    return Eigenpairs(space.values, rows, left, converged, space.products)


def _first_space(product: Callable, start: PyTree, begun: Int[Array, ""], dimension: int, k: int) -> _Space:
    empty = jax.tree.map(lambda leaf: jnp.zeros((dimension, *leaf.shape[1:]), leaf.dtype), start)
    dtype = vectors.dtype_of(start)
    nothing = _Space(
        basis=empty,
        images=empty,
        filled=jnp.array(0),
        values=jnp.zeros(k, dtype),
        ritz=jnp.zeros((k, dimension), dtype),
        residuals=jnp.zeros(k, dtype),
        products=jnp.array(0),
    )

    def add(index: Array, space: _Space) -> _Space:
        return _add_row(product, space, vectors.row(start, index))

    return _rayleigh_ritz(jax.lax.fori_loop(0, jnp.minimum(begun, dimension), add, nothing), k)


def _add_row(product: Callable, space: _Space, row: PyTree) -> _Space:
    """Return the space with the new direction of a row, and its image."""
    basis, _ = krylov.append(space.basis, vectors.divided(row, vectors.peak(row)), space.filled)
    image = product(vectors.row(basis, space.filled))
    images = jax.tree.map(lambda leaf, entries: leaf.at[space.filled].set(entries), space.images, image)
    return replace(space, basis=basis, images=images, filled=space.filled + 1, products=space.products + 1)


def _rayleigh_ritz(space: _Space, k: int) -> _Space:
    """Return the space with its top k Ritz pairs; where there are fewer rows, the others are −∞ in value."""
    known = jnp.arange(space.ritz.shape[1]) < space.filled
    projected = vectors.gram(space.basis, space.images)
    projected = jnp.where(known[:, None] & known[None], (projected + projected.T) / 2, 0)
    # Void rows must not be mistaken for an end of the spectrum.
    below = -2 * jnp.max(jnp.abs(projected)) * len(known) - 1
    values, columns = decomposition(projected + jnp.diag(jnp.where(known, 0, below)))
    values, ritz = values[::-1][:k], columns.T[::-1][:k]
    there = jnp.arange(k) < space.filled
    ritz = jnp.where(there[:, None], ritz, 0)
    space = replace(space, values=jnp.where(there, values, -jnp.inf), ritz=ritz)
    residuals = jax.lax.map(lambda index: vectors.norm(_residual(space, index)), jnp.arange(k))
    return replace(space, residuals=residuals)


def _residual(space: _Space, index: Int[Array, ""]) -> PyTree:
    value = jnp.where(jnp.isfinite(space.values[index]), space.values[index], 0)
    image, row = (vectors.combination(space.ritz[index], rows) for rows in (space.images, space.basis))
    return vectors.difference(image, vectors.scaled(value, row))


def _make_room(space: _Space, k: int) -> _Space:
    """Return the space, restarted from its top rows where it is full."""
    dimension = space.ritz.shape[1]
    kept = min(k + 2, dimension - 1)

    def restart() -> _Space:
        projected = vectors.gram(space.basis, space.images)
        _, columns = decomposition((projected + projected.T) / 2)
        turn = jnp.pad(columns.T[::-1][:kept], ((0, dimension - kept), (0, 0)))
        basis, images = (vectors.combination(turn, rows) for rows in (space.basis, space.images))
        return replace(space, basis=basis, images=images, filled=jnp.array(kept))

    full = space.filled >= dimension
    return jax.lax.cond(full, restart, lambda: space)
