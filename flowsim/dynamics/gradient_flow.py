"""Gradient flow: dW/dt = −∇R(W), in steps that adapt to a tolerance."""

from dataclasses import replace
from typing import ClassVar, Self

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..networks import Places
from .dynamics import DYNAMICS, Attempt, Clock, Dynamics
from .field import GradientField, norm
from .outcome import Outcome, or_else
from .stepper import Stepper, StepperState, check_solver, stepper_for, tolerances


class FlowState(eqx.Module):
    """Weights, as one vector where they have `places` in one, and where the solver and its step control stand."""

    weights: PyTree
    stepper: StepperState
    places: Places | None


@DYNAMICS.register("gradient_flow")
class GradientFlow(Dynamics):
    """dW/dt = −∇R(W), by a Diffrax `solver` within `rtol` and `atol`.

    The default solver follows from the structure of the problem, default tolerances from the precision.
    `stepsize_controller` replaces the step control altogether, and then holds the tolerances.
    """

    solver: diffrax.AbstractAdaptiveSolver | None = None
    stepsize_controller: diffrax.AbstractAdaptiveStepSizeController | None = None
    rtol: ArrayLike | None = None
    atol: ArrayLike | None = None

    patience: ClassVar[int] = 10
    gradients_per_step: ClassVar[int] = 15

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with the tolerances that it leaves open filled in: 1e-6 and 1e-3·rtol; in float32, 1e-4.

        Raises `TypeError` for a solver or a step control that cannot adapt, `ValueError` for tolerances that are given
        twice, or that the precision cannot meet.
        """
        relative, absolute = tolerances(self.rtol, self.atol, self.stepsize_controller, dtype)
        check_solver(self.solver, self.stepsize_controller)
        return replace(self, rtol=relative, atol=absolute)

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first step."""
        field, weights = field.flattened(weights) if self._may_be_flat() else (field, weights)
        return FlowState(weights, self._stepper(field, weights).init(field, weights), field.places)

    def weights(self, state: FlowState) -> PyTree:
        """Return the weights in a state."""
        return state.weights if state.places is None else state.places.tree(state.weights)

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient, which flowsim's own solvers hold already."""
        field = field.along(state.places)
        known = self._stepper(field, state.weights).measured(state.stepper)
        measured = field.measured(state.weights) if known is None else known
        return measured.objective, norm(measured.slope)

    def attempt(self, field: GradientField, state: FlowState, longest: Float[Array, ""]) -> Attempt:
        """Try a step of the length that the step control wants, or of `longest` where that is shorter."""
        field = field.along(state.places)
        tried = self._stepper(field, state.weights).attempt(field, state.weights, state.stepper, longest)
        fault = or_else(jnp.asarray(Outcome.RUNNING, jnp.int32), ~(tried.state.wanted > 0), Outcome.STALLED)
        fault = or_else(fault, ~tried.okay, Outcome.SOLVER_FAILED)
        return Attempt(tried.kept, FlowState(tried.weights, tried.state, state.places), tried.length, tried.cut, fault)

    def tick(self, clock: Clock, attempt: Attempt, steps: Int[Array, ""], target: Float[Array, ""]) -> Clock:
        """Return the sum of all steps, `target` itself where the step was cut to end there."""
        arrived = attempt.length >= (target - clock.time) - clock.remainder
        time, remainder = _add(clock.time, clock.remainder, attempt.length)
        return Clock(jnp.where(arrived, target, time), jnp.where(arrived, 0, remainder))

    def stands_still(self, state: FlowState, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step left the weights as they were, to rounding, and not only for being short.

        On a plateau, too, a step may change nothing that can be seen; but there the next one is longer.
        """
        change = norm(jax.tree.map(jnp.subtract, attempt.state.weights, state.weights))
        rounding = jnp.finfo(change.dtype).eps * norm(attempt.state.weights)
        long = attempt.length * gradient_norm > 2 * rounding
        settled = ~attempt.cut & (attempt.state.stepper.wanted <= 1.05 * state.stepper.wanted)
        return (change <= rounding) & (long | settled)

    def unit_of_time(self, state: FlowState) -> Float[Array, ""]:
        """Return the length that the step control wants for the first step."""
        return state.stepper.wanted

    def work(self, state: FlowState, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return what the solver spent, and the gradients for verdicts where it does not hold them itself."""
        spent = state.stepper.work
        if not state.stepper.counted:
            return None, spent.products
        return spent.gradients + 1 + (0 if state.stepper.measures else steps), spent.products

    def loosened(self, state: FlowState) -> Float[Array, ""]:
        """Return by how much the tolerance was loosened at most, as the gradient jumps."""
        return state.stepper.smoothness.most

    def method(self, state: FlowState) -> str:
        """Return the name of the solver."""
        return state.stepper.name

    def _may_be_flat(self) -> bool:
        """Tell whether no part of the flow holds functions of the weights in the shape of the network."""
        return not any(callable(leaf) for leaf in jax.tree.leaves((self.solver, self.stepsize_controller)))

    def _stepper(self, field: GradientField, weights: PyTree) -> Stepper:
        # Made anew wherever it is asked for, inside the compiled program, where that is free.
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        return stepper_for(field, weights, self.solver, self.stepsize_controller, rtol, atol)


def _add(total: Array, remainder: Array, term: Array) -> tuple[Array, Array]:
    """Add to a number that is kept as an unevaluated sum of two (Knuth's two-sum)."""
    term = term + remainder
    high = total + term
    shadow = high - total
    return high, (total - (high - shadow)) + (term - shadow)
