"""The loss of several classes."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .loss import LOSSES, Loss, class_margins


@LOSSES.register("cross_entropy")
class CrossEntropy(Loss):
    """−Σ_k y_k log p_k, with p = softmax(f) of one prediction f for each class (natural logarithm).

    The target is the number of a class, counted from 0 (an integer, false or true: −log p_y), or a vector of
    probabilities y. Its infimum over all predictions is the entropy of the target, zero for a class; it is attained
    where all probabilities are positive, and only there.
    """

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = False

    def __call__(self, prediction: Float[Array, " classes"], target: Array) -> Float[Array, ""]:
        """Return the cross-entropy of one sample, exact to rounding relative to itself."""
        below, rest = _below_largest(prediction)
        if _is_number(target):
            # An index beyond the end would be taken for the last.
            return below.at[_index(target)].get(mode="fill", fill_value=jnp.nan) + jnp.log1p(rest)
        return target @ below + jnp.log1p(rest)

    def curvature(self, prediction: Float[Array, " classes"], target: Array) -> Float[Array, "m m"]:
        """Return diag(p) − ppᵀ."""
        root = self.curvature_root(prediction, target)
        return root @ root.T

    def curvature_root(self, prediction: Float[Array, " classes"], target: Array) -> Float[Array, "m m"]:
        """Return diag(√p) − p√pᵀ, whose product with its transpose is diag(p) − ppᵀ, as √p has norm one."""
        below, rest = _below_largest(prediction)
        p = jnp.exp(-below) / (1 + rest)
        root, largest = jnp.sqrt(p), jnp.arange(p.size) == jnp.argmax(prediction)
        # 1 − p of the largest would cancel where it is nearly one.
        diagonal = root * jnp.where(largest, rest / (1 + rest), 1 - p)
        return jnp.where(jnp.eye(p.size, dtype=bool), jnp.diag(diagonal), -jnp.outer(p, root))

    def least(self, target: Array) -> Float[Array, ""]:
        """Return the entropy −Σ y_k log y_k of the target."""
        return jnp.zeros(()) if _is_number(target) else jnp.sum(jax.scipy.special.entr(target))

    def margins(self, prediction: Float[Array, " classes"], target: Array) -> Float[Array, " k"]:
        """Return the output of the right class, the most probable one, less each of the others."""
        return class_margins(prediction, _index(target) if _is_number(target) else jnp.argmax(target))

    def decreases_forever(self, prediction: Float[Array, " classes"], target: Array) -> Bool[Array, ""]:
        """Tell whether the target is one class for certain, and the prediction decides for it."""
        # Any other probability, however small, holds the prediction back, and the sum is one up to rounding only.
        certain = jnp.array(True) if _is_number(target) else jnp.sum(target > 0) == 1
        return certain & jnp.all(self.margins(prediction, target) > 0)

    def compares(self, prediction: Float[Array, "*outputs"], target: Array) -> bool:
        """Tell whether there are two outputs or more, and one class, or as many probabilities."""
        several = prediction.ndim == 1 and prediction.size > 1
        return several and target.shape == (() if _is_number(target) else prediction.shape)

    def remedy(self, prediction: Float[Array, "*outputs"], target: Array) -> str:
        """Return what to do about shapes and types that do not go together."""
        if prediction.ndim != 1 or prediction.size < 2:
            return "give the network one output for each class, two or more, or write flowsim.losses.Logistic() for one"
        if target.shape == ():
            return "for numbers of classes write y.astype(int)"
        if _is_number(target):
            return "write one class for each sample: numpy.ravel(y) of one column, y.argmax(1) of ones among zeros"
        return "give the network as many outputs as y has columns, which are probabilities"

    def check_targets(self, y: np.ndarray) -> None:
        """Raise `ValueError` for negative numbers of classes, and for what are no probabilities."""
        if y.dtype.kind in "iu" and (y < 0).any():
            raise ValueError(f"y holds the class {y.min()}: CrossEntropy counts classes from 0; write y - y.min()")
        if y.dtype.kind != "f":
            return
        if y.ndim == 1:
            raise ValueError(
                f"y holds {y.dtype}, one number for each sample: CrossEntropy expects the numbers of classes as "
                "integers, or a row of probabilities for each sample; write y.astype(int) for classes 0, 1, 2, … (in a "
                "scenario: labels: auto, of data of classes, such as kind labelled)"
            )
        sums = y.sum(axis=-1)
        wrong = (y < 0).any(axis=-1) | (np.abs(sums - 1) > 1e-5)  # more than rounding in float32
        if wrong.any():
            place = tuple(int(number) for number in np.argwhere(wrong)[0])
            raise ValueError(
                f"y[{', '.join(map(str, place))}] sums to {float(sums[place]):.6g}, its least entry being "
                f"{float(y[place].min()):.6g}: CrossEntropy expects probabilities, none negative, with sum "
                "one, neither centred nor rescaled; write y / y.sum(1, keepdims=True) for counts"
            )

    def classes(self, y: np.ndarray) -> int:
        """Return the number of classes up to the largest that occurs."""
        return int(y.max()) + 1 if y.dtype.kind in "iub" else y.shape[-1]

    def takes_numbers(self) -> bool:
        """Targets are classes, or probabilities of them."""
        return False


def _is_number(target: Array) -> bool:
    return not jnp.issubdtype(jnp.result_type(target), jnp.floating)


def _index(target: Array) -> Array:
    return jnp.asarray(target, int)


def _below_largest(prediction: Float[Array, " classes"]) -> tuple[Float[Array, " classes"], Float[Array, ""]]:
    """Return f_K − f of every output, K the largest of all, and Σ_{k≠K} exp(f_k − f_K).

    So log Σ exp(f) − f_y = (f_K − f_y) + log(1 + Σ_{k≠K} …), where nothing cancels, in the derivatives neither: for
    the largest the first term is zero, whatever its value.
    """
    index = jnp.argmax(prediction)  # one of them, where there are several: the maximum would share out its derivative
    largest = jnp.arange(prediction.size) == index
    below = jnp.where(largest, 0, prediction[index] - prediction)
    return below, jnp.sum(jnp.where(largest, 0, jnp.exp(-below)))
