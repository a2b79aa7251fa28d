"""The one norm: of all entries of a pytree together."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


def norm(tree: PyTree) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries of a pytree together; no square leaves the range of floats.

    The leaves are never brought together into one array, so each keeps its own sharding.
    """
    leaves = jax.tree.leaves(tree)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in leaves]))
    scale = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    return scale * jnp.sqrt(sum(jnp.sum((leaf / scale) ** 2) for leaf in leaves))
