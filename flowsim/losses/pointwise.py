"""Any function as a loss."""

import inspect
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..runtime.identity import static_function
from .loss import Loss, differentiated_curvature


class PointwiseLoss(Loss):
    """A function (prediction, target) ↦ scalar of one sample, of which nothing else is known."""

    function: Callable[[Array, Array], Array] = eqx.field(converter=static_function)
    """The function."""

    infimum: ClassVar[float] = float("nan")
    attained: ClassVar[bool] = False

    def __call__(self, prediction: Float[Array, "*outputs"], target: Array) -> Array:
        """Return what the function returns; who asks for the loss of a sample sees to it that it is a scalar."""
        return self.function(prediction, target)

    def curvature(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return the second derivative of the function, positive semidefinite where it is convex."""
        return differentiated_curvature(self.function, prediction, target)

    def compares(self, prediction: Float[Array, "*outputs"], target: Array) -> bool:
        """Tell whether the shapes are equal, or the target is a whole number that stands for one of the outputs."""
        if prediction.shape == target.shape:
            return True
        return not jnp.issubdtype(target.dtype, jnp.floating) and not self._broadcasts(prediction, target)

    def _broadcasts(self, prediction: Array, target: Array) -> bool:
        """Tell whether the function takes a whole number for one that every output is compared with.

        Then it does not matter which output is which: for a class it does.
        """
        if target.shape != () or prediction.size < 2:
            return False
        entries = np.linspace(-1, 1, prediction.size).reshape(prediction.shape)
        with jax.ensure_compile_time_eval():
            try:
                zero = jnp.zeros((), target.dtype)
                first, second = (self.function(jnp.asarray(p, prediction.dtype), zero) for p in (entries, -entries))
            except Exception:  # whatever the code of a user does; it is told where the loss is asked for
                return False
        if isinstance(first, Tracer) or jnp.ndim(first) or jnp.ndim(second):
            return False
        return bool(np.isclose(first, second, rtol=1e-5, atol=0))


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
