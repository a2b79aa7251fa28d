"""Gradient flow: dW/dt = −∇R(W), in steps that adapt to a tolerance."""

from dataclasses import replace
from typing import Self

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from ..networks import split, weight_dtype
from ..problems import Problem
from ..solvers.choice import check_solver, stepper_for, tolerances
from ..solvers.field import GradientField, norm
from ..solvers.stepper import Stepper
from .dynamics import DYNAMICS
from .flow import Flow, FlowState


@DYNAMICS.register("gradient_flow")
class GradientFlow(Flow):
    """dW/dt = −∇R(W), by a Diffrax `solver` within `rtol` and `atol`.

    The default solver follows from the structure of the problem, default tolerances from the precision.
    `stepsize_controller` replaces the step control altogether, and then holds the tolerances. A run raises `ValueError`
    and `TypeError` for what `checked` refuses.
    """

    solver: diffrax.AbstractAdaptiveSolver | None = None
    stepsize_controller: diffrax.AbstractAdaptiveStepSizeController | None = None
    rtol: ArrayLike | None = None
    atol: ArrayLike | None = None

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with the tolerances that it leaves open filled in: 1e-6 and 1e-3·rtol; in float32, 1e-4.

        Raises `TypeError` for a solver or a step control that cannot adapt, `ValueError` for tolerances that are given
        twice, or that the precision cannot meet.
        """
        relative, absolute = tolerances(self.rtol, self.atol, self.stepsize_controller, dtype)
        check_solver(self.solver, self.stepsize_controller)
        return replace(self, rtol=relative, atol=absolute)

    def first_point(self, field: GradientField, weights: PyTree) -> PyTree:
        """Return the weights, which are all that there is."""
        return weights

    def vector_field(self, field: GradientField) -> GradientField:
        """Return −∇R."""
        return field

    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return the solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        return stepper_for(field, point, self.solver, self.stepsize_controller, rtol, atol)

    def solver_for(self, network: PyTree, problem: Problem) -> diffrax.AbstractSolver:
        """Return the solver that steps the flow of a network, with its options filled in; nothing is computed."""
        weights, rest = split(network)
        dynamics = self.checked(weight_dtype(network))
        return dynamics.stepper(GradientField(problem, rest), weights).solver

    def weights_at(self, point: PyTree) -> PyTree:
        """Return the point."""
        return point

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return one gradient for each evaluation."""
        return evaluations, jnp.zeros_like(evaluations)

    def may_be_flat(self) -> bool:
        """Tell whether no part of the flow holds functions of the weights in the shape of the network."""
        return not any(callable(leaf) for leaf in jax.tree.leaves((self.solver, self.stepsize_controller)))

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient, which flowsim's own solvers hold already."""
        field = field.along(state.places)
        known = self.stepper(field, state.point).measured(state.stepper)
        measured = field.measured(state.point) if known is None else known
        return measured.objective, norm(measured.slope)
