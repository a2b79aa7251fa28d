"""A function of PyTorch as data: its operations one after the other, and the arrays that it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..networks import Fixed
from .aten import OPERATIONS


@dataclass(frozen=True)
class Value:
    """A place in the list of values: what the function is given and holds, then the result of each operation."""

    number: int


@dataclass(frozen=True)
class Operation:
    """One operation: its name in `OPERATIONS` and its arguments, which are values, numbers, or tuples of these.

    `dtype` is the type of the result, "weights" for that of the weights; `None` where it is no single array.
    """

    name: str
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    dtype: str | None


@dataclass(frozen=True)
class Program:
    """The operations on a batch of one sample, of arrays of these `shapes`, and on the arrays at the places `held`."""

    shapes: tuple[tuple[int, ...], ...]
    held: tuple[tuple[str, str, str], ...]
    operations: tuple[Operation, ...]
    output: Value

    def __call__(self, given: Sequence[Array], held: Sequence[Array], dtype: jnp.dtype) -> Array:
        """Return the output; arrays whose type is "weights" are of `dtype`."""
        values: list[Any] = [*given, *held]
        for operation in self.operations:
            options = {name: _filled(value, values) for name, value in operation.options}
            result = OPERATIONS[operation.name](*_filled(operation.arguments, values), **options)
            if operation.dtype is not None:
                kind = dtype if operation.dtype == "weights" else jax.dtypes.canonicalize_dtype(operation.dtype)
                result = jnp.asarray(result).astype(kind)
            values.append(result)
        return values[self.output.number]


def _filled(part: Any, values: list[Any]) -> Any:
    if isinstance(part, Value):
        return values[part.number]
    return tuple(_filled(one, values) for one in part) if isinstance(part, tuple) else part


class Lowered(eqx.Module):
    """A PyTorch module, or a loss, as a function of JAX arrays of one sample, which may have any derivative.

    PyTorch is not needed any more: processes without it can run what was lowered.
    """

    weights: dict[str, dict[str, Array]]
    """The parameters that are trained, by the name of their submodule and their own, `weights["0"]["bias"]`; shared
    ones are there once."""
    fixed: Fixed
    """Buffers, constants, and parameters with `requires_grad=False`."""
    program: Program = eqx.field(static=True)
    """The operations."""

    def __call__(self, *sample: Array) -> Array:
        """Return the output for one sample; `ValueError` for one of another shape than it was lowered for."""
        given, expected = tuple(jnp.shape(part) for part in sample), self.program.shapes
        if given != expected:
            said, found = (" and ".join(map(str, shapes)) for shapes in (expected, given))
            raise ValueError(f"it was lowered for one sample of shape {said}, and is given {found}: lower it for these")
        dtype = jnp.result_type(*(jax.tree.leaves(self.weights) or sample[:1]))
        batch = [jnp.asarray(part)[None] for part in sample]
        batch = [part.astype(dtype) if eqx.is_inexact_array(part) else part for part in batch]
        parts = {"weights": self.weights, "fixed": self.fixed.value}
        held = [parts[part][module][name] for part, module, name in self.program.held]
        return self.program(batch, held, dtype)[0]
