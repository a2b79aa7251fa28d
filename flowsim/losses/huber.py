"""The Huber loss, which grows linearly for outliers."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .loss import LOSSES, Loss, indicated_margins


@LOSSES.register("huber")
class Huber(Loss):
    """Σ h(prediction − target) with h(e) = e²/2 up to |e| = δ and δ(|e| − δ/2) beyond, δ = `delta` (Huber 1964).

    Raises `ValueError` for a `delta` that is not positive and finite.
    """

    delta: float = 1.0
    """δ, the size of an error from which on its loss grows like the error in place of its square."""

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __check_init__(self):
        if isinstance(self.delta, jax.Array):  # of which a compiled program may ask
            return
        number = isinstance(self.delta, int | float | np.number) and not isinstance(self.delta, bool)
        if not number or not 0 < self.delta < math.inf:
            raise ValueError(f"delta must be positive and finite, got {self.delta!r}")

    def __call__(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, ""]:
        """Return the loss of one sample, a sum over its numbers."""
        error = jnp.abs(prediction - target)
        square = jnp.minimum(error, self.delta)  # so that no square leaves the range of floats
        return jnp.sum(square * (error - square / 2))

    def curvature(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return the diagonal matrix of 1 where |e| ≤ δ and 0 where it is more."""
        return jnp.diag((jnp.abs(prediction - target).ravel() <= self.delta).astype(prediction.dtype))

    def curvature_root(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return the curvature, whose square it is."""
        return self.curvature(prediction, target)

    def margins(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, " k"]:
        """Return the margins for a target of ±1, or a one-hot row; NaN for any other."""
        return indicated_margins(prediction, target)
