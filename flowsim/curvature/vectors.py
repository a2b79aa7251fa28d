"""Linear algebra of vectors that are pytrees, and of rows of them: pytrees with one more axis in front.

Leaves are never concatenated, so each keeps its own sharding.
"""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..networks.weights import norm as norm


def size_of(vector: PyTree) -> int:
    """Return the number of entries, p."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(vector))


def dtype_of(vector: PyTree) -> jnp.dtype:
    """Return the type that holds entries of every leaf."""
    return jnp.result_type(*[leaf.dtype for leaf in jax.tree.leaves(vector)])


def row(rows: PyTree, index: int | Array) -> PyTree:
    """Return one row."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False), rows)


def inner_products(rows: PyTree, vector: PyTree) -> Float[Array, " k"]:
    """Return the inner product of every row with the vector.

    On a CPU, XLA adds up a long `dot` one entry after the other, which in float32 costs four digits at 10⁷ entries, and
    one at some thousand. So it is a sum in single precision, in double a `dot`, which takes an eighth of the time.
    """
    return sum_of(
        _contracted(leaf, entries)
        if entries.dtype.itemsize == 8
        else jnp.sum(leaf * entries[None], axis=tuple(range(1, leaf.ndim)))
        for leaf, entries in zip(jax.tree.leaves(rows), jax.tree.leaves(vector), strict=True)
    )


def inner_product(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """Return the inner product of two vectors.

    Args:
        one: A pytree of arrays.
        other: Another of the same structure.

    Returns:
        The sum of the products of all entries.
    """
    return sum_of(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), one, other)))


def length(vector: PyTree) -> Float[Array, ""]:
    """Return the norm of a vector of about length one: unlike in `norm`, squares may leave the range of floats."""
    return jnp.sqrt(inner_product(vector, vector))


def sum_of(terms: Iterable[Array]) -> Array:
    """Return the sum of arrays, without a zero to start from."""
    return functools.reduce(jnp.add, terms)


def gram(some: PyTree, others: PyTree) -> Float[Array, "k m"]:
    """Return the inner product of each of some rows with each of others.

    In single precision one row after the other: at once, XLA would write down all k·m products of all entries.
    """
    if dtype_of(some).itemsize == 8:
        return sum_of(jax.tree.leaves(jax.tree.map(_contracted, some, others)))
    return jax.lax.map(lambda one: inner_products(others, one), some)


def _contracted(rows: Array, others: Array) -> Array:
    """Return the inner products over all axes of an entry of rows."""
    axes = range(1, rows.ndim)
    beside = range(others.ndim - len(axes), others.ndim)
    return jnp.tensordot(rows, others, (tuple(axes), tuple(beside)), precision=jax.lax.Precision.HIGHEST)


def combination(coefficients: Float[Array, "*several k"], rows: PyTree) -> PyTree:
    """Return the sum of the rows times their coefficients, or several such sums as rows."""
    return jax.tree.map(lambda leaf: jnp.tensordot(coefficients.astype(leaf.dtype), leaf, 1), rows)


def scaled(factor: Array, vector: PyTree) -> PyTree:
    """Return factor · vector."""
    return jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, vector)


def divided(vector: PyTree, divisor: Array) -> PyTree:
    """Return vector / divisor, where 1/divisor may overflow."""
    return jax.tree.map(lambda leaf: leaf / divisor.astype(leaf.dtype), vector)


def difference(one: PyTree, other: PyTree) -> PyTree:
    """Return one − other."""
    return jax.tree.map(jnp.subtract, one, other)


def where(condition: Array, chosen: PyTree, other: PyTree) -> PyTree:
    """Return one of two pytrees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, other)


def peak(vector: PyTree) -> Float[Array, ""]:
    """Return the largest absolute entry, or one for the zero vector: a divisor that avoids overflow in squares."""
    peaks = [jnp.max(jnp.abs(leaf), initial=0) for leaf in jax.tree.leaves(vector)]
    largest = jnp.max(jnp.stack([value.astype(dtype_of(vector)) for value in peaks]))
    return jnp.where(largest == 0, 1, largest)


def pruned(rows: PyTree, part: float) -> PyTree:
    """Return the rows without entries below so small a `part` of the largest of their row.

    In an eigenvector those are rounding. A step by its curvature would move weights of any size by them, and a small
    weight that grows would be lost.
    """

    def of_row(row: PyTree) -> PyTree:
        least = part * peak(row)
        return jax.tree.map(lambda leaf: jnp.where(jnp.abs(leaf) > least.astype(leaf.dtype), leaf, 0), row)

    return jax.vmap(of_row)(rows)


def scattered_like(vector: PyTree, seed: int | Int[Array, ""]) -> PyTree:
    """Return pseudo-random entries in [−1, 1), a fixed function of their index, shaped and sharded as the vector.

    They are NaN where the vector is. An integer hash (Wellons 2018, "lowbias32") compiles in a fraction of the time of
    `jax.random`, and needs no key.
    """
    leaves, structure = jax.tree.flatten(vector)
    scattered = []
    for number, leaf in enumerate(leaves):
        place = jnp.zeros(leaf.shape, jnp.uint32)
        for axis, size in enumerate(leaf.shape):
            place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis)
        offset = jnp.uint32(0x9E3779B9 * (number + 1) % 2**32)
        place = place + jnp.asarray(seed, jnp.uint32) * jnp.uint32(0x85EBCA6B) + offset
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
            place = (place ^ (place >> shift)) * jnp.uint32(factor)
        entries = place.astype(leaf.dtype) * leaf.dtype.type(2.0**-31) - 1
        # XLA gives the operands of an elementwise operation one sharding. The operation must use the leaf, or it is
        # simplified away before shardings are chosen; this use changes no result.
        scattered.append(jnp.where(jnp.isnan(leaf), leaf, entries))
    return structure.unflatten(scattered)
