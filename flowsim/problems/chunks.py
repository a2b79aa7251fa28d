"""Passes over samples, all at once or in chunks of which only one is in memory at a time."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Var
from jaxtyping import Array, PyTree

from ..runtime.memory import device_bytes


def over_samples(function: Callable[..., PyTree], samples: Sequence[Array], chunk_size: int | None) -> PyTree:
    """Return `jax.vmap(function)(*samples)`, computed `chunk_size` samples at a time.

    Every chunk is checkpointed, so that reverse mode stores the intermediate values of one chunk only.
    """
    count = samples[0].shape[0]
    if chunk_size is None or chunk_size >= count:
        return jax.vmap(function)(*samples)

    def chunk(first: Array | int, size: int) -> PyTree:
        parts = [jax.lax.dynamic_slice_in_dim(leaf, first, size) for leaf in samples]
        return jax.vmap(function)(*parts)

    whole, rest = divmod(count, chunk_size)
    # Within a scan there is no common subexpression to eliminate, so JAX need not prevent it.
    repeated = jax.checkpoint(lambda first: chunk(first, chunk_size), prevent_cse=False)
    _, found = jax.lax.scan(lambda _, first: (None, repeated(first)), None, chunk_size * jnp.arange(whole))
    found = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
    if rest == 0:
        return found
    last = jax.checkpoint(lambda first: chunk(first, rest))(whole * chunk_size)
    return jax.tree.map(lambda one, other: jnp.concatenate([one, other]), found, last)


def fitting_chunk(
    bytes_of_sample: float,
    count: int,
    *,
    share_of_pass: float = 0.5,
    share_of_chunk: float = 0.125,
    bytes_of_chunk: int = 2**30,
) -> int | None:
    """Return how many of `count` samples to take at a time, `None` where all together fit into memory.

    `bytes_of_sample` is what is kept of one sample in a forward pass (`activation_bytes`). A pass that is predicted to
    take more than `share_of_pass` of the memory is cut into chunks of at most `share_of_chunk` of it, and of at most
    `bytes_of_chunk`: larger ones take as long for each sample.
    """
    most, needed = device_bytes(), pass_bytes(max(bytes_of_sample, 1), 1)
    if count * needed <= share_of_pass * most:
        return None
    return min(count, max(1, int(min(share_of_chunk * most, bytes_of_chunk) / needed)))


def pass_bytes(bytes_of_sample: float, samples: int, *, copies: int = 2) -> float:
    """Return about how many bytes a derivative keeps of so many samples at once.

    A linearized gradient keeps every value up to twice: measured 1.5 `copies`, as compiled programs recompute those
    that are cheap.
    """
    return copies * bytes_of_sample * samples


def check_chunk_size(size: object) -> int | None:
    """Return the number of samples of a chunk, or `None`; `ValueError` for what is neither."""
    if size is None:
        return None
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise ValueError(f"chunk_size must be a number of samples, one or more, or None, got {size!r}")
    return int(size)


def activation_bytes(function: Callable[[Any, Any], Any], fixed: PyTree, varying: PyTree) -> float:
    """Return the bytes of all intermediate values of `function(fixed, varying)` that depend on its second argument.

    That is more than is stored, as compiled programs recompute what is cheap. The arrays may be shapes.
    """
    program = _program_of(function, fixed, varying)
    count = sum(map(_is_array, jax.tree.leaves(fixed)))
    return _bytes_in(program, [number >= count for number in range(len(program.invars))])


def shape_of(function: Callable[..., Array], *arguments: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and type of the array that a function returns. The arrays in its arguments may be shapes."""
    found: Any = _program_of(function, *arguments).outvars[0].aval
    return jax.ShapeDtypeStruct(found.shape, found.dtype)


def _program_of(function: Callable[..., Any], *arguments: Any) -> Jaxpr:
    """Return the program of a function, traced once for all arguments of one structure; nothing is computed."""
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if _is_array(leaf) else leaf for leaf in leaves)
    try:
        return _traced(function, structure, shapes)
    except TypeError:  # a part of the arguments that cannot be a key
        return _traced.__wrapped__(function, structure, shapes)


@functools.lru_cache(maxsize=64)
def _traced(function: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]) -> Jaxpr:
    arrays = [leaf for leaf in leaves if _is_array(leaf)]

    def of_arrays(given: list[Array]) -> Any:
        remaining = iter(given)
        return function(*structure.unflatten([next(remaining) if _is_array(leaf) else leaf for leaf in leaves]))

    return jax.make_jaxpr(of_arrays)(arrays).jaxpr


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)


def _bytes_in(jaxpr: Jaxpr, moving: Sequence[bool]) -> float:
    """Return the bytes of what a program computes of those of its inputs that differ from sample to sample.

    Of an operation that consists of programs, such as a loop, the largest one counts.
    """
    varying = {var for var, moves in zip(jaxpr.invars, moving, strict=True) if moves}
    total = 0.0
    for equation in jaxpr.eqns:
        moves = [isinstance(var, Var) and var in varying for var in equation.invars]
        if not any(moves):
            continue
        varying.update(equation.outvars)
        params, repeats = equation.params, 1
        if equation.primitive.name == "scan":
            (consts, carried), repeats = _fixed_and_carried(params), params["length"]
            moves = [*moves[:consts], *[True] * carried, *moves[consts + carried :]]
        # A loop and a choice begin with inputs that their parts do not have.
        inner = [_bytes_in(part, moves[len(moves) - len(part.invars) :]) for part in _programs_in(params.values())]
        if inner:
            total += repeats * max(inner)
        else:
            results: list[Any] = [var.aval for var in equation.outvars]
            total += sum(math.prod(result.shape) * result.dtype.itemsize for result in results)
    return total


def _fixed_and_carried(params: dict[str, Any]) -> tuple[int, int]:
    """Return how many inputs of a loop are the same in every turn, and how many go from turn to turn.

    JAX keeps their numbers until 0.11, and trees of them since.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = params["ft_in"].unpack()
    return len(tuple(fixed.vals)), len(tuple(carried.vals))


def _programs_in(params: Iterable[Any]) -> Iterator[Jaxpr]:
    for value in params:
        if isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, tuple | list):
            yield from _programs_in(value)
