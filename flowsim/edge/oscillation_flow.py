"""What the flows of a centre and an oscillation of gradient descent have in common."""

import abc
from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..curvature import vectors
from ..curvature.hessian import quadratic_form
from ..dynamics.flow import DescentModel, FlowState
from ..dynamics.learning_rates import Scalar, checked_rate, rate_at
from ..solvers import LowRankExtrapolation, ProposedSteps
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, norm
from ..solvers.stepper import Stepper
from .onset import Beginning
from .oscillation_field import OscillationField, OscillationPoint


class OscillationFlow(DescentModel):
    """A flow of the centre of descent's oscillation, of its direction and of its amplitude.

    A kind of it says in which `vector_field`, and how many `passes` that takes. Steps are linearly implicit, within
    `rtol` (default 1e-4, as such a model is itself a matter of η²) and `atol` (default zero).
    """

    rtol: eqx.AbstractVar[float | None]
    atol: eqx.AbstractVar[float | None]

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, and for tolerances that the precision
        cannot meet.
        """
        rate = checked_rate(self.learning_rate, dtype)
        relative, absolute = tolerances(1e-4 if self.rtol is None else self.rtol, self.atol, None, dtype)
        return replace(self, learning_rate=rate, rtol=relative, atol=absolute)  # pyright: ignore[reportCallIssue]  (the fields are abstract here)

    @property
    def _rate(self) -> Scalar:
        """The learning rate, an array where it is a number."""
        return self.learning_rate if self.is_scheduled() else jnp.asarray(self.learning_rate)

    @abc.abstractmethod
    def vector_field(self, field: GradientField) -> OscillationField:
        """Return the right-hand side for centre, direction and amplitude."""

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first attempt, from where descent itself was followed to the edge."""
        state = super().start(field, weights)
        point, rounding = state.point, jnp.exp(state.point.log_onset)
        begins = Beginning(point.centre, point.direction, jnp.exp(point.log_amplitude), rounding)
        found = begins.onset(field.along(state.flattened_by), self.learning_rate)
        log_onset = jnp.log(found.amplitude + rounding)
        point = replace(point, log_amplitude=jnp.maximum(point.log_amplitude, log_onset), log_onset=log_onset)
        return replace(state, point=point, before=found.work)

    def first_point(self, field: GradientField, weights: PyTree) -> OscillationPoint:
        """Return where the oscillation begins, before an onset is looked for."""
        begins = Beginning.at(field, weights, self.learning_rate)
        return OscillationPoint(begins.centre, begins.direction, jnp.log(begins.amplitude), jnp.log(begins.least))

    def stepper(self, field: GradientField, point: OscillationPoint) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        columns = 5 if point.log_amplitude.dtype.itemsize < 8 else 8
        solver = LowRankExtrapolation(columns=columns, followed=0, overhead=8.0, frozen_up_to=float("inf"))
        solver = solver.fill_in(self.vector_field(field).at(0.0), rtol, atol)
        # What is measured at a point alone does not know the time.
        solver = replace(solver, measure=None) if self.is_scheduled() else solver
        return Stepper(solver, ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

    def weights_at(self, point: OscillationPoint) -> PyTree:
        """Return the centre."""
        return point.centre

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective at the centre, and the root mean square norm of the gradient over an oscillation."""
        objective, gradient = jax.value_and_grad(field.along(state.flattened_by).objective)(state.point.centre)
        oscillation = jnp.exp(state.point.log_amplitude) * self._curvature(field, state)
        return objective, jnp.hypot(norm(gradient), oscillation)

    def rests(
        self,
        field: GradientField,
        state: FlowState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""]:
        """Tell whether the sharpness is below 2/η: beyond, an oscillation grows out of rounding."""

        def look() -> Bool[Array, ""]:
            return jnp.asarray(rate_at(self.learning_rate, 0.0)) * self._curvature(field, state) < 2

        return jax.lax.cond(asked, look, lambda: jnp.array(True))

    def oscillation(self, field: GradientField, state: FlowState) -> PyTree:
        """Return r u, as one row."""
        amplitude = self.vector_field(field.along(state.flattened_by)).at(0.0).amplitude(state.point)
        row = vectors.scaled(amplitude, state.point.unit)
        tree = row if state.flattened_by is None else state.flattened_by.tree(row)
        return jax.tree.map(lambda leaf: leaf[None], tree)

    def _curvature(self, field: GradientField, state: FlowState) -> Float[Array, ""]:
        """Return uᵀHu at the centre."""
        objective = field.along(state.flattened_by).objective
        return quadratic_form(objective, state.point.centre, state.point.unit)
