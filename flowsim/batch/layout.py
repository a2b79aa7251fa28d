"""Arrays with the lane as the last axis, so that every sum over another axis is a loop over whole vectors."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

_TERMS = 50
_VECTORS = 256


def lanes_last(tree: PyTree) -> PyTree:
    """Return the arrays with the first axis moved to the end."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), tree)


def lanes_first(tree: PyTree) -> PyTree:
    """Return the arrays with the last axis moved to the front."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), tree)


def unchanged(before: PyTree, after: PyTree) -> Bool[Array, " lanes"]:
    """Tell for each lane, the last axis, whether all entries are equal."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    same = [jnp.all(old == new, axis=tuple(range(old.ndim - 1))) for old, new in pairs]
    return jnp.all(jnp.stack(same), axis=0)


def apply(weight: Array, state: Array) -> Array:
    """Return W s: (out, …) from (out, in, …) and (in, …)."""
    return jnp.sum(weight * state[None], axis=1)


def apply_transposed(weight: Array, state: Array) -> Array:
    """Return Wᵀ s: (in, …) from (out, in, …) and (out, …)."""
    return jnp.sum(weight * state[:, None], axis=0)


def sum_over_samples(left: Array, right: Array) -> Array:
    """Return Σ_n left right: (out, in, lanes) from (out, n, lanes) and (in, n, lanes).

    The terms are written out, because XLA's own reduction over a middle axis takes four times as long.
    """
    blocks, first = divmod(left.shape[1] - 1, _TERMS)
    total = _sum_of_terms(left[:, : first + 1], right[:, : first + 1])
    if blocks == 0:
        return total

    def add(block: Array, total: Array) -> Array:
        start = first + 1 + _TERMS * block
        parts = (jax.lax.dynamic_slice_in_dim(array, start, _TERMS, axis=1) for array in (left, right))
        return total + _sum_of_terms(*parts)

    return jax.lax.fori_loop(0, blocks, add, total)


def _sum_of_terms(left: Array, right: Array) -> Array:
    total = left[:, None, 0] * right[None, :, 0]
    for sample in range(1, left.shape[1]):
        total = total + left[:, None, sample] * right[None, :, sample]
    return total


def moved(weight: Array, rates: Float[Array, " lanes"], gradient: Array, moving: Bool[Array, " lanes"]) -> Array:
    """Return W − η∇ for the lanes that move, and W for the others."""
    lanes = (1,) * (weight.ndim - 1) + rates.shape
    return jnp.where(moving.reshape(lanes), weight - rates.reshape(lanes) * gradient, weight)


def fold(step: Callable, start: Array, stack: PyTree, *, reverse: bool = False) -> tuple[Array, PyTree]:
    """Scan `step(state, layer) -> (state, output)` over the layers of a stack, of which one alone may change shapes."""
    if jax.tree.leaves(stack)[0].shape[0] > 1:
        return jax.lax.scan(step, start, stack, reverse=reverse)
    state, output = step(start, jax.tree.map(lambda array: array[0], stack))
    return state, jax.tree.map(lambda array: array[None], output)


def lanes_for(bytes_of_a_lane: int, itemsize: int, *, cache: int) -> int:
    """Return the number of lanes of a group: a few whole vectors for each number, fewer where a step would touch more
    than `cache` bytes.
    """
    fitting = max(cache // bytes_of_a_lane, 1).bit_length() - 1
    return min(max(1 << fitting, 8), _VECTORS // itemsize)
