"""Davidson's method for the largest eigenpairs of an operator, preconditioned by a nearby one of known curvature."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from . import krylov, vectors
from .eigenpair import Eigenpairs, decomposition


class RitzSpace(eqx.Module):
    """Orthonormal rows, of which the first `filled` have `images`, and their Ritz pairs, the largest first.

    `projected` is what the operator is on the rows. Void rows have Ritz values of −∞. `residuals` are those of the
    pairs that were wanted, infinite for others, and `longest` is the longest of them, of the pair `worst`.
    """

    basis: PyTree
    images: PyTree
    projected: Float[Array, "dimension dimension"]
    filled: Int[Array, ""]
    values: Float[Array, " dimension"]
    ritz: Float[Array, "dimension dimension"]
    residuals: Float[Array, " k"]
    longest: PyTree
    worst: Int[Array, ""]
    products: Int[Array, ""]

    def vectors(self, count: int | None = None) -> PyTree:
        """Return the first Ritz vectors, all of them by default, as rows."""
        return vectors.combination(self.ritz[:count], self.basis)

    def pairs(self, rtol: Float[Array, ""] | float) -> Eigenpairs:
        """Return the top pairs; those with a residual up to `rtol` times the largest value have converged."""
        k = len(self.residuals)
        converged = self.residuals <= rtol * jnp.max(jnp.abs(self.values[:1]))
        return Eigenpairs(self.values[:k], self.vectors(k), self.residuals, converged, self.products)


def ritz_space(
    product: Callable[[PyTree], PyTree],
    start: PyTree,
    correction: Callable[[PyTree, Float[Array, ""]], PyTree],
    *,
    begun: Int[Array, ""] | int,
    wanted: Int[Array, ""] | int,
    rtol: Float[Array, ""] | float,
    dimension: int = 16,
    max_products: int = 60,
    scout: Callable[[], PyTree] | None = None,
    scouts: Int[Array, ""] | int = 0,
    above: Float[Array, ""] | float = jnp.inf,
) -> RitzSpace:
    """Return a space in which the top eigenpairs of a symmetric operator are known.

    `product` maps a pytree to one of the same structure; `start` is such a pytree with a leading axis of k rows, of
    which the first `begun` are taken, and the first `wanted` ≤ `begun` pairs are refined until their residuals are
    below `rtol` times the largest value; of the others comes what falls off. All numbers may be traced: this is what
    Lanczos cannot do. The space grows by correction(r, θ) ≈ (H − θ)⁻¹r for the Ritz pair (θ, x) with the longest
    residual r = Hx − θx (Davidson 1975): with −r it is the Krylov space of Lanczos, and with a curvature known nearby
    each product gains as many digits as that agrees with H. At `dimension` rows it is restarted from three quarters.

    What may have come to the top besides is looked for by so many `scouts`: after the rows of `start` come those of the
    Krylov space of `scout()`, and every pair with a value from `above` on is wanted, too. The program holds the product
    once.
    """
    k = jax.tree.leaves(start)[0].shape[0]
    dimension = min(dimension, vectors.size_of(start) // k)
    first = jnp.minimum(begun + scouts, dimension)
    most = max_products + scouts

    def sought(values: Float[Array, " dimension"]) -> Int[Array, ""]:
        return jnp.maximum(wanted, jnp.sum(values[:k] >= above))

    def unfinished(space: RitzSpace) -> Bool[Array, ""]:
        left = jnp.where(jnp.arange(k) < sought(space.values), space.residuals, 0)
        good = jnp.all(left <= rtol * jnp.max(jnp.abs(space.values[:1])))
        return (space.products < first) | (~good & (space.products < most) & jnp.all(jnp.isfinite(left)))

    def widen(space: RitzSpace) -> RitzSpace:
        space = _make_room(space, k)

        def known() -> PyTree:
            return vectors.row(start, space.products)

        def towards_the_worst() -> PyTree:
            return correction(space.longest, space.values[space.worst])

        def further() -> PyTree:
            return vectors.row(space.images, space.filled - 1)

        ways = [known, towards_the_worst] + ([] if scout is None else [scout, further])
        beyond = jnp.where(space.products == begun, 2, 3) if scout is not None else 1
        way = jnp.where(space.products < begun, 0, jnp.where(space.products < first, beyond, 1))
        space = _add_row(product, space, jax.lax.switch(way, ways))
        pairs = space.values, space.ritz, space.residuals, space.longest, space.worst
        pairs = jax.lax.cond(space.products < first, lambda: pairs, lambda: _rayleigh_ritz(space, sought))
        return replace(space, **dict(zip(("values", "ritz", "residuals", "longest", "worst"), pairs, strict=True)))

    return jax.lax.while_loop(unfinished, widen, _void_space(start, dimension, k))


def _void_space(start: PyTree, dimension: int, k: int) -> RitzSpace:
    empty = jax.tree.map(lambda leaf: jnp.zeros((dimension, *leaf.shape[1:]), leaf.dtype), start)
    square = jnp.zeros((dimension, dimension), vectors.dtype_of(start))
    void, none = jnp.full_like(square[0], -jnp.inf), jnp.array(0)
    return RitzSpace(empty, empty, square, none, void, square, -void[:k], vectors.row(empty, 0), none, none)


def _add_row(product: Callable, space: RitzSpace, row: PyTree) -> RitzSpace:
    """Return the space with the new direction of a row, and its image."""
    index = space.filled
    basis, _ = krylov.append(space.basis, vectors.divided(row, vectors.peak(row)), index)
    image = product(vectors.row(basis, index))
    images = jax.tree.map(lambda leaf, entries: leaf.at[index].set(entries), space.images, image)
    inner = vectors.inner_products(basis, image)
    projected = space.projected.at[index].set(inner).at[:, index].set(inner)
    added = {"basis": basis, "images": images, "projected": projected}
    return replace(space, filled=index + 1, products=space.products + 1, **added)


def _rayleigh_ritz(space: RitzSpace, sought: Callable[[Array], Array]) -> tuple[Array, Array, Array, PyTree, Array]:
    """Return the Ritz values of a space, their vectors in its rows, and the residuals of those that are sought."""
    there = jnp.arange(len(space.values)) < space.filled
    projected = jnp.where(there[:, None] & there[None], space.projected, 0)
    # Void rows must not be mistaken for an end of the spectrum.
    below = -2 * jnp.max(jnp.abs(projected)) * len(there) - 1
    values, columns = decomposition(projected + jnp.diag(jnp.where(there, 0, below)))
    values, ritz = jnp.where(there, values[::-1], -jnp.inf), jnp.where(there[:, None], columns.T[::-1], 0)

    def measure(index: Array, found: tuple[Array, PyTree, Array]) -> tuple[Array, PyTree, Array]:
        residuals, longest, worst = found
        image, row = (vectors.combination(ritz[index], rows) for rows in (space.images, space.basis))
        residual = vectors.difference(image, vectors.scaled(values[index], row))
        size = vectors.norm(residual)
        longer = (index == 0) | (size > residuals[worst])
        worst = jnp.where(longer, index, worst)
        return residuals.at[index].set(size), vectors.where(longer, residual, longest), worst

    found = jnp.full_like(space.residuals, jnp.inf), space.longest, jnp.array(0)
    return values, ritz, *jax.lax.fori_loop(0, jnp.minimum(sought(values), space.filled), measure, found)


def _make_room(space: RitzSpace, k: int) -> RitzSpace:
    """Return the space, restarted from its top rows where it is full."""
    dimension = len(space.values)
    kept = min(max(k + 2, 3 * dimension // 4), dimension - 1)

    def restart(space: RitzSpace) -> RitzSpace:
        turn = jnp.pad(space.ritz[:kept], ((0, dimension - kept), (0, 0)))
        basis, images = (vectors.combination(turn, rows) for rows in (space.basis, space.images))
        projected = jnp.diag(jnp.where(jnp.arange(dimension) < kept, space.values, 0))
        return replace(space, basis=basis, images=images, projected=projected, filled=jnp.array(kept))

    # A loop of one round at most: unlike a conditional, it copies no rows where there is nothing to do.
    return jax.lax.while_loop(lambda space: space.filled >= dimension, restart, space)
