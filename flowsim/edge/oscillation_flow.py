"""What the flows of a centre and an oscillation of gradient descent have in common."""

import abc
from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from ..curvature import eigenpairs_lanczos, hessian_product, vectors
from ..curvature.hessian import quadratic_form
from ..dynamics.descent import check_learning_rate
from ..dynamics.flow import DescentModel, FlowState
from ..solvers import LowRankExtrapolation, ProposedSteps, Work
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, constant, norm
from ..solvers.stepper import Stepper
from .onset import onset
from .oscillation_field import OscillationField, OscillationPoint, least_amplitude


class OscillationFlow(DescentModel):
    """A flow of the centre of descent's oscillation, of its direction and of its amplitude.

    A kind of it says in which `vector_field`, and how many `passes` that takes. Steps are linearly implicit, within
    `rtol` (default 1e-4, as such a model is itself a matter of η²) and `atol` (1e-3·rtol).
    """

    rtol: eqx.AbstractVar[ArrayLike | None]
    atol: eqx.AbstractVar[ArrayLike | None]

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, and for tolerances that the precision
        cannot meet.
        """
        check_learning_rate(self.learning_rate, dtype)
        relative, absolute = tolerances(1e-4 if self.rtol is None else self.rtol, self.atol, None, dtype)
        return replace(self, learning_rate=constant(self.learning_rate, dtype), rtol=relative, atol=absolute)  # pyright: ignore[reportCallIssue]  (the fields are abstract here)

    @abc.abstractmethod
    def vector_field(self, field: GradientField) -> OscillationField:
        """Return the right-hand side for centre, direction and amplitude."""

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first attempt, from where descent itself was followed to the edge."""
        state = super().start(field, weights)
        point = state.point
        least = jnp.exp(point.log_onset)
        already = point.log_amplitude > point.log_onset
        found = onset(field.along(state.flattened_by), point.centre, point.unit, self.learning_rate, known=already)
        begins = jnp.log(found.amplitude + least)
        point = replace(point, log_amplitude=jnp.maximum(point.log_amplitude, begins), log_onset=begins)
        return replace(state, point=point, before=Work(found.steps, found.steps))

    def first_point(self, field: GradientField, weights: PyTree) -> OscillationPoint:
        """Return the weights as the centre of an oscillation as small as rounding.

        Where ηS > 1 already, descent oscillates about the floor of the valley: the distance to it along the eigenvector
        is the amplitude, and the floor is the centre.
        """
        eta = jnp.asarray(self.learning_rate)
        gradient = jax.grad(field.objective)(weights)
        start = jax.tree.map(lambda leaf: leaf[None], vectors.scattered_like(weights, 0))
        # The direction turns towards the eigenvector by itself.
        rtol = max(1e-4, float(jnp.finfo(eta.dtype).eps) ** 0.5)
        top = eigenpairs_lanczos(hessian_product(field.objective, weights), start, rtol=rtol).pair(0)
        tilt = vectors.inner_product(top.vector, gradient)
        distance = jnp.where(eta * top.value > 1, tilt / top.value, 0)
        centre = jax.tree.map(lambda w, u: w - distance * u, weights, top.vector)
        least = least_amplitude(weights, top.vector)
        return OscillationPoint(centre, top.vector, jnp.log(jnp.maximum(jnp.abs(distance), least)), jnp.log(least))

    def stepper(self, field: GradientField, point: OscillationPoint) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        columns = 5 if point.log_amplitude.dtype.itemsize < 8 else 8
        solver = LowRankExtrapolation(columns=columns, followed=0, overhead=8.0, frozen_up_to=float("inf"))
        return Stepper(solver.fill_in(self.vector_field(field), rtol, atol), ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

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
            return jnp.asarray(self.learning_rate) * self._curvature(field, state) < 2

        return jax.lax.cond(asked, look, lambda: jnp.array(True))

    def oscillation(self, field: GradientField, state: FlowState) -> PyTree:
        """Return r u, as one row."""
        amplitude = self.vector_field(field.along(state.flattened_by)).amplitude(state.point)
        row = vectors.scaled(amplitude, state.point.unit)
        tree = row if state.flattened_by is None else state.flattened_by.tree(row)
        return jax.tree.map(lambda leaf: leaf[None], tree)

    def _curvature(self, field: GradientField, state: FlowState) -> Float[Array, ""]:
        """Return uᵀHu at the centre."""
        objective = field.along(state.flattened_by).objective
        return quadratic_form(objective, state.point.centre, state.point.unit)
