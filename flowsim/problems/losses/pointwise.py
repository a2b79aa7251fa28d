"""Any function as a loss."""

import inspect
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...recognized import recognized
from .loss import Loss, differentiated_curvature


class PointwiseLoss(Loss):
    """A function (prediction, target) ↦ scalar of one sample, of which nothing else is known."""

    function: Callable[[Array, Array], Array] = eqx.field(converter=recognized)

    infimum: ClassVar[float] = float("nan")
    attained: ClassVar[bool] = False

    def __call__(self, prediction: Float[Array, "*outputs"], target: Array) -> Array:
        """Return what the function returns; who asks for the loss of a sample sees to it that it is a scalar."""
        return self.function(prediction, target)

    def curvature(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return the second derivative of the function, positive semidefinite where it is convex."""
        return differentiated_curvature(self.function, prediction, target)

    def compares(self, prediction: Float[Array, "*outputs"], target: Array) -> bool:
        """Tell whether the shapes are equal, or the target is a whole number, such as that of a class."""
        return prediction.shape == target.shape or not jnp.issubdtype(target.dtype, jnp.floating)


def as_loss(loss: object) -> Loss:
    """Return a loss, or any function (prediction, target) ↦ scalar, as a `Loss`; `TypeError` for anything else."""
    if isinstance(loss, Loss):
        return loss
    if inspect.isclass(loss):
        raise TypeError(f"the loss is the class {loss.__name__} itself: write {loss.__name__}()")
    if not callable(loss):
        raise TypeError(
            f"the loss is {loss!r}: expected a flowsim.losses.Loss, such as SquaredError(), or a function "
            "(prediction, target) that returns a scalar"
        )
    return PointwiseLoss(loss)  # pyright: ignore[reportArgumentType]
