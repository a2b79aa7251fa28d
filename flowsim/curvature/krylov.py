"""Krylov spaces of symmetric operators: an orthonormal basis that is extended by products and restarted in place."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from . import vectors


class Krylov(eqx.Module):
    """Orthonormal rows v_0, v_1, … of which the first `filled` have been multiplied by the operator H.

    The next `block` rows are not multiplied yet, and those behind them are void. `coupling[i, j]` = ⟨v_i, Hv_j⟩ for
    j < filled and all rows i up to j + block, which were there when v_j was multiplied.
    """

    basis: PyTree
    coupling: Float[Array, "larger dimension"]
    filled: Int[Array, ""]

    @property
    def block(self) -> int:
        """The number of rows that are not multiplied yet."""
        return self.coupling.shape[0] - self.coupling.shape[1]

    @property
    def void(self) -> Int[Array, ""]:
        """The index of the first void row. Where the rows span everything, those that wait are void, too."""
        return jnp.minimum(self.filled + self.block, self.coupling.shape[0] - 1)

    def projection(self) -> Float[Array, "dimension dimension"]:
        """Return VHVᵀ for the rows multiplied so far, with the first Rayleigh quotient on the rest of the diagonal.

        That lies within the spectrum of VHVᵀ, so it is never mistaken for one of its ends.
        """
        dimension = self.coupling.shape[1]
        upper = jnp.triu(self.coupling[:dimension])
        void = jnp.arange(dimension) >= self.filled
        return upper + jnp.triu(upper, 1).T + jnp.diag(jnp.where(void, upper[0, 0], 0))

    def remainders(self, ritz: Float[Array, "dimension k"]) -> Float[Array, "larger k"]:
        """Return the residuals of Ritz vectors, as coefficients of the rows that are not multiplied yet."""
        waiting = jnp.arange(self.coupling.shape[0]) >= self.filled
        return jnp.where(waiting[:, None], self.coupling @ ritz, 0)


def begin(start: PyTree, dimension: int) -> Krylov:
    """Return the space of the rows of `start`, with room for `dimension` products."""
    block = jax.tree.leaves(start)[0].shape[0]
    rows, dtype = dimension + block, vectors.dtype_of(start)
    first = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), 0 * leaf, 0), start)

    def add(index: Array, basis: PyTree) -> PyTree:
        vector = vectors.row(start, index)
        return append(basis, vectors.divided(vector, vectors.peak(vector)), index)[0]

    first = jax.lax.fori_loop(0, block, add, first)
    # Padded rather than allocated, so that the basis is sharded as the start; and padded last: XLA copies a basis that
    # is read before the loops that extend it.
    basis = jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, dimension)] + [(0, 0)] * (leaf.ndim - 1)), first)
    return Krylov(basis, jnp.zeros((rows, dimension), dtype), jnp.array(0))


def widen(product: Callable[[PyTree], PyTree], space: Krylov) -> Krylov:
    """Return the space after one more product."""
    return with_direction(*with_image(product, space, space.filled))


def with_image(
    product: Callable[[PyTree], PyTree], space: Krylov, row: Int[Array, ""]
) -> tuple[Krylov, Float[Array, ""]]:
    """Return the space with the image of a row in its first void one, divided by its largest entry, and this entry.

    There it takes no memory of its own.
    """
    image = product(vectors.row(space.basis, row))
    unit = vectors.peak(image)
    basis = with_row(space.basis, space.void, vectors.divided(image, unit))
    return replace(space, basis=basis), unit


def with_direction(space: Krylov, unit: Float[Array, ""]) -> Krylov:
    """Return the space with the image of its next row, held divided by `unit`, made orthogonal to the rows before."""
    basis, column = append(space.basis, vectors.row(space.basis, space.void), space.void)
    return Krylov(basis, space.coupling.at[:, space.filled].set(unit * column), space.filled + 1)


def append(basis: PyTree, vector: PyTree, index: Int[Array, ""]) -> tuple[PyTree, Float[Array, " rows"]]:
    """Return the basis with a row for the new direction of `vector`, and the coefficients of `vector` in the rows."""
    remainder, coefficients = _orthogonalize(vector, basis, index)
    length = vectors.norm(remainder)
    # Where the space is invariant, as for a Hessian of low rank, what is left is rounding: continue with a random row.
    exhausted = length <= 100 * jnp.finfo(length.dtype).eps * vectors.norm(vector)
    new = jax.lax.cond(exhausted, lambda: _random_row(basis, index), lambda: vectors.divided(remainder, length))
    return with_row(basis, index, new), coefficients.at[index].set(jnp.where(exhausted, 0, length))


def with_row(basis: PyTree, index: Int[Array, ""], vector: PyTree) -> PyTree:
    """Return the basis with `vector` as the row of that number."""
    return jax.tree.map(lambda leaf, entries: leaf.at[index].set(entries), basis, vector)


def _random_row(basis: PyTree, index: Int[Array, ""]) -> PyTree:
    """Return a random unit vector orthogonal to the first `index` rows; zero if they span everything.

    It brings in what an invariant space leaves out, such as the second copy of an eigenvalue.
    """
    like = vectors.row(basis, 0)
    remainder, _ = _orthogonalize(vectors.scattered_like(like, index), basis, index)
    spanned = index >= vectors.size_of(like)
    length = jnp.where(spanned, 1, vectors.norm(remainder))
    return vectors.scaled(jnp.where(spanned, 0, 1 / length), remainder)


def _orthogonalize(vector: PyTree, basis: PyTree, index: Int[Array, ""]) -> tuple[PyTree, Float[Array, " rows"]]:
    """Return the part of `vector` orthogonal to the first `index` rows, and its coefficients in them."""
    rows = jax.tree.leaves(basis)[0].shape[0]
    total = jnp.zeros(rows, vectors.dtype_of(vector))
    # Twice is enough (Kahan; Parlett 1980, section 6.9).
    for _ in range(2):
        coefficients = jnp.where(jnp.arange(rows) < index, vectors.inner_products(basis, vector), 0)
        vector = vectors.difference(vector, vectors.combination(coefficients, basis))
        total = total + coefficients
    return vector, total


def restart(
    space: Krylov, values: Float[Array, " k"], ritz: Float[Array, "dimension k"], count: Int[Array, ""]
) -> Krylov:
    """Return the space of k Ritz vectors, of which the first `count` are computed, and the rows not multiplied yet.

    The basis is rotated by Householder reflections, each of which updates it in place with the memory of one more
    vector; a matrix product would need k.
    """
    kept, block = len(values), space.block
    remainder = jax.lax.dynamic_slice_in_dim(space.coupling @ ritz, space.filled, block)
    filled = jnp.arange(ritz.shape[0]) < space.filled
    basis, signs = _rotate(space.basis, jnp.where(filled[:, None], ritz, 0), count)
    waiting = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, space.filled, block), basis)
    # Without the barrier XLA fuses reading with writing, and copies the basis.
    waiting, basis = jax.lax.optimization_barrier((waiting, basis))
    basis = jax.tree.map(lambda leaf, entries: leaf.at[kept : kept + block].set(entries), basis, waiting)
    coupling = jnp.zeros_like(space.coupling).at[jnp.arange(kept), jnp.arange(kept)].set(values)
    coupling = coupling.at[kept : kept + block, :kept].set(remainder * signs[None])
    return Krylov(basis, coupling, jnp.array(kept))


def _rotate(basis: PyTree, ritz: Float[Array, "dimension k"], count: Int[Array, ""]) -> tuple[PyTree, Array]:
    """Return the basis rotated so that its first `count` rows are Ritz vectors up to signs, and these signs."""
    dimension = ritz.shape[0]
    behind = jax.tree.leaves(basis)[0].shape[0] - dimension

    def reflect(index: Array, state: tuple) -> tuple:
        basis, ritz, signs = state
        column = jnp.where(jnp.arange(dimension) >= index, ritz[:, index], 0)
        length = jnp.linalg.norm(column)
        image = jnp.where(column[index] > 0, -length, length)
        normal = column.at[index].add(-image)
        normal = normal / jnp.linalg.norm(normal)
        ritz = ritz - 2 * jnp.outer(normal, normal @ ritz)
        return _reflect(basis, jnp.pad(normal, (0, behind))), ritz, signs.at[index].set(jnp.sign(image))

    basis, _, signs = jax.lax.fori_loop(0, count, reflect, (basis, ritz, jnp.ones(ritz.shape[1], ritz.dtype)))
    return basis, signs


def _reflect(basis: PyTree, normal: Float[Array, " rows"]) -> PyTree:
    def of_leaf(leaf: Array, along: Array) -> Array:
        return leaf - 2 * jnp.expand_dims(normal.astype(leaf.dtype), range(1, leaf.ndim)) * along[None]

    return jax.tree.map(of_leaf, basis, vectors.combination(normal, basis))
