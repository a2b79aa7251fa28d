"""Flows: dynamics in continuous time, whose steps adapt to a tolerance."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..networks import FlattenedParameters
from ..solvers.field import GradientField, VectorField, norm
from ..solvers.stepper import Stepper, StepperState
from .dynamics import Attempt, Clock, Dynamics
from .outcome import Outcome, or_else


class FlowState(eqx.Module):
    """The point where a flow is, and where its solver and step control stand.

    In the point, weights are one vector where they have `places` in one.
    """

    point: PyTree
    stepper: StepperState
    places: FlattenedParameters | None


class Flow(Dynamics):
    """A dynamics d(point)/dt = F(point), of which the weights are part, or the whole.

    A kind of flow says where it begins, what F is and what steps along it, and what the weights are.
    """

    patience: ClassVar[int] = 10
    gradients_per_step: ClassVar[int] = 15

    @abc.abstractmethod
    def first_point(self, field: GradientField, weights: PyTree) -> PyTree:
        """Return the point that begins at `weights`, in the shape that they have in `field`."""

    @abc.abstractmethod
    def vector_field(self, field: GradientField) -> VectorField:
        """Return F."""

    @abc.abstractmethod
    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return what steps along F. It is made anew wherever it is asked for, in the compiled program."""

    @abc.abstractmethod
    def weights_at(self, point: PyTree) -> PyTree:
        """Return the weights in a point."""

    @abc.abstractmethod
    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return the gradients and the products with the Hessian in so many evaluations of F, in so many steps."""

    def may_be_flat(self) -> bool:
        """Tell whether no part of the flow holds functions of the weights in the shape of the network."""
        return True

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first step."""
        field, weights = field.flattened(weights) if self.may_be_flat() else (field, weights)
        point = self.first_point(field, weights)
        stepper = self.stepper(field, point).init(self.vector_field(field), point)
        return FlowState(point, stepper, field.places)

    def weights(self, state: FlowState) -> PyTree:
        """Return the weights in a state."""
        weights = self.weights_at(state.point)
        return weights if state.places is None else state.places.tree(weights)

    def attempt(self, field: GradientField, state: FlowState, longest: Float[Array, ""]) -> Attempt:
        """Try a step of the length that the step control wants, or of `longest` where that is shorter."""
        field = field.along(state.places)
        stepper, over = self.stepper(field, state.point), self.vector_field(field)
        tried = stepper.attempt(over, state.point, state.stepper, longest)
        fault = or_else(jnp.asarray(Outcome.RUNNING, jnp.int32), ~(tried.state.wanted > 0), Outcome.STALLED)
        fault = or_else(fault, ~tried.okay, Outcome.SOLVER_FAILED)
        return Attempt(tried.kept, FlowState(tried.point, tried.state, state.places), tried.length, tried.cut, fault)

    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return the sum of all steps, `target` itself where the step was cut to end there."""
        reached = attempt.length >= (target - clock.time) - clock.remainder
        time, remainder = _add(clock.time, clock.remainder, attempt.length)
        return Clock(jnp.where(reached, target, time), jnp.where(reached, 0, remainder))

    def stands_still(self, state: FlowState, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step left the point as it was, to rounding, and not only for being short.

        On a plateau, too, a step may change nothing that can be seen; but there the next one is longer.
        """
        change = norm(jax.tree.map(jnp.subtract, attempt.state.point, state.point))
        rounding = jnp.finfo(change.dtype).eps * norm(attempt.state.point)
        long = attempt.length * gradient_norm > 2 * rounding
        steady = ~attempt.cut & (attempt.state.stepper.wanted <= 1.05 * state.stepper.wanted)
        return (change <= rounding) & (long | steady)

    def unit_of_time(self, state: FlowState) -> Float[Array, ""]:
        """Return the length that the step control wants for the first step."""
        return state.stepper.wanted

    def work(self, state: FlowState, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return what the solver spent, and the gradients of termination checks where it does not hold them itself."""
        spent = state.stepper.work
        if not state.stepper.counted:
            return None, spent.products
        gradients, products = self.passes(spent.gradients + 1, steps)
        return gradients + (0 if state.stepper.measures else steps), products + spent.products

    def loosened(self, state: FlowState) -> Float[Array, ""]:
        """Return by how much the tolerance was loosened at most, as the gradient jumps."""
        return state.stepper.smoothness.most

    def method(self, state: FlowState) -> str:
        """Return the name of the solver."""
        return state.stepper.name


def _add(total: Array, remainder: Array, term: Array) -> tuple[Array, Array]:
    """Add to a number that is kept as an unevaluated sum of two (Knuth's two-sum)."""
    term = term + remainder
    high = total + term
    shadow = high - total
    return high, (total - (high - shadow)) + (term - shadow)
