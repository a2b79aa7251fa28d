"""Random numbers without compiling a program for every shape, which takes half a second each."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float


def standard_normal(
    key: Array,
    index: int,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    *,
    shortest: int = 2**10,
    longest: int = 2**16,
    splits: int = 2**3,
) -> Float[Array, "..."] | Float[np.ndarray, "..."]:
    """Return `jax.random.normal(jax.random.split(key, count)[index], shape, dtype)`, `count` being any above `index`.

    JAX's own generator makes each number of its place alone. So few numbers are cut off a longer draw; they are
    NumPy's, on which arithmetic compiles nothing. Many are drawn in their own shape, as are those under a
    transformation of JAX, of a type that NumPy lacks, and of another generator, where `count` is a power of two.

    Lengths, from `shortest` to `longest`, and numbers of splits, `splits` or more, are powers of two: few programs.
    """
    size, splits = math.prod(shape), _power_of_two(index + 1, splits)
    if size > longest or not _goes_by_place(key) or not np.issubdtype(dtype, np.floating):
        return jax.random.normal(jax.random.split(key, splits)[index], shape, dtype)
    length = _power_of_two(size, shortest)
    with jax.ensure_compile_time_eval():
        drawn = _drawn(key, np.asarray(index), splits, length, dtype)
    return np.asarray(drawn)[:size].reshape(shape)


@partial(jax.jit, static_argnums=(2, 3, 4))
def _drawn(key: Array, index: Array, splits: int, length: int, dtype: jnp.dtype) -> Array:
    return jax.random.normal(jax.random.split(key, splits)[index], (length,), dtype)


def _power_of_two(number: int, least: int) -> int:
    return max(least, 1 << (number - 1).bit_length())


def _goes_by_place(key: Array) -> bool:
    if isinstance(key, Tracer) or str(jax.random.key_impl(key)) != "threefry2x32":
        return False
    return bool(jax.config.jax_threefry_partitionable)  # pyright: ignore[reportAttributeAccessIssue]
