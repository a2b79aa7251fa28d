"""RMSProp: descent preconditioned by a running mean of squared gradients."""

from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..descent import DESCENTS, DescentState
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .transformed import Transformed, check_decay, check_regularizer

if TYPE_CHECKING:
    import optax


@DESCENTS.register("rmsprop")
@DYNAMICS.register("rmsprop")
class RMSProp(Transformed):
    """ν ← βν + (1 − β)∇R(W)², W ← W − η∇R(W)/√(ν + ε), with the `decay` β and `eps` ε: `optax.rmsprop`.

    `momentum` is added as in the heavy ball. Time is that of the flow dW/dt = −P⁻¹∇R(W) with P = diag √(ν + ε). Raises
    `ValueError` for options that cannot be.
    """

    decay: float = 0.9
    """β, by which the mean of squared gradients forgets: at least 0, less than 1."""
    eps: float = 1e-8
    """ε, what is added to that mean under the root, so that nothing divides by zero."""
    momentum: float | None = None
    """The part of the velocity that a step keeps: at least 0, less than 1; null: there is none."""

    preconditioned: ClassVar[bool] = True
    shapes_count: ClassVar[bool] = False

    def __check_init__(self):
        check_decay("decay", self.decay)
        check_regularizer("eps", self.eps, positive=True)
        check_decay("momentum", 0.0 if self.momentum is None else self.momentum)

    def transformation(self) -> "optax.GradientTransformation":
        """Return Optax's."""
        import optax

        return optax.rmsprop(self.learning_rate, decay=self.decay, eps=self.eps, momentum=self.momentum)

    def time_of_step(self) -> Scalar:
        """Return η, and η/(1 − momentum) with momentum."""
        return self.learning_rate if self.momentum is None else self.learning_rate / (1 - self.momentum)

    def stability_threshold(self) -> Scalar:
        """Return 2/η, and 2(1 + momentum)/η with momentum, for the preconditioned Hessian.

        With P held fixed a step is one of gradient descent, or of the heavy ball, in the coordinates P^½ W (Cohen et
        al. 2022, arXiv 2207.14484).
        """
        return 2 / self.learning_rate if self.momentum is None else 2 * (1 + self.momentum) / self.learning_rate

    def preconditioner(self, state: DescentState) -> PyTree:
        """Return √(ν + ε) with the ν of the next step, in which the gradient of `state` counts already."""
        mean, *_ = self.memory_of_next_step(state)
        return jax.tree.map(lambda square: jnp.sqrt(square + self.eps), mean.nu)
