"""What every loss is asked for, and the losses by name."""

import abc
import inspect
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...kinds import Registry


class Loss(eqx.Module):
    """What the prediction of one sample costs beside its target.

    To add one, subclass it and say all of it; `LOSSES.register("name")` above the class gives it a name beside
    `my_module:AbsoluteError`:

        class AbsoluteError(flowsim.losses.Loss):
            infimum: ClassVar[float] = 0.0
            attained: ClassVar[bool] = True

            def __call__(self, prediction, target):
                return jnp.sum(jnp.abs(prediction - target))

            def curvature(self, prediction, target):
                return flowsim.losses.differentiated_curvature(self, prediction, target)

    Each of the two constants may be a property as well.
    """

    @property
    @abc.abstractmethod
    def infimum(self) -> float:
        """The infimum of the loss over all predictions, NaN where it is not known."""

    @property
    @abc.abstractmethod
    def attained(self) -> bool:
        """Whether some prediction has the infimum: a logistic loss falls towards zero for ever."""

    @abc.abstractmethod
    def __call__(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Float[Array, ""]:
        """Return the loss of one sample, a scalar."""

    @abc.abstractmethod
    def curvature(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Float[Array, "m m"]:
        """Return the second derivative in the m entries of the prediction, positive semidefinite."""

    def compares(self, prediction: Float[Array, "*outputs"], target: Array, /) -> bool:
        """Tell by their shapes and types whether a prediction and a target go together: by default, equal shapes do.

        A loss that compares unlike ones, such as logits with the number of a class, says here which.
        """
        return prediction.shape == target.shape

    def labels(self, classes: int) -> Literal["index", "one_hot", "sign"]:
        """Return how the labels of so many classes are written for this loss.

        "index" is the number of the class, where the loss compares that with one prediction for each class; if not,
        "one_hot". A loss of ±1 returns "sign".
        """
        predictions, number = jnp.zeros(classes), jnp.asarray(0)
        return "index" if self.compares(predictions, number) else "one_hot"


def differentiated_curvature(
    loss: Callable[[Array, Array], Array], prediction: Float[Array, "*outputs"], target: Array
) -> Float[Array, "m m"]:
    """Return the second derivative of a loss in the prediction by automatic differentiation."""
    return jax.hessian(lambda entries: loss(entries.reshape(prediction.shape), target))(prediction.ravel())


def _is_loss(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Loss) and not inspect.isabstract(kind)


LOSSES: Registry[type[Loss]] = Registry("a loss", accepts=_is_loss, expected="a subclass of flowsim.losses.Loss")
