"""Edge flow: gradient descent at the edge of stability, as a flow of its centre and its oscillation."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..curvature import eigenpairs_lanczos, hessian_product, vectors
from ..curvature.hessian import quadratic_form
from ..dynamics.descent import check_learning_rate
from ..dynamics.dynamics import DYNAMICS
from ..dynamics.flow import MODELS, DescentModel, FlowState
from ..solvers import LowRankExtrapolation, ProposedSteps, Work
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, constant, norm
from ..solvers.stepper import Stepper
from .edge_field import EdgeField, EdgePoint, least_amplitude
from .onset import onset


@MODELS.register("edge")
@DYNAMICS.register("edge")
class EdgeFlow(DescentModel):
    """The flow that gradient descent with `learning_rate` η follows while it oscillates from one step to the next.

    It follows the centre of the oscillation, in which weights, risk and sharpness are recorded, its direction and its
    amplitude (`flowsim.edge.edge_field` has the equations), in the time t = ηk of descent. Where the sharpness is
    below 2/η it is the gradient flow, up to what descent's steps change in it: nothing for `order` one, −(η/2)H∇R for
    order two. At 2/η the oscillation grows, and holds the sharpness there.

    When it is noticed depends on how small it begins, and that on how fast descent came to the edge: anything between
    rounding and the oscillation itself. So before its first step a run follows descent to where the sharpness first
    passes 2/η, for at most 1000 steps (counted in the run's gradients and products), and measures what alternates
    there (`flowsim.edge.onset`). It is nothing more that the model takes from descent. Up to there r is held at that.

    The model takes descent to be smooth or to alternate. With learning rates far beyond 2/S, or while the weights cross
    a large part of their distance to the limit within a few steps, descent does neither, and no flow follows it.

    Steps adapt to `rtol` (default 1e-4, as the model itself is a matter of η²) and `atol` (1e-3·rtol). They are
    linearly implicit (`flowsim.solvers.LowRankExtrapolation`): accuracy alone limits them, so that a run along the edge
    may cost far fewer gradients than descent. A run raises `ValueError` for what `checked` refuses.
    """

    learning_rate: ArrayLike
    order: int = eqx.field(static=True, default=2)
    rtol: ArrayLike | None = None
    atol: ArrayLike | None = None

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, an order other than one and two, and
        tolerances that the precision cannot meet.
        """
        check_learning_rate(self.learning_rate, dtype)
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}: the edge flow is known up to order two in η")
        relative, absolute = tolerances(1e-4 if self.rtol is None else self.rtol, self.atol, None, dtype)
        return replace(self, learning_rate=constant(self.learning_rate, dtype), rtol=relative, atol=absolute)

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

    def first_point(self, field: GradientField, weights: PyTree) -> EdgePoint:
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
        return EdgePoint(centre, top.vector, jnp.log(jnp.maximum(jnp.abs(distance), least)), jnp.log(least))

    def vector_field(self, field: GradientField) -> EdgeField:
        """Return the right-hand side for centre, direction and amplitude."""
        return EdgeField(field, jnp.asarray(self.learning_rate), self.order)

    def stepper(self, field: GradientField, point: EdgePoint) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        columns = 5 if point.log_amplitude.dtype.itemsize < 8 else 8
        solver = LowRankExtrapolation(columns=columns, followed=0, overhead=8.0, frozen_up_to=float("inf"))
        return Stepper(solver.fill_in(self.vector_field(field), rtol, atol), ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

    def weights_at(self, point: EdgePoint) -> PyTree:
        """Return the centre."""
        return point.centre

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return three gradients and a product for each evaluation, two more for order two, and one for each check."""
        checks = steps + 1
        return 3 * evaluations + checks, (2 * self.order - 1) * evaluations + checks

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
