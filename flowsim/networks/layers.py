"""A chain of weight matrices, stored so that depth costs neither compile time nor dispatch.

Consecutive matrices of one shape are stacked into one array and visited by `jax.lax.scan`, so a network of
depth 1000 compiles to the same program as one of depth 10.
"""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from .weights import standard_normal

Stacks = tuple[Float[Array, "*batch _layers _out _in"], ...]


def stack(weights: Sequence[ArrayLike]) -> Stacks:
    """Stack the runs of equal shape in W_1, …, W_L; an entry of three axes is a run stacked already.

    Raises `ValueError` where an entry is no matrix of floating-point numbers, or two neighbours do not fit.
    """
    if not isinstance(weights, Sequence):
        raise TypeError(f"weights must be a list of matrices, W_1 first, got a {type(weights).__name__}")
    if len(weights) == 0:
        raise ValueError("a network needs at least one weight matrix, got an empty list")
    runs = []
    for number, entry in enumerate(weights, start=1):
        expected = f"weight {number} must be a floating-point matrix (out, in)"
        if not isinstance(entry, jax.Array) and np.asarray(entry).dtype.kind not in "iuf":
            raise ValueError(f"{expected}, got {np.asarray(entry).dtype}")
        weight = jnp.asarray(entry)
        if weight.ndim not in (2, 3) or 0 in weight.shape or not jnp.issubdtype(weight.dtype, jnp.floating):
            raise ValueError(f"{expected}, got shape {weight.shape} of {weight.dtype}")
        run = weight if weight.ndim == 3 else weight[None]
        if run.shape[0] > 1 and run.shape[1] != run.shape[2]:
            raise ValueError(f"weight {number} stacks several layers, so it must be square, got shape {run.shape}")
        runs.append(run)
    for number, (below, above) in enumerate(pairwise(runs), start=2):
        if below.shape[1] != above.shape[2]:
            raise ValueError(
                f"weight {number} has shape {above.shape[1:]}, but the one before has {below.shape[1]} outputs: "
                f"expected shape (…, {below.shape[1]})"
            )
    groups = [list(group) for _, group in groupby(runs, key=lambda run: run.shape[1:])]
    return tuple(group[0] if len(group) == 1 else jnp.concatenate(group) for group in groups)


def unstack(stacks: Stacks) -> tuple[Float[Array, "*batch _out _in"], ...]:
    """Return W_1, …, W_L as a tuple: the inverse of `stack`."""
    return tuple(stack[..., layer, :, :] for stack in stacks for layer in range(stack.shape[-3]))


def gaussian(
    widths: Sequence[int], scale: ArrayLike, *, key: Array, dtype: jnp.dtype | None, fan_in: bool = False
) -> tuple[Float[Array | np.ndarray, "_layers _out _in"], ...]:
    """Draw stacks for widths d_0, …, d_L with independent N(0, scale²) entries, JAX's arrays or NumPy's.

    With `fan_in` those of W_k are N(0, scale²/d_{k−1}).
    """
    check_widths(widths)
    # Of a traced scale the shape and the type alone are there to be checked.
    traced = isinstance(scale, Tracer)
    number: Any = scale if traced else np.asarray(scale)
    if number.dtype.kind not in "iuf" or number.shape != () or not (traced or number >= 0):
        found = f"numbers of shape {number.shape} and type {number.dtype}" if traced else repr(scale)
        raise ValueError(f"scale must be a standard deviation, zero or more, got {found}")
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    runs = [(shape, len(list(run))) for shape, run in groupby(shapes)]
    dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    scale = scale.astype(dtype) if isinstance(scale, jax.Array | np.ndarray | np.generic) else scale
    return tuple(
        (scale / shape[1] ** 0.5 if fan_in else scale) * standard_normal(key, number, (count, *shape), dtype)
        for number, (shape, count) in enumerate(runs)
    )


def check_widths(widths: Sequence[int]) -> None:
    """Raise `ValueError` unless `widths` are d_0, …, d_L, positive whole numbers with L ≥ 1."""
    if len(widths) < 2:
        raise ValueError(f"widths are d_0, …, d_L with at least one layer, so two numbers or more; got {list(widths)}")
    if any(not isinstance(width, int) or isinstance(width, bool) or width < 1 for width in widths):
        raise ValueError(f"every width must be a positive whole number, got {list(widths)}")


def numbers(stacks: Stacks) -> list[Int[np.ndarray, " layers"]]:
    """Return the numbers of the layers of each stack, from zero."""
    ends = np.cumsum([stack.shape[0] for stack in stacks])
    return [np.arange(end - stack.shape[0], end) for stack, end in zip(stacks, ends, strict=True)]


def depth(stacks: Stacks) -> int:
    """Return L."""
    return sum(stack.shape[-3] for stack in stacks)


def scan_layers(step: Callable, start: Array | np.ndarray, stacks: tuple, *, reverse: bool = False) -> Array:
    """Fold `step(state, layer) -> state` over the layers of `stacks`, from the first to the last or in reverse."""
    state = jnp.asarray(start)
    for stack in reversed(stacks) if reverse else stacks:
        state, _ = fold(lambda s, layer: (step(s, layer), None), state, stack, reverse=reverse)
    return state


def states(step: Callable, start: Array, stacks: tuple, *, reverse: bool = False) -> tuple[Array, tuple[Array, ...]]:
    """Fold as `scan_layers` does, and return the last state, and that before each layer, in stacks as the layers.

    "Before" is below the layer, or above it in reverse.
    """
    state, before = start, []
    for stack in reversed(stacks) if reverse else stacks:
        state, entered = fold(lambda s, layer: (step(s, layer), s), state, stack, reverse=reverse)
        before.append(entered)
    return state, tuple(reversed(before) if reverse else before)


def fold(step: Callable, start: Array, stack: PyTree, *, reverse: bool = False) -> tuple[Array, PyTree]:
    """Scan `step(state, layer) -> (state, output)` over the layers of a stack, of which one alone may change shapes."""
    if jax.tree.leaves(stack)[0].shape[0] > 1:
        return jax.lax.scan(step, start, stack, reverse=reverse)
    state, output = step(start, jax.tree.map(lambda array: array[0], stack))
    return state, jax.tree.map(lambda array: array[None], output)
