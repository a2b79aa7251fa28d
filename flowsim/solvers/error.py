"""The size of an error in units of the tolerance, and what it says of the next step."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..networks.norms import norm

_LARGEST_GROWTH = 10.0
_SAFETY = 0.8
_SHARE_OF_WAY = 0.1
_FIRST_SHARE = 0.01
# For a field that is zero.
_SHORT = 1e-6


def scaled_norm(error: PyTree, y0: PyTree, y1: PyTree, rtol: Any, atol: Any) -> Float[Array, ""]:
    """Return the root mean square of error / (atol + rtol max(|y0|, |y1|)), as Diffrax's PIDController does.

    It is infinite where the error is not finite. Raises `ValueError` without tolerances.
    """
    if rtol is None or atol is None:
        raise ValueError("this solver chooses its steps by rtol and atol: give it those of the step-size controller")

    def square(e: Array, a: Array, b: Array) -> Array:
        # A candidate that is not finite is judged by where it came from.
        unit = atol + rtol * jnp.maximum(jnp.abs(a), jnp.where(jnp.isfinite(b), jnp.abs(b), 0))
        return jnp.sum((e / unit) ** 2)

    squares = jax.tree.leaves(jax.tree.map(square, error, y0, y1))
    size = jnp.sqrt(sum(squares) / sum(leaf.size for leaf in jax.tree.leaves(y0)))
    return jnp.where(jnp.isfinite(size), size, jnp.inf)


def growth(size: Float[Array, "..."], order: Any) -> Float[Array, "..."]:
    """Return the factor to the step at which an error of scaled norm `size`, of this order in h, is just allowed."""
    return jnp.minimum(_SAFETY * jnp.maximum(size, 1e-30) ** (-1 / order), _LARGEST_GROWTH)


def size_beside_way(error: PyTree, increment: PyTree, y0: PyTree) -> Float[Array, ""]:
    """Return the size of an error in units of a tenth of the way that the step goes, or of what rounding makes of y0.

    Near a limit a step may be as long as the tolerance allows, and circle there with errors as large as that. One whose
    error is a small part of its way comes closer each time.
    """
    rounding = 100 * jnp.finfo(jax.tree.leaves(y0)[0].dtype).eps * norm(y0)
    return norm(error) / (_SHARE_OF_WAY * norm(increment) + rounding)


def first_length(y0: PyTree, slope: PyTree, rtol: Any, atol: Any) -> Float[Array, ""]:
    """Return a length for the first step: what moves y0 by a hundredth of itself (Hairer, Nørsett and Wanner, II.4).

    Where all weights are zero, it moves them by a hundredth.
    """
    ones = jax.tree.map(jnp.ones_like, y0)
    own, unit, speed = (scaled_norm(vector, y0, y0, rtol, atol) for vector in (y0, ones, slope))
    known = (speed > 0) & jnp.isfinite(speed)
    return jnp.where(known, _FIRST_SHARE * jnp.where(own > 0, own, unit) / jnp.where(known, speed, 1), _SHORT)
