"""Weight decay apart from the gradient, around any descent."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ...kinds import got
from ...problems import Minibatches, Problem, check_weights
from ...solvers.field import GradientField, constant, norm
from ..descent import Descent, DescentState
from ..dynamics import DYNAMICS
from ..learning_rates import Scalar
from .transformed import Optax, is_number


@DYNAMICS.register("decoupled_decay")
class DecoupledDecay(Descent):
    """A step of the `optimizer`, less ηλW: W ← Φ(W) − ηλW, with λ = `weight_decay` (Loshchilov and Hutter 2019).

    The decay enters neither the momentum nor the preconditioner. Around `flowsim.Adam` it is AdamW, around gradient
    descent that on `flowsim.RegularizedRisk`; with others it differs from that and from L2 regularization. Where a
    step of the optimizer takes the time τ of the flow that it follows, the weights decay there at the rate ηλ/τ.

    It comes to rest where the decay balances the step of the optimizer. ∇R is not zero there, so no run converges: it
    ends at its last step, or as `FIXED_POINT`. Raises `TypeError` for what is no descent of flowsim's, and `ValueError`
    for a λ that is not a finite number, zero or more.
    """

    optimizer: Descent
    """The descent, one of flowsim's."""
    weight_decay: ArrayLike
    """λ, a finite number, zero or more."""

    def __init__(self, optimizer: Descent, weight_decay: ArrayLike):
        if not isinstance(optimizer, Descent) or isinstance(optimizer, Optax):
            raise TypeError(
                "the optimizer must be a flowsim.Descent with a learning rate, such as flowsim.Adam(1e-3), got "
                f"{got(optimizer, Descent)}; a transformation of Optax has its own, as optax.adamw has"
            )
        number: Any = weight_decay
        if not isinstance(number, Tracer) and not (is_number(number) and 0 <= float(number) < math.inf):
            raise ValueError(f"weight_decay must be a finite number, zero or more, got {number!r}")
        self.optimizer, self.weight_decay = optimizer, weight_decay

    @property
    def learning_rate(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]  (as the optimizer's)
        """That of the optimizer."""
        return self.optimizer.learning_rate

    @property
    def preconditioned(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (as the optimizer is)
        """Whether the optimizer has a preconditioner."""
        return self.optimizer.preconditioned

    @property
    def shapes_count(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (as for the optimizer)
        """Whether its steps depend on which array a weight is in."""
        return self.optimizer.shapes_count

    def time_of_step(self) -> Scalar:
        """Return that of the optimizer."""
        return self.optimizer.time_of_step()

    def stability_threshold(self) -> Scalar | None:
        """Return that of the optimizer, times 1 − ηλ/2.

        With z = −1 a mode of curvature h solves −1 = 1 − ηλ − ch, where the optimizer's own solves −1 = 1 − ch.
        """
        own = self.optimizer.stability_threshold()
        return None if own is None else own * (1 - self.learning_rate * jnp.asarray(self.weight_decay) / 2)

    def minibatches(self) -> Minibatches | None:
        """Return how the optimizer draws samples."""
        return self.optimizer.minibatches()

    def with_seed(self, seed: Any) -> Self:
        """Return the descent whose optimizer has another seed."""
        return replace(self, optimizer=self.optimizer.with_seed(seed))

    def remember(self, weights: PyTree) -> PyTree:
        """Return the memory of the optimizer."""
        return self.optimizer.remember(weights)

    def step(self, weights: PyTree, gradient: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        """Return the weights after one step."""
        return self._decayed(weights, self.optimizer.step(weights, gradient, memory))

    def advanced(self, objective: Callable[[PyTree], Float[Array, ""]], state: DescentState) -> tuple[PyTree, PyTree]:
        """Return the weights after one step, of an optimizer that needs more than the gradient."""
        return self._decayed(state.weights, self.optimizer.advanced(objective, state))

    def _decayed(self, weights: PyTree, moved: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        after, memory = moved
        share = self.learning_rate * jnp.asarray(self.weight_decay)
        return jax.tree.map(lambda new, old: new - (share * old).astype(new.dtype), after, weights), memory

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the descent with its numbers as arrays; raises what the optimizer does."""
        return replace(self, optimizer=self.optimizer.checked(dtype), weight_decay=constant(self.weight_decay, dtype))

    def check_start(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for weights that would decay although the risk does not depend on them."""
        check_weights(network, problem, decays=True)
        self.optimizer.check_start(network, problem)

    def rests(
        self,
        field: GradientField,
        state: DescentState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""]:
        """Tell whether the optimizer rests, and nothing is left to decay."""
        over = (jnp.asarray(self.weight_decay) == 0) | (norm(state.weights) == 0)
        return over & super().rests(field, state, before, small, asked=asked)

    def work(self, state: DescentState, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return what the optimizer has taken."""
        return self.optimizer.work(state, steps)

    def comes_to_rest(self) -> bool:
        """Tell that it does not, at a minimum of the risk."""
        return False

    def kind(self) -> str:
        """Return the kind of the optimizer, and that its weights decay."""
        return f"{self.optimizer.kind()}_with_decoupled_decay"

    def preconditioner(self, state: DescentState) -> PyTree | None:
        """Return that of the optimizer."""
        return self.optimizer.preconditioner(state)

    def method(self, state: DescentState) -> str:
        """Return the name of the optimizer with that of the decay."""
        return f"{self.optimizer.method(state)} with decoupled decay"
