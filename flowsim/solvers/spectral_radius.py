"""The spectral radius of a vector field's Jacobian, followed along a path."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import vectors
from .field import norm

FIRST_ITERATIONS = 10


class SpectralRadius(eqx.Module):
    """An estimate from below of ρ = max |eigenvalue| of ∂f/∂y, symmetric, and the direction in which it was found."""

    direction: PyTree
    value: Float[Array, ""]

    @classmethod
    def first(cls, field: Callable[[PyTree], PyTree], y: PyTree) -> "SpectralRadius":
        """Return an estimate at `y` after ten steps of power iteration from a scattered direction."""
        return cls.unknown(y).followed(field, y, FIRST_ITERATIONS)

    @classmethod
    def unknown(cls, y: PyTree) -> "SpectralRadius":
        """Return zero, and a direction to start from, before anything is known."""
        return cls(vectors.scattered_like(y, 0), jnp.zeros_like(norm(y)))

    def followed(
        self, field: Callable[[PyTree], PyTree], y: PyTree, iterations: int | Int[Array, ""]
    ) -> "SpectralRadius":
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
