"""Gradient descent: the gradient flow discretized by explicit Euler steps."""

from typing import ClassVar

import jax
from jaxtyping import PyTree

from .descent import DESCENTS, Descent
from .dynamics import DYNAMICS
from .learning_rates import Scalar


@DESCENTS.register("gradient_descent")
@DYNAMICS.register("gradient_descent")
class GradientDescent(Descent):
    """W ← W − η∇R(W), in the time η of the flow that it discretizes by Euler's method.

    Stable up to the sharpness 2/η. A run raises `ValueError` for a learning rate that is not positive and finite in the
    precision of the weights.
    """

    shapes_count: ClassVar[bool] = False

    def remember(self, weights: PyTree) -> None:
        """Return nothing."""

    def step(self, weights: PyTree, gradient: PyTree, memory: None) -> tuple[PyTree, None]:
        """Return W − η∇R(W)."""
        return jax.tree.map(lambda w, g: w - self.learning_rate * g, weights, gradient), None

    def stability_threshold(self) -> Scalar:
        """Return 2/η: a mode of curvature λ is multiplied by 1 − ηλ in each step."""
        return 2 / self.learning_rate
