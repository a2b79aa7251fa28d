"""Stochastic gradient descent: steps along the gradients of minibatches."""

from dataclasses import replace
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...problems import Minibatches, as_seed
from ..descent import DESCENTS, Descent
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .transformed import check_decay


@DESCENTS.register("sgd")
@DYNAMICS.register("sgd")
class SGD(Descent):
    """W ← W − η∇R_B(W), R_B the risk on a minibatch B of `batch` samples (Robbins and Monro 1951).

    With `momentum` β it is v ← βv + ∇R_B(W), W ← W − ηv, in steps of the time η/(1 − β), as in `HeavyBall`.

    Without `replacement`, each epoch takes all samples in a new order, as `flowsim.problems.Minibatches` says. A step
    costs the gradient of its minibatch. The full risk and gradient are computed at records, and once an epoch, when
    termination is checked: it has CONVERGED where ‖∇R‖ and all gradients of the minibatches of that epoch are as small
    as `Stopping` says, so where it stays; around a minimum at which samples disagree it does not. It needs a problem
    with samples. `seed`, a number or an array, decides on all draws. Under `jax.vmap` every step pays for the full
    gradient as well: `flowsim.repeat` spares many seeds that. Raises `ValueError` for a batch, a seed or a momentum
    that cannot be.
    """

    batch: int = eqx.field(static=True)
    """Number of samples in one minibatch."""
    seed: int = eqx.field(default=0, converter=as_seed)
    """From which all draws of minibatches derive."""
    replacement: bool = eqx.field(static=True, default=False)
    """Whether samples are drawn with replacement, in place of a new order of all of them in every epoch."""
    momentum: float | None = None
    """β, the part of the velocity that a step keeps: at least 0, less than 1; null: there is none."""

    def __check_init__(self):
        self.minibatches()
        check_decay("momentum", 0.0 if self.momentum is None else self.momentum)

    def remember(self, weights: PyTree) -> PyTree | None:
        """Return the velocity zero, nothing without momentum."""
        return None if self.momentum is None else jax.tree.map(jnp.zeros_like, weights)

    def step(self, weights: PyTree, gradient: PyTree, memory: PyTree | None) -> tuple[PyTree, PyTree | None]:
        """Return W − ηg, or W − ηv and the velocity v = βv + g."""
        if self.momentum is not None:
            memory = gradient = jax.tree.map(lambda v, g: self.momentum * v + g, memory, gradient)
        return jax.tree.map(lambda w, g: w - self.learning_rate * g, weights, gradient), memory

    def time_of_step(self) -> Scalar:
        """Return η, with momentum η/(1 − β)."""
        return self.learning_rate if self.momentum is None else self.learning_rate / (1 - self.momentum)

    def with_seed(self, seed: Any) -> Self:
        """Return the descent with another seed."""
        return replace(self, seed=seed)

    def minibatches(self) -> Minibatches:
        """Return how samples are drawn."""
        return Minibatches(self.batch, self.seed, self.replacement)

    def stability_threshold(self) -> None:
        """Return `None`: no curvature of R decides.

        A mode is stable in mean square only where η is small compared to the inverse curvatures of the single samples
        and their variation (Wu, Ma and E 2018, theorem 1): at the same sharpness it depends on the noise.
        """
