"""Error estimates that tell a step-size controller what to do."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

# The safety factor of Diffrax's PIDController.
_CONTROLLER_SAFETY = 0.9


def scaled_norm(error: PyTree, y0: PyTree, y1: PyTree, rtol: Any, atol: Any) -> Float[Array, ""]:
    """Return the root mean square of error / (atol + rtol max(|y0|, |y1|)), as Diffrax's PIDController does."""

    def squares(e: Array, a: Array, b: Array) -> Array:
        return jnp.sum((e / (atol + rtol * jnp.maximum(jnp.abs(a), jnp.abs(b)))) ** 2)

    total = sum(jax.tree.leaves(jax.tree.map(squares, error, y0, y1)))
    return jnp.sqrt(total / sum(leaf.size for leaf in jax.tree.leaves(y0)))


def commanded_error(error: PyTree, size: Float[Array, ""], factor: Float[Array, ""]) -> PyTree:
    """Return `error`, of scaled norm `size`, scaled so that a controller multiplies its step by `factor`.

    That is the proposal of a `diffrax.PIDController` with its standard coefficients for an error of order 1. A step
    with `size` below one stays accepted, and any other rejected.
    """
    accepted = size <= 1
    wanted = _CONTROLLER_SAFETY / factor
    wanted = jnp.where(accepted, jnp.minimum(wanted, 0.99), jnp.maximum(wanted, 1.01))
    scale = jnp.where(jnp.isfinite(size), wanted / jnp.maximum(size, jnp.finfo(size.dtype).tiny), jnp.inf)
    return jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(size), scale * leaf, jnp.inf), error)
