"""The Euclidean norm of a pytree, and the angle between two."""

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


def angle_between(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """Return the angle between two pytrees of one structure, in radians; NaN where one of them is zero.

    It is 2 atan(‖u − v‖ / ‖u + v‖) of the unit vectors, which is accurate for small angles; a cosine is not.
    """
    sizes = norm(one), norm(other)
    first = jax.tree.map(lambda leaf: leaf / sizes[0], one)
    second = jax.tree.map(lambda leaf: leaf / sizes[1], other)
    apart, together = (norm(jax.tree.map(join, first, second)) for join in (jnp.subtract, jnp.add))
    return 2 * jnp.arctan2(apart, together)
