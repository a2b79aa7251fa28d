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

    def scaled(index: Array | int) -> PyTree:
        vector = vectors.row(start, index)
        return vectors.divided(vector, vectors.peak(vector))

    if block == 1:  # there is nothing to make it orthogonal to, and no loop to compile
        vector = scaled(0)
        vector = vectors.where(vectors.length(vector) == 0, vectors.scattered_like(vector, 0), vector)
        vector = vectors.divided(vector, vectors.length(vector))
        first = jax.tree.map(lambda leaf: leaf[None], vector)
    else:
        empty = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), 0 * leaf, 0), start)
        first = jax.lax.fori_loop(0, block, lambda index, basis: append(basis, scaled(index), index)[0], empty)
    # Padded rather than allocated, so that the basis is sharded as the start; and padded last: XLA copies a basis that
    # is read before the loops that extend it.
    basis = jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, dimension)] + [(0, 0)] * (leaf.ndim - 1)), first)
    return Krylov(basis, jnp.zeros((rows, dimension), dtype), jnp.array(0))


def krylov_space(product: Callable[[PyTree], PyTree], start: PyTree, dimension: int) -> Krylov:
    """Return the space of the rows of `start` after `dimension` products."""

    def widened(_: Array, space: Krylov) -> Krylov:
        return with_direction(*with_image(product, space, space.filled))

    return jax.lax.fori_loop(0, dimension, widened, begin(start, dimension))


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
    column = (unit * column).astype(space.coupling.dtype)
    coupling = jax.lax.dynamic_update_index_in_dim(space.coupling, column, space.filled, axis=1)
    return Krylov(basis, coupling, space.filled + 1)


def append(basis: PyTree, vector: PyTree, index: Int[Array, ""]) -> tuple[PyTree, Float[Array, " rows"]]:
    """Return the basis with a row for the new direction of `vector`, and the coefficients of `vector` in the rows.

    The largest entry of `vector` is one in size, or all are zero. Where the space is invariant, as for a Hessian of low
    rank, what is left of `vector` is rounding, and a random row takes its place. It brings in what an invariant space
    leaves out, such as the second copy of an eigenvalue; the row is zero if the rows before span everything.
    """
    places = jnp.arange(jax.tree.leaves(basis)[0].shape[0])
    rounding = 100 * jnp.finfo(vectors.dtype_of(vector)).eps * vectors.length(vector)
    # Twice is enough (Kahan; Parlett 1980, section 6.9), for the vector as for a random one.
    enough = 2

    def orthogonalize(state: tuple) -> tuple:
        turn, vector, total, _, exhausted = state
        coefficients = jnp.where(places < index, vectors.inner_products(basis, vector), 0)
        vector = vectors.difference(vector, vectors.combination(coefficients, basis))
        length = vectors.length(vector)
        lost = (turn + 1 == enough) & (length <= rounding)
        # A seed that changes with the turn keeps XLA from computing the random row before the loop, and holding it.
        vector = vectors.where(lost, vectors.scattered_like(vector, index + turn), vector)
        total = total + jnp.where(turn < enough, coefficients, 0)
        return turn + 1, vector, total, length, exhausted | lost

    total = jnp.zeros(places.shape, vectors.dtype_of(vector))
    state = jnp.array(0), vector, total, jnp.zeros_like(rounding), jnp.array(False)
    _, vector, total, length, exhausted = jax.lax.while_loop(
        lambda state: state[0] < jnp.where(state[-1], 2 * enough, enough), orthogonalize, state
    )
    spanned = exhausted & (index >= vectors.size_of(vector))
    new = vectors.divided(vector, jnp.where(spanned, jnp.inf, length))
    return with_row(basis, index, new), jnp.where(places == index, jnp.where(exhausted, 0, length), total)


def with_row(basis: PyTree, index: Int[Array, ""], vector: PyTree) -> PyTree:
    """Return the basis with `vector` as the row of that number."""
    put = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda leaf, entries: put(leaf, entries.astype(leaf.dtype), index, axis=0), basis, vector)


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
    put = jax.lax.dynamic_update_slice_in_dim
    basis = jax.tree.map(lambda leaf, entries: put(leaf, entries, kept, axis=0), basis, waiting)
    rows, dimension = space.coupling.shape
    coupling = jnp.concatenate([jnp.diag(values), remainder * signs[None]])
    coupling = jnp.pad(coupling, ((0, rows - kept - block), (0, dimension - kept)))
    return Krylov(basis, coupling, jnp.array(kept))


def _rotate(basis: PyTree, ritz: Float[Array, "dimension k"], count: Int[Array, ""]) -> tuple[PyTree, Array]:
    """Return the basis rotated so that its first `count` rows are Ritz vectors up to signs, and these signs."""
    dimension = ritz.shape[0]
    behind, places = jax.tree.leaves(basis)[0].shape[0] - dimension, jnp.arange(dimension)

    def reflect(index: Array, state: tuple) -> tuple:
        basis, ritz, signs = state
        column = jax.lax.dynamic_index_in_dim(ritz, index, axis=1, keepdims=False)
        column = jnp.where(places >= index, column, 0)
        length = vectors.length(column)
        image = jnp.where(jnp.sum(jnp.where(places == index, column, 0)) > 0, -length, length)
        normal = jnp.where(places == index, column - image, column)
        normal = normal / vectors.length(normal)
        ritz = ritz - 2 * jnp.outer(normal, normal @ ritz)
        signs = jnp.where(places[: len(signs)] == index, jnp.sign(image), signs)
        normal = jnp.pad(normal, (0, behind))
        basis = jax.tree.map(
            lambda leaf, row: leaf - 2 * jnp.expand_dims(normal.astype(leaf.dtype), range(1, leaf.ndim)) * row[None],
            basis,
            vectors.combination(normal, basis),
        )
        return basis, ritz, signs

    basis, _, signs = jax.lax.fori_loop(0, count, reflect, (basis, ritz, jnp.ones(ritz.shape[1], ritz.dtype)))
    return basis, signs
