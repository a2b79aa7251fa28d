"""Error estimates that tell a step-size controller what to do."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

_LARGEST_GROWTH = 10.0
_SAFETY = 0.8
# That of Diffrax's PIDController.
_CONTROLLER_SAFETY = 0.9


def scaled_norm(error: PyTree, y0: PyTree, y1: PyTree, rtol: Any, atol: Any) -> Float[Array, ""]:
    """Return the root mean square of error / (atol + rtol max(|y0|, |y1|)), as Diffrax's PIDController does.

    It is infinite where the error is not finite.
    """
    squares = jax.tree.map(lambda e, unit: jnp.sum((e / unit) ** 2), error, _units(y0, y1, rtol, atol))
    size = jnp.sqrt(sum(jax.tree.leaves(squares)) / sum(leaf.size for leaf in jax.tree.leaves(y0)))
    return jnp.where(jnp.isfinite(size), size, jnp.inf)


def growth(size: Float[Array, "..."], order: Any) -> Float[Array, "..."]:
    """Return the factor to the step at which an error of scaled norm `size`, of this order in h, is just allowed."""
    return jnp.minimum(_SAFETY * jnp.maximum(size, 1e-30) ** (-1 / order), _LARGEST_GROWTH)


def commanded_error(
    size: Float[Array, ""], factor: Float[Array, ""], y0: PyTree, y1: PyTree, rtol: Any, atol: Any
) -> PyTree:
    """Return an error for which a controller accepts or rejects as `size` says, and multiplies its step by `factor`.

    That is how a `diffrax.PIDController` with its standard coefficients takes an error of order 1, evenly spread over
    all entries. An accepted step has `size` up to one. Such a controller does not shorten a step after an accepted one.
    """
    wanted = _CONTROLLER_SAFETY / factor
    wanted = jnp.where(size <= 1, jnp.minimum(wanted, 0.99), jnp.maximum(wanted, 1.01))
    return jax.tree.map(lambda unit: wanted * unit, _units(y0, y1, rtol, atol))


def _units(y0: PyTree, y1: PyTree, rtol: Any, atol: Any) -> PyTree:
    if rtol is None or atol is None:
        raise ValueError("this solver chooses its steps by rtol and atol: give it those of the step-size controller")

    def unit(a: Array, b: Array) -> Array:
        # A candidate that is not finite is judged by where it came from.
        return atol + rtol * jnp.maximum(jnp.abs(a), jnp.where(jnp.isfinite(b), jnp.abs(b), 0))

    return jax.tree.map(unit, y0, y1)
