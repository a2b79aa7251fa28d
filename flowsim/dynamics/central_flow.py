"""Central flow: the mean of gradient descent's iterates at the edge of stability."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from .central_steps import CentralSteps
from .descent import check_learning_rate
from .dynamics import DYNAMICS
from .field import GradientField, constant, norm
from .flow import Flow, FlowState
from .solvers import ProposedSteps
from .stepper import Stepper, tolerances


@DYNAMICS.register("central")
class CentralFlow(Flow):
    """The flow of Cohen, Damian, Talwalkar, Kolter and Lee (2024) for gradient descent with `learning_rate` η."""

    learning_rate: ArrayLike
    rtol: ArrayLike | None = None
    atol: ArrayLike | None = None
    most: int = eqx.field(static=True, default=4)

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in."""
        if not isinstance(self.learning_rate, Tracer):
            check_learning_rate(self.learning_rate, dtype)
        relative, absolute = tolerances(self.rtol, self.atol, None, dtype)
        return replace(self, learning_rate=constant(self.learning_rate, dtype), rtol=relative, atol=absolute)

    def first_point(self, field: GradientField, weights: PyTree) -> PyTree:
        """Return the weights, which are all that there is."""
        return weights

    def vector_field(self, field: GradientField) -> GradientField:
        """Return −∇R: what holds it at the edge is known to what steps along it."""
        return field

    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        columns = 5 if rtol.dtype.itemsize < 8 else 8
        solver = CentralSteps(field, jnp.asarray(self.learning_rate), rtol, atol, self.most, columns)
        return Stepper(solver, ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

    def weights_at(self, point: PyTree) -> PyTree:
        """Return the point."""
        return point

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return one gradient for each evaluation and for each verdict; the solver knows its products."""
        return evaluations + steps + 1, jnp.zeros_like(evaluations)

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient."""
        objective, gradient = jax.value_and_grad(field.along(state.places).objective)(state.point)
        return objective, norm(gradient)
