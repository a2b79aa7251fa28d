"""Activations with their derivatives, the transcendental function that both need computed once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

_ROOT = (2 / jnp.pi) ** 0.5
_CUBIC = 0.044715


def gelu(z: Array) -> tuple[Array, Array]:
    """Return z (1 + t)/2, t = tanh u, u = √(2/π)(z + 0.044715 z³), and its derivative (1 + t)(1 + z (1 − t) u′)/2."""
    square = z * z
    t = jnp.tanh(z * (_ROOT + (_ROOT * _CUBIC) * square))
    gate = 0.5 + 0.5 * t
    return z * gate, gate * (1 + z * (1 - t) * (_ROOT + (3 * _ROOT * _CUBIC) * square))


def tanh(z: Array) -> tuple[Array, Array]:
    """Return tanh z and 1 − tanh² z."""
    value = jnp.tanh(z)
    return value, 1 - value * value


def softplus(z: Array) -> tuple[Array, Array]:
    """Return log(1 + eᶻ) and σ(z)."""
    small = jnp.exp(-jnp.abs(z))
    return jnp.maximum(z, 0) + jnp.log1p(small), jnp.where(z >= 0, 1, small) / (1 + small)


WITH_SLOPE: dict[Callable, Callable[[Array], tuple[Array, Array]]] = {
    jax.nn.gelu: gelu,
    jnp.tanh: tanh,
    jax.nn.softplus: softplus,
}
