"""Scalar RMSProp: gradient descent whose learning rate is divided by a running mean of the gradient's norm."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...solvers.field import norm
from ..descent import DESCENTS, Descent, DescentState
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .transformed import check_decay, check_regularizer


@DESCENTS.register("scalar_rmsprop")
@DYNAMICS.register("scalar_rmsprop")
class ScalarRMSProp(Descent):
    """ν ← βν + (1 − β)‖∇R(W)‖², W ← W − η∇R(W)/√(ν + ε), with the `decay` β and `eps` ε.

    RMSProp with one mean for all weights (Cohen et al. 2024, arXiv 2410.24206, study it as the simplest adaptive
    method). Time is that of the flow dW/dt = −∇R(W)/√(ν + ε). Raises `ValueError` for options that cannot be.
    """

    decay: float = 0.99
    """β, by which the mean of squared norms forgets: at least 0, less than 1."""
    eps: float = 1e-8
    """ε, what is added to that mean under the root, so that nothing divides by zero."""

    preconditioned: ClassVar[bool] = True
    shapes_count: ClassVar[bool] = False

    def __check_init__(self):
        check_decay("decay", self.decay)
        check_regularizer("eps", self.eps, positive=True)

    def remember(self, weights: PyTree) -> Float[Array, ""]:
        """Return zero, the first ν."""
        return jnp.zeros_like(norm(weights))

    def step(self, weights: PyTree, gradient: PyTree, memory: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """Return W − η∇R(W)/√(ν + ε), and ν."""
        mean = self._mean(gradient, memory)
        rate = self.learning_rate / jnp.sqrt(mean + self.eps)
        return jax.tree.map(lambda w, g: w - rate.astype(w.dtype) * g, weights, gradient), mean

    def stability_threshold(self) -> Scalar:
        """Return 2/η for the preconditioned Hessian H/√(ν + ε): with ν held fixed a step is one of gradient descent."""
        return 2 / self.learning_rate

    def preconditioner(self, state: DescentState) -> PyTree:
        """Return √(ν + ε) for all weights, with the ν of the next step, in which the gradient counts already."""
        scale = jnp.sqrt(self._mean(state.gradient, state.memory) + self.eps)
        return jax.tree.map(lambda w: jnp.full_like(w, scale), state.weights)

    def _mean(self, gradient: PyTree, memory: Float[Array, ""]) -> Float[Array, ""]:
        return self.decay * memory + (1 - self.decay) * norm(gradient) ** 2
