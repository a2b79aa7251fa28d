"""Descents: discrete dynamics whose steps take one gradient each, and a time of the flow that they follow."""

import abc
import re
from collections.abc import Callable
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..kinds import Registry, is_kind_of
from ..problems import Draw, Minibatches
from ..solvers.field import GradientField, constant, norm
from .dynamics import Attempt, Clock, Dynamics
from .learning_rates import (
    Scalar,
    checked_rate,
    is_scheduled,
    is_settled,
    largest_rate,
    nominal_rate,
    rate_and_slope,
    rate_at,
)
from .outcome import Outcome


class DescentState(eqx.Module):
    """Weights, the objective and its gradient there, and the memory of the descent.

    With minibatches both are those of the next samples, which `draw` determines; else it is `None`.
    """

    weights: PyTree
    memory: PyTree
    objective: Float[Array, ""]
    gradient: PyTree
    draw: Draw | None = None


class Descent(Dynamics):
    """A dynamics in steps of one gradient each, with the learning rate η = `learning_rate`, its first field.

    To add one, say how a step changes the weights:

        class HeavyBall(flowsim.Descent):
            momentum: float = 0.9

            def remember(self, weights):
                return jax.tree.map(jnp.zeros_like, weights)

            def step(self, weights, gradient, memory):
                def next_velocity(v, g):
                    return self.momentum * v - self.learning_rate * g

                velocity = jax.tree.map(next_velocity, memory, gradient)
                return jax.tree.map(jnp.add, weights, velocity), velocity

    and run it as `flowsim.descend(..., optimizer=HeavyBall(0.02), steps=1000)`. Where the learning rate changes in time
    as of `HeavyBall(flowsim.WarmUp(0.02, time=10.0))` methods see the number that it is then. By default a step takes
    the time η (`time_of_step`), the curvature at which it becomes unstable is not known (`stability_threshold`), there
    is no preconditioner, and every step takes all samples (`minibatches`). A kind whose learning
    rate is that of another object has a property in place of the field, as `DecoupledDecay` does.
    """

    learning_rate: Scalar
    """η, a number or a `flowsim.LearningRate`."""

    patience: ClassVar[int] = 1
    gradients_per_step: ClassVar[int] = 1
    preconditioned: ClassVar[bool] = False
    """Whether `preconditioner` returns one."""
    shapes_count: ClassVar[bool] = True
    """Whether a step may depend on which array a weight is in: where not, models flatten all weights into one."""

    @abc.abstractmethod
    def remember(self, weights: PyTree) -> PyTree:
        """Return the memory before the first step, arrays whose shapes never change; `None` for no memory."""

    @abc.abstractmethod
    def step(self, weights: PyTree, gradient: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        """Return the weights and the memory after one step."""

    def time_of_step(self) -> Scalar:
        """Return the time that one step takes of the flow that it follows: by default η.

        With it the distance to the flow vanishes as η → 0, and at equal times the two are compared.
        """
        return self.learning_rate

    def stability_threshold(self) -> Scalar | None:
        """Return the largest curvature at which a quadratic mode is stable, `None` where it is not known, as here.

        Where there is a preconditioner P, it is the curvature of P^(−1/2) H P^(−1/2), P held fixed.
        """
        return None

    def comes_to_rest(self) -> bool:
        """Tell whether near a minimum below its edge of stability it comes to rest there: by default, without noise.

        Not with a preconditioner, which vanishes with the gradient, so that the edge comes down to any minimum.
        """
        return not self.preconditioned and self.minibatches() is None

    def rate_of_descent(self) -> Scalar:
        """Return the learning rate, the nominal one where it changes."""
        return nominal_rate(self.learning_rate)

    def edge_of_stability(self) -> Scalar | None:
        """Return the stability threshold at the nominal learning rate."""
        return self.nominal().stability_threshold()

    def sharpness_threshold(self) -> Scalar | None:
        """Return the same where it is a threshold of the sharpness."""
        return None if self.preconditioned else self.edge_of_stability()

    def lasting_threshold(self, time: Float[Array, ""]) -> Scalar | None:
        """Return the threshold at the largest learning rate from a time on."""
        return self._with_number(largest_rate(self.learning_rate, time)).sharpness_threshold()

    def minibatches(self) -> Minibatches | None:
        """Return how the samples of each step are drawn, `None` where a step takes all of them, as here."""
        return None

    def with_seed(self, seed: Any) -> Self:
        """Return the descent with another seed; `ValueError` for one that draws nothing, as by default."""
        raise ValueError(
            f"{type(self).__name__} has no seed, so all repetitions would be one: expected a descent that draws, such "
            "as flowsim.SGD(0.1, batch=8)"
        )

    def advanced(self, objective: Callable[[PyTree], Float[Array, ""]], state: DescentState) -> tuple[PyTree, PyTree]:
        """Return the weights after one step, and the memory: by default `step`, which needs no more than the gradient.

        `objective` is the function of the weights whose value and gradient `state` holds.
        """
        moved, before = self.step(state.weights, state.gradient, state.memory), (state.weights, state.memory)
        if jax.tree.structure(moved) != jax.tree.structure(before):
            returned, expected = jax.tree.map(lambda _: "*", (moved, before))
            raise TypeError(
                f"{type(self).__name__}.step returns {returned}: expected the weights and the memory after a step, as "
                f"{expected}: return both, the memory in the form that remember returns"
            )
        return moved

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the descent with its numbers as arrays, so that another learning rate needs no new compilation.

        Raises `ValueError` for a learning rate that is not positive and finite in this precision.
        """
        rate = checked_rate(self.learning_rate, dtype)
        whole = eqx.tree_at(lambda one: one.learning_rate, self, rate) if self.is_scheduled() else self
        leaves, structure = jax.tree.flatten(whole)
        floating = [isinstance(leaf, float | np.floating) or eqx.is_inexact_array(leaf) for leaf in leaves]
        return structure.unflatten(
            [constant(leaf, dtype) if number else leaf for leaf, number in zip(leaves, floating, strict=True)]
        )

    def at(self, time: Float[Array, ""]) -> Self:
        """Return the descent with the learning rate of a time."""
        return self._with_number(rate_at(self.learning_rate, time)) if self.is_scheduled() else self

    def between(self, time: Float[ArrayLike, ""]) -> Self:
        """Return the descent whose steps are those at a time as a smooth function: with the rate half a step before."""
        if not self.is_scheduled():
            return self
        eta, slope = rate_and_slope(self.learning_rate, time)
        length = self.at(jnp.asarray(time)).time_of_step()
        # Up to higher orders that is η − (τ/2)η', but positive where η rises fast.
        return self._with_number(eta / (1 + length / (2 * eta) * slope))

    def nominal(self) -> Self:
        """Return the descent with its nominal learning rate, which is a number."""
        return self._with_number(nominal_rate(self.learning_rate)) if self.is_scheduled() else self

    def is_scheduled(self) -> bool:
        """Tell whether the learning rate changes in time."""
        return is_scheduled(self.learning_rate)

    def _with_number(self, rate: Scalar) -> Self:
        return eqx.tree_at(lambda one: one.learning_rate, self, rate)

    def start(self, field: GradientField, weights: PyTree) -> DescentState:
        """Return the state before the first attempt, whose gradient nobody knows."""
        sampler = self.minibatches()
        unknown = jnp.full((), jnp.nan, jax.tree.leaves(weights)[0].dtype)
        # With a norm of zero, which is in the precision of the weights.
        draw = None if sampler is None else sampler.first(field.problem).seen(jnp.zeros_like(unknown))
        return DescentState(weights, self.remember(weights), unknown, jax.tree.map(jnp.zeros_like, weights), draw)

    def weights(self, state: DescentState) -> PyTree:
        """Return the weights in a state."""
        return state.weights

    def observe(self, field: GradientField, state: DescentState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient, which the state holds where steps take all samples."""
        if state.draw is None:
            return state.objective, norm(state.gradient)
        objective, gradient = jax.value_and_grad(field.objective)(state.weights)
        return objective, norm(gradient)

    def attempt(
        self, field: GradientField, state: DescentState, longest: Float[Array, ""], begun: Bool[Array, ""]
    ) -> Attempt:
        """Take one step, whose length is not free; before the run has `begun`, none."""
        sampler = self.minibatches()

        def on_samples(draw: Draw | None) -> Callable[[PyTree], Float[Array, ""]]:
            """Return the objective on the samples of a draw."""
            samples = None if sampler is None or draw is None else sampler.taken(field.problem, draw)
            return (field if samples is None else GradientField(samples, field.rest, field.flattened_by)).objective

        draw = None if sampler is None or state.draw is None else sampler.next(state.draw)
        moved = (*self.advanced(on_samples(state.draw), state), draw)
        still = (state.weights, state.memory, state.draw)
        weights, memory, draw = jax.tree.map(lambda new, old: jnp.where(begun, new, old), moved, still)
        objective, gradient = jax.value_and_grad(on_samples(draw))(weights)
        draw = None if draw is None else draw.seen(norm(gradient))
        after = DescentState(weights, memory, objective, gradient, draw)
        length = jnp.where(begun, jnp.asarray(self.time_of_step()), 0)
        return Attempt(True, after, length, jnp.array(False), jnp.asarray(Outcome.RUNNING, jnp.int32))

    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return k times that of a step after k steps, without the rounding of a sum; where steps differ, their sum."""
        if self.is_scheduled():
            return clock.after(attempt.length)
        return Clock(jnp.asarray(self.time_of_step()) * steps.astype(clock.time.dtype), clock.remainder)

    def is_settled(self, time: Float[Array, ""]) -> Bool[Array, ""] | bool:
        """Tell whether the learning rate does not rise any more."""
        return is_settled(self.learning_rate, time)

    def stands_still(self, state: DescentState, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step changed neither weights nor memory, nor the minibatch: then no later step does."""
        before, after = ((s.weights, s.memory, s.draw) for s in (state, attempt.state))
        same = [jnp.all(old == new) for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
        return jnp.all(jnp.stack(same))

    def rests(
        self,
        field: GradientField,
        state: DescentState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""] | bool:
        """Tell whether the gradient does not grow, as it does near an unstable minimum, and the next step is short.

        That is at most ten times a step along the gradient, or along one of the norm `small`: so neither momentum nor a
        term outside the gradient, such as weight decay, moves the weights on. At the start it is not known whether the
        gradient grows, unless it is zero.
        """
        if state.draw is not None:
            return True

        def check() -> Bool[Array, ""]:
            gradient_norm = norm(state.gradient)
            after, _ = self.advanced(field.objective, state)
            move = jax.tree.map(jnp.subtract, after, state.weights)
            scale = self.preconditioner(state)
            move = move if scale is None else jax.tree.map(jnp.multiply, scale, move)
            short = norm(move) <= 10 * jnp.asarray(self.time_of_step()) * jnp.maximum(gradient_norm, small)
            return short & ((gradient_norm == 0) | (jnp.isfinite(before) & (gradient_norm <= before)))

        return jax.lax.cond(asked, check, lambda: jnp.array(True))

    def unit_of_time(self, state: DescentState) -> Float[Array, ""]:
        """Return the time of one step."""
        return jnp.asarray(self.time_of_step())

    def checks_termination(self, state: DescentState) -> Bool[Array, ""] | bool:
        """Tell whether termination is checked: at every step; with minibatches once an epoch, or on divergence."""
        return True if state.draw is None else state.draw.ends_epoch | ~jnp.isfinite(state.draw.largest)

    def stationarity_measure(self, state: DescentState, gradient_norm: Float[Array, ""]) -> Float[Array, ""]:
        """Return ‖∇R‖; with minibatches, the larger of that and the norms of all their gradients in this epoch.

        These are not known before the epoch has ended.
        """
        if state.draw is None:
            return gradient_norm
        unknown = jnp.finfo(gradient_norm.dtype).max
        known = state.draw.ends_epoch | ~jnp.isfinite(state.draw.largest)
        return jnp.maximum(gradient_norm, jnp.where(known, state.draw.largest, unknown))

    def work(self, state: DescentState, steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return one gradient for each step and one for the start.

        With minibatches, one for each epoch begun and one for each termination check: passes over all samples.
        """
        if state.draw is None:
            return steps + 1, jnp.zeros_like(steps)
        epochs = (steps + 1) // state.draw.batches
        return -(-(steps + 1) // state.draw.batches) + epochs + 1, jnp.zeros_like(steps)

    def method(self, state: DescentState) -> str:
        """Return the name of the kind in words."""
        return words(type(self).__name__)


DESCENTS: Registry[type[Descent]] = Registry(
    "an optimizer", accepts=is_kind_of(Descent), expected="a subclass of flowsim.Descent"
)


def words(name: str) -> str:
    """Return the name of a class in words: GradientDescent becomes gradient descent, and RMSProp stays one."""
    parts = re.split(r"(?<=[a-z0-9])(?=[A-Z])", name)
    return " ".join(part if part[:2].isupper() and len(part) > 1 else part.lower() for part in parts)
