"""Activations with their derivatives, the transcendental function that both need computed once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

_ROOT = (2 / jnp.pi) ** 0.5
_CUBIC = 0.044715


def gelu(z: Array) -> tuple[Array, Array]:
    """Return z σ(2u), u = √(2/π)(z + 0.044715 z³), and its derivative; 1 + tanh u = 2σ(2u), digits kept."""
    square = z * z
    gate = 1 / (1 + jnp.exp(z * (-2 * _ROOT * (1 + _CUBIC * square))))
    steepness = 2 * _ROOT * (1 + 3 * _CUBIC * square)
    value = z * gate
    return value, gate + value * (1 - gate) * steepness


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
