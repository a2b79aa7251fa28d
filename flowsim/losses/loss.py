"""What every loss is asked for, margins that several losses share, and the losses by name."""

import abc
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from ..kinds import Registry, is_kind_of


class Loss(eqx.Module):
    """The loss of one prediction, given its target.

    To add one, subclass it; `LOSSES.register("name")` above the class gives it a name besides
    `my_module:AbsoluteError`:

        class AbsoluteError(flowsim.losses.Loss):
            infimum: ClassVar[float] = 0.0
            attained: ClassVar[bool] = True

            def __call__(self, prediction, target):
                return jnp.sum(jnp.abs(prediction - target))

            def curvature(self, prediction, target):
                return flowsim.losses.differentiated_curvature(self, prediction, target)

    Each of the two constants may be a property as well. The other methods are optional, with defaults for a loss that
    knows no better.
    """

    @property
    @abc.abstractmethod
    def infimum(self) -> float:
        """The infimum of the loss over all predictions and targets, NaN where it is not known."""

    @property
    @abc.abstractmethod
    def attained(self) -> bool:
        """Whether some prediction attains it for every target: a logistic loss only tends to zero."""

    @abc.abstractmethod
    def __call__(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Float[Array, ""]:
        """Return the loss of one sample, a scalar."""

    @abc.abstractmethod
    def curvature(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Float[Array, "m m"]:
        """Return the second derivative in the m entries of the prediction, positive semidefinite."""

    def curvature_root(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Float[Array, "m m"]:
        """Return a matrix B with BBᵀ the curvature: by default its Cholesky factor.

        Where the curvature is not positive semidefinite, and so has none, it counts as zero.
        """
        curvature = self.curvature(prediction, target)
        slack = 10 * jnp.finfo(curvature.dtype).eps * jnp.trace(curvature)
        root = jnp.linalg.cholesky(curvature + slack * jnp.eye(prediction.size, dtype=curvature.dtype))
        return jnp.where(jnp.isfinite(root), root, 0)

    def least(self, target: Array, /) -> Float[Array, ""]:
        """Return the infimum over all predictions for this target: by default `infimum`."""
        return jnp.asarray(self.infimum, jnp.result_type(float))

    def margins(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Float[Array, " k"]:
        """Return the margins: linear in the prediction, and all positive where it is of the right class.

        NaN where the target is no class, as by default.
        """
        return jnp.full(1, jnp.nan, prediction.dtype)

    def decreases_forever(self, prediction: Float[Array, "*outputs"], target: Array, /) -> Bool[Array, ""]:
        """Tell whether the loss tends to `least` without attaining it as this prediction is scaled up to infinity.

        By default no: a loss that attains its infimum does not.
        """
        return jnp.array(False)

    def compares(self, prediction: Float[Array, "*outputs"], target: Array, /) -> bool:
        """Tell by shapes and types whether a prediction can be compared with a target: by default, if shapes are equal.

        A loss of unlike ones, such as of logits and the index of a class, says so here.
        """
        return prediction.shape == target.shape

    def labels(self, classes: int) -> Literal["index", "one_hot", "sign"]:
        """Return how the labels of so many classes are written for this loss.

        "index" is the number of the class, where the loss compares that with one prediction for each class; if not,
        "one_hot". A loss of ±1 returns "sign".
        """
        predictions, number = jnp.zeros(classes), jnp.asarray(0)
        return "index" if self.compares(predictions, number) else "one_hot"

    def remedy(self, prediction: Float[Array, "*outputs"], target: Array, /) -> str:
        """Return what to do about a prediction and a target that do not go together."""
        if prediction.ndim == 1 and target.shape == () and not jnp.issubdtype(target.dtype, jnp.floating):
            return (
                "for labels that are numbers of classes write flowsim.losses.CrossEntropy(), or "
                f"np.eye({prediction.size})[y] in place of y"
            )
        return "give the network as many outputs as y has columns"

    def check_targets(self, y: np.ndarray, /) -> None:
        """Raise `ValueError` for targets (of all samples) that this loss does not take."""

    def classes(self, y: np.ndarray, /) -> int:
        """Return the least number of outputs that a network needs for these targets."""
        return 1

    def takes_numbers(self) -> bool:
        """Tell whether targets are numbers, which may be centred and rescaled, rather than classes or probabilities."""
        return True


def differentiated_curvature(
    loss: Callable[[Array, Array], Array], prediction: Float[Array, "*outputs"], target: Array
) -> Float[Array, "m m"]:
    """Return the second derivative of a loss in the prediction by automatic differentiation.

    Args:
        loss: A function of prediction and target that returns a scalar.
        prediction: That of one sample: of m numbers.
        target: The target of that sample.

    Returns:
        The matrix of second derivatives, of shape (m, m).
    """
    return jax.hessian(lambda entries: loss(entries.reshape(prediction.shape), target))(prediction.ravel())


def class_margins(prediction: Float[Array, " classes"], label: Integer[Array, ""]) -> Float[Array, " others"]:
    """Return the output of the class `label` less each of the others."""
    others = (label + 1 + jnp.arange(prediction.size - 1)) % prediction.size
    return prediction[label] - prediction[others]


def indicated_margins(prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, " k"]:
    """Return the margins for a target that indicates a class: ±1 for one number, a one-hot row for several.

    NaN for any other target.
    """
    if prediction.ndim == 0:
        return jnp.where(jnp.abs(target) == 1, target * prediction, jnp.nan)[None].astype(prediction.dtype)
    if prediction.ndim != 1 or prediction.size < 2:
        return jnp.full(1, jnp.nan, prediction.dtype)
    label = jnp.argmax(target)
    indicates = jnp.all(target == (jnp.arange(target.size) == label))
    return jnp.where(indicates, class_margins(prediction, label), jnp.nan)


LOSSES: Registry[type[Loss]] = Registry(
    "a loss", accepts=is_kind_of(Loss), expected="a subclass of flowsim.losses.Loss"
)
