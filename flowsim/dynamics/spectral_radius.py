"""The spectral radius of a vector field's Jacobian, followed along a path."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .field import norm

_FIRST_ITERATIONS = 10


class SpectralRadius(eqx.Module):
    """An estimate from below of ρ = max |eigenvalue| of ∂f/∂y, symmetric, and the direction in which it was found."""

    direction: PyTree
    value: Float[Array, ""]

    @classmethod
    def first(cls, field: Callable[[PyTree], PyTree], y: PyTree) -> "SpectralRadius":
        """Return an estimate at `y` after ten steps of power iteration from a random direction."""
        leaves, structure = jax.tree.flatten(y)
        keys = jax.random.split(jax.random.key(0), len(leaves))
        random = [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
        return cls(structure.unflatten(random), jnp.zeros_like(norm(y))).followed(field, y, _FIRST_ITERATIONS)

    def followed(self, field: Callable[[PyTree], PyTree], y: PyTree, iterations: int) -> "SpectralRadius":
        """Return the estimate after more steps of power iteration at `y`, each as cheap as a Hessian–vector product.

        A little of the field itself is mixed into the direction: what goes unstable shows there first.
        """

        def improve(_: Any, state: "SpectralRadius") -> "SpectralRadius":
            unit = scaled(state.direction, 1 / norm(state.direction))
            drift, image = jax.jvp(field, (y,), (unit,))
            value = norm(image)
            moved = jax.tree.map(lambda a, b: jnp.where(value > 0, a, b), scaled(image, 1 / value), unit)
            tilt = 0.01 / norm(drift)
            tilt = jnp.where(jnp.isfinite(tilt), tilt, 0)
            return SpectralRadius(jax.tree.map(lambda a, b: a + tilt * b, moved, drift), value)

        return jax.lax.fori_loop(0, iterations, improve, self)


def scaled(tree: PyTree, factor: Float[Array, ""]) -> PyTree:
    """Return `factor` times a pytree."""
    return jax.tree.map(lambda leaf: factor * leaf, tree)
