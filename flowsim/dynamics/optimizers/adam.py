"""Adam: descent along a running mean of gradients, preconditioned by one of their squares."""

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


@DESCENTS.register("adam")
@DYNAMICS.register("adam")
class Adam(Transformed):
    """m ← β₁m + (1 − β₁)∇R(W), ν ← β₂ν + (1 − β₂)∇R(W)², W ← W − η P⁻¹m (Kingma and Ba 2015): `optax.adam`.

    P = (1 − β₁ᵗ)·diag(√(ν/(1 − β₂ᵗ) + `eps_root`) + `eps`) in step t, counted from 1; β₁ and β₂ are `b1` and `b2`. The
    mean m has the size of a gradient, so a step takes the time η of the flow dW/dt = −P⁻¹∇R(W). Raises `ValueError` for
    options that cannot be.
    """

    b1: float = 0.9
    """β₁, by which the mean of gradients forgets: at least 0, less than 1."""
    b2: float = 0.999
    """β₂, by which the mean of squared gradients forgets: at least 0, less than 1."""
    eps: float = 1e-8
    """What is added to the root of that mean, so that nothing divides by zero."""
    eps_root: float = 0.0
    """What is added to that mean, under the root."""

    preconditioned: ClassVar[bool] = True
    shapes_count: ClassVar[bool] = False

    def __check_init__(self):
        check_decay("b1", self.b1)
        check_decay("b2", self.b2)
        check_regularizer("eps", self.eps, positive=True)
        check_regularizer("eps_root", self.eps_root, positive=False)

    def transformation(self) -> "optax.GradientTransformation":
        """Return Optax's."""
        import optax

        return optax.adam(self.learning_rate, b1=self.b1, b2=self.b2, eps=self.eps, eps_root=self.eps_root)

    def stability_threshold(self) -> Scalar:
        """Return (2 + 2β₁)/((1 − β₁)η) for the preconditioned Hessian: 38/η for β₁ = 0.9.

        With P held fixed a step is one of the heavy ball with learning rate (1 − β₁)η, as m is a mean and no sum (Cohen
        et al. 2022, arXiv 2207.14484).
        """
        return (2 + 2 * self.b1) / ((1 - self.b1) * self.learning_rate)

    def preconditioner(self, state: DescentState) -> PyTree:
        """Return the diagonal of P in the next step, in which the gradient of `state` counts already."""
        means, *_ = self.memory_of_next_step(state)
        unbiased, whole = 1 - self.b1**means.count, 1 - self.b2**means.count
        return jax.tree.map(lambda nu: unbiased * (jnp.sqrt(nu / whole + self.eps_root) + self.eps), means.nu)
