"""Discrete dynamics: every step counts the learning rate in time, and takes one gradient."""

import abc
import inspect
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..kinds import Registry
from .dynamics import Attempt, Clock, Dynamics
from .field import GradientField, constant, norm
from .outcome import Outcome


class DescentState(eqx.Module):
    """Weights with the objective and its gradient there, and what the descent remembers of its steps."""

    weights: PyTree
    memory: PyTree
    objective: Float[Array, ""]
    gradient: PyTree


class Descent(Dynamics):
    """A dynamics in steps of η = `learning_rate` in time, one gradient each.

    To add one, say how a step changes the weights:

        class HeavyBall(flowsim.Descent):
            learning_rate: ArrayLike
            momentum: float = 0.9

            def remember(self, weights):
                return jax.tree.map(jnp.zeros_like, weights)

            def step(self, weights, gradient, memory):
                velocity = jax.tree.map(lambda v, g: self.momentum * v - self.learning_rate * g, memory, gradient)
                return jax.tree.map(jnp.add, weights, velocity), velocity

    and run it as `flowsim.descend(..., optimizer=HeavyBall(0.02), steps=1000)`.
    """

    learning_rate: eqx.AbstractVar[ArrayLike]

    patience: ClassVar[int] = 1
    gradients_per_step: ClassVar[int] = 1

    @abc.abstractmethod
    def remember(self, weights: PyTree) -> PyTree:
        """Return what is remembered before the first step, arrays whose shapes never change; `None` for nothing."""

    @abc.abstractmethod
    def step(self, weights: PyTree, gradient: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        """Return the weights after one step, and what is remembered from then on."""

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the descent with its numbers as arrays, so that another learning rate needs no new compilation.

        Raises `ValueError` for a learning rate that is not positive and finite in this precision.
        """
        rate = self.learning_rate
        if not isinstance(rate, Tracer):
            check_learning_rate(rate, dtype)
        return jax.tree.map(lambda leaf: constant(leaf, dtype) if _is_number(leaf) else leaf, self)

    def start(self, field: GradientField, weights: PyTree) -> DescentState:
        """Return the state before the first step."""
        return self._arrived(field, weights, self.remember(weights))

    def weights(self, state: DescentState) -> PyTree:
        """Return the weights in a state."""
        return state.weights

    def observe(self, field: GradientField, state: DescentState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient, which the state holds."""
        return state.objective, norm(state.gradient)

    def attempt(self, field: GradientField, state: DescentState, longest: Float[Array, ""]) -> Attempt:
        """Take one step, whose length is not free."""
        after = self._arrived(field, *self.step(state.weights, state.gradient, state.memory))
        nothing = jnp.asarray(Outcome.RUNNING, jnp.int32)
        return Attempt(True, after, jnp.asarray(self.learning_rate), jnp.array(False), nothing)

    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return ηk after k steps, without the rounding of a sum."""
        return Clock(jnp.asarray(self.learning_rate) * steps.astype(clock.time.dtype), clock.remainder)

    def stands_still(self, state: DescentState, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step changed nothing, neither weights nor memory, as then no later one does."""
        before, after = ((s.weights, s.memory) for s in (state, attempt.state))
        same = [jnp.all(old == new) for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
        return jnp.all(jnp.stack(same))

    def unit_of_time(self, state: DescentState) -> Float[Array, ""]:
        """Return η."""
        return jnp.asarray(self.learning_rate)

    def work(self, state: DescentState, steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return one gradient for each step and one for the start."""
        return steps + 1, jnp.zeros_like(steps)

    def method(self, state: DescentState) -> str:
        """Return the name of the kind in words."""
        return words(type(self).__name__)

    def _arrived(self, field: GradientField, weights: PyTree, memory: PyTree) -> DescentState:
        objective, gradient = jax.value_and_grad(field.objective)(weights)
        return DescentState(weights, memory, objective, gradient)


def check_learning_rate(rate: object, dtype: jnp.dtype) -> None:
    """Raise `ValueError` for what is no positive finite number of `dtype`, and for less than its least normal one.

    Compiled programs take such a number for zero: nothing would move.
    """
    known = np.asarray(rate)
    least, most = float(jnp.finfo(dtype).tiny), float(jnp.finfo(dtype).max)
    number = known.ndim == 0 and known.dtype.kind in "iuf"
    if not number or not least <= float(known) <= most:
        shown = rate if number else repr(rate)
        raise ValueError(f"learning_rate must be a positive finite number of {dtype}, {least:.2g} or more, got {shown}")


def _is_descent(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, Descent) and not inspect.isabstract(kind)


DESCENTS: Registry[type[Descent]] = Registry(
    "an optimizer", accepts=_is_descent, expected="a subclass of flowsim.Descent"
)


def _is_number(leaf: object) -> bool:
    return isinstance(leaf, float) or eqx.is_inexact_array(leaf) or isinstance(leaf, np.floating)


def words(name: str) -> str:
    """Return the name of a class in words: GradientDescent becomes gradient descent."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
