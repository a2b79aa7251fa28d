"""Weights as one vector: what compiles, and runs on few of them, faster than many small arrays."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

# Beyond this many weights a copy of them counts, and they may be spread over devices; few arrays are as fast apart.
_MOST = 2**14
_FEW_ARRAYS = 3


class Places(eqx.Module):
    """The places of the entries of a pytree of arrays of one type in one vector."""

    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, tree: PyTree) -> Self | None:
        """Return the places of many small arrays, `None` for few of them and for many entries."""
        leaves, structure = jax.tree.flatten(tree)
        if len(leaves) <= _FEW_ARRAYS or sum(leaf.size for leaf in leaves) > _MOST:
            return None
        return cls(structure, tuple(leaf.shape for leaf in leaves))

    def vector(self, tree: PyTree) -> Float[Array, " entries"]:
        """Return the entries one after the other."""
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    def tree(self, vector: Float[Array, " entries"]) -> PyTree:
        """Return the pytree with these entries."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = [vector[end - int(np.prod(shape)) : end] for end, shape in zip(ends, self.shapes, strict=True)]
        leaves = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)
