"""The loss of two classes."""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .loss import LOSSES, Loss


@LOSSES.register("logistic")
class Logistic(Loss):
    """log(1 + exp(−y f)) for one prediction f and a label y = ±1: −log σ(y f), σ the logistic function.

    It tends to zero as the margin y f grows, without attaining it.
    """

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = False

    def __call__(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, ""]:
        """Return log(1 + exp(−y f)), exact to rounding for margins of any size."""
        return jnp.sum(jax.nn.softplus(-self.margins(prediction, target)))

    def curvature(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return σ(f)σ(−f)."""
        return self.curvature_root(prediction, target) ** 2

    def curvature_root(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, "m m"]:
        """Return √(σ(f)σ(−f))."""
        return jnp.sqrt(jax.nn.sigmoid(prediction) * jax.nn.sigmoid(-prediction)).reshape(1, 1)

    def margins(self, prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, " k"]:
        """Return y f."""
        return (target * prediction).reshape(1)

    def decreases_forever(self, prediction: Float[Array, "*outputs"], target: Array) -> Bool[Array, ""]:
        """Tell whether y f is positive."""
        return jnp.all(self.margins(prediction, target) > 0)

    def compares(self, prediction: Float[Array, "*outputs"], target: Array) -> bool:
        """Tell whether both are one number."""
        return prediction.size == 1 and prediction.shape == target.shape

    def labels(self, classes: int) -> Literal["index", "one_hot", "sign"]:
        """Return that labels are ±1."""
        return "sign"

    def remedy(self, prediction: Float[Array, "*outputs"], target: Array) -> str:
        """Return what to do about several outputs or labels."""
        return "give the network one output, and y one column, or write flowsim.losses.CrossEntropy() for more classes"

    def check_targets(self, y: np.ndarray) -> None:
        """Raise `ValueError` for labels other than −1 and 1."""
        if y.dtype == bool or (np.isin(y, (0, 1)).all() and (y == 0).any()):
            raise ValueError(
                f"y holds {_values_of(y)}: Logistic expects the labels -1 and 1; write 2 * y - 1 (in a scenario: "
                "labels: auto, of data of classes, such as kind labelled)"
            )
        if not np.isin(y, (-1, 1)).all():
            raise ValueError(
                f"y holds {_values_of(y)}: Logistic expects the labels -1 and 1, neither centred nor rescaled; write "
                "np.where(y > threshold, 1, -1) to make two classes of numbers, or flowsim.losses.CrossEntropy() for "
                "several classes"
            )

    def takes_numbers(self) -> bool:
        """Labels are classes."""
        return False


def _values_of(y: np.ndarray) -> str:
    found = np.unique(y)
    return ", ".join(map(str, found[:3].tolist())) + (", …" if found.size > 3 else "")
