"""The loss of least squares."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .loss import LOSSES, Loss, indicated_margins


@LOSSES.register("squared_error")
class SquaredError(Loss):
    """‖prediction − target‖², with no factor ½."""

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __call__(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, ""]:
        """Return ‖prediction − target‖² of one sample."""
        return jnp.sum((prediction - target) ** 2)

    def curvature(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return 2I."""
        return 2 * jnp.eye(prediction.size, dtype=prediction.dtype)

    def curvature_root(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return √2 I."""
        return 2**0.5 * jnp.eye(prediction.size, dtype=prediction.dtype)

    def margins(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, " k"]:
        """Return the margins for a target of ±1, or a one-hot row; NaN for any other."""
        return indicated_margins(prediction, target)
