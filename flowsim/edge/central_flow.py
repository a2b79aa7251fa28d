"""Central flow: the mean of gradient descent's iterates at the edge of stability."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from ..curvature import vectors
from ..curvature.eigenpair import decomposition
from ..dynamics.dynamics import DYNAMICS, Attempt
from ..dynamics.flow import MODELS, DescentModel, FlowState
from ..dynamics.learning_rates import checked_rate, rate_at
from ..dynamics.outcome import Outcome
from ..solvers import ProposedSteps
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, norm
from ..solvers.stepper import Stepper
from .central_steps import CentralSteps, held_within
from .onset import Beginning


@MODELS.register("central")
@DYNAMICS.register("central")
class CentralFlow(DescentModel):
    """The flow of Cohen, Damian, Talwalkar, Kolter and Lee (2024) for gradient descent with the learning rate η.

    It is the gradient flow where the sharpness S is below 2/η, and from there on that which descent follows on average
    over its oscillation: dW/dt = −∇R − ½∇⟨H, Σ⟩, in the time t = ηk of descent, where the covariance Σ ⪰ 0 of the
    oscillation lies on the eigenvectors at the edge and is what keeps all eigenvalues of the Hessian at 2/η or below
    (`flowsim.edge.central_field` has the equations). With one eigenvalue at the edge that is −∇R projected off ∇S. A
    run that begins beyond 2/η comes down to it within some η, and ends as `DIVERGED`, as descent does, where the
    sharpness does not fall in any direction.

    Order two adds what the published flow, of order one in η, leaves out (`flowsim.edge.central_field`): the gradient
    of (η/4)‖∇R‖², by which descent differs from its flow everywhere, and the onset. Past 2/η the sharpness goes on
    rising until the oscillation, which begins as that of `flowsim.EdgeFlow`, is as large as Σ, and then comes down as
    that of a run which begins beyond. As there, a run from where ηS > 1 begins at the centre of the oscillation, and up
    to 1000 steps of descent are taken to find the onset. `compare` knows this flow as "central_2".

    How a flow that is beyond 2/η comes down to it, the published equations leave open. Here the departure fades at the
    rate 1/η, along −½∇⟨H, Σ⟩ as that turns on the way. Euler steps in which it fades at once, as those of the paper's
    own program, go along what that was where they began, and end elsewhere. For an η so large that no minimum is flat
    enough, beyond 2/(lower bound of the sharpness of minimizers), descent has no centre to stay near to: there a
    central flow may be no closer to it than the gradient flow.

    Where one more eigenvalue comes to the edge than `most`, the run ends as `SOLVER_FAILED`. A flow that comes to rest
    at the edge with ∇R ≠ 0, as no minimum is flat enough, ends as `FIXED_POINT`, and one that comes to where ∇S
    vanishes, so that no Σ holds the sharpness, as `STALLED`.

    Steps are linearly implicit (`flowsim.edge.central_steps`), and end where an eigenvalue comes to the edge: the first
    to ten digits, others to `rtol`, 1e-5 at most; those that Σ holds are then put onto it. Besides gradients they take
    products with the Hessian: some twenty in every step, and at the edge some five to 35 in every evaluation of the
    field, the more eigenvalues are there. Memory: some 250 vectors of the size of the weights for `most` = 4, and
    2·most² more for a larger one. A run raises `ValueError` for what `checked` refuses.
    """

    rtol: float | None = None
    """Relative tolerance of a step; by default that of the gradient flow."""
    atol: float | None = None
    """Absolute tolerance of a step; by default that of the gradient flow."""
    most: int = eqx.field(static=True, default=4)
    """How many eigenvalues are held at the edge at once, at most."""
    order: int = eqx.field(static=True, default=1)
    """One, as published, or two."""

    def kind(self) -> str:
        """Return the name of its kind, for order two with the order."""
        name = DYNAMICS.name_of(type(self))
        return name if self.order == 1 or name.endswith("_2") else f"{name}_2"

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, for `most` that is no number of
        eigenvalues, for an order but one or two, and for tolerances that the precision cannot meet.
        """
        rate = checked_rate(self.learning_rate, dtype)
        if isinstance(self.order, bool) or self.order not in (1, 2):
            raise ValueError(
                f"order must be 1 or 2, got {self.order!r}: the central flow is known up to order two in η"
            )
        if not isinstance(self.most, int) or isinstance(self.most, bool) or self.most < 1:
            raise ValueError(
                f"most must be a whole number of eigenvalues at the edge, one or more, got {self.most!r}: write most=4"
            )
        relative, absolute = tolerances(self.rtol, self.atol, None, dtype)
        return replace(self, learning_rate=rate, rtol=relative, atol=absolute)

    def held_within(self, dtype: jnp.dtype) -> float | None:
        """Return 1e-9, in single precision 8e-5: whatever has a part in the oscillation is put back onto 2/η.

        In order two that takes a while after the onset: `None`.
        """
        return held_within(dtype) if self.order == 1 else None

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first attempt; in order two, with what descent's oscillation begins with."""
        if self.order == 1:
            return super().start(field, weights)
        begins = Beginning.at(field, weights, self.learning_rate)
        found = begins.onset(field, self.learning_rate)
        state, least = super().start(field, begins.centre), found.amplitude + begins.least
        growth = replace(
            state.stepper.solver.growth,
            log_amplitude=jnp.log(jnp.maximum(begins.amplitude, least)),
            log_least=jnp.log(least),
        )
        solver = replace(state.stepper.solver, growth=growth)
        return replace(state, stepper=replace(state.stepper, solver=solver), before=found.work)

    def stepper(self, field: GradientField, point: PyTree) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        solver = CentralSteps(field=field, model=self, rtol=rtol, atol=atol, most=self.most, flow_order=self.order)
        return Stepper(solver, ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

    def attempt(
        self, field: GradientField, state: FlowState, longest: Float[Array, ""], begun: Bool[Array, ""]
    ) -> Attempt:
        """Try a step; where none is short enough beyond the edge, the oscillation leading down has no bounds."""
        tried = super().attempt(field, state, longest, begun)
        known = tried.state.stepper.solver
        beyond = known.comes_down & (jnp.max(known.edge.values) > 2 / self._rate)
        lost = beyond & (tried.fault == Outcome.STALLED)
        return replace(tried, fault=jnp.where(lost, Outcome.DIVERGED, tried.fault).astype(tried.fault.dtype))

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective and the norm of its gradient, both at the mean of descent's iterates."""
        known = state.stepper.solver
        return known.measured.objective, known.gradient_norm

    def rests(
        self,
        field: GradientField,
        state: FlowState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""]:
        """Tell whether descent rests there: the sharpness is known, not above 2/η, and not what holds the weights."""
        known = state.stepper.solver
        top = jnp.max(known.edge.values)
        stable = jnp.isfinite(top) & (top <= 2 / self._rate * (1 + held_within(top.dtype)))
        # A field below a millionth of the gradient is held by the edge alone.
        free = (norm(known.measured.slope) > 1e-6 * known.gradient_norm) | (known.gradient_norm == 0)
        return stable & free

    def oscillation(self, field: GradientField, state: FlowState) -> PyTree:
        """Return rows V with Σ = VᵀV, the covariance of descent's iterates about their mean.

        They are the weights with a leading axis of `most`, or of the number of weights if that is less: eigenvectors at
        the edge times standard deviations, the largest first, zeros behind.
        """
        at_edge = state.stepper.solver
        sizes, turn = decomposition(at_edge.covariance)
        room = len(sizes)
        held = jax.tree.map(lambda leaf: leaf[:room], at_edge.edge.vectors)
        rows = vectors.combination(jnp.sqrt(jnp.maximum(sizes, 0))[::-1, None] * turn.T[::-1], held)
        return rows if state.flattened_by is None else jax.vmap(state.flattened_by.tree)(rows)

    @property
    def _rate(self) -> Float[Array, ""]:
        return jnp.asarray(rate_at(self.learning_rate, 0.0))

    def variance(self, state: FlowState) -> Float[Array, ""]:
        """Return tr Σ, the mean squared distance of descent's iterates from their mean.

        Where the learning rate changes, this and what follows from it is asked of the flow `at` the time.
        """
        return jnp.trace(state.stepper.solver.covariance)

    def mean_risk(self, state: FlowState, risk: Float[ArrayLike, ""]) -> Float[Array, ""]:
        """Return R + tr Σ/η, the mean risk over an oscillation, from the `risk` R at the weights in `state`."""
        return jnp.asarray(risk) + self.variance(state) / self._rate

    def mean_squared_gradient_norm(self, state: FlowState, gradient_norm: Float[ArrayLike, ""]) -> Float[Array, ""]:
        """Return ‖∇R‖² + (4/η²) tr Σ, the mean over an oscillation, from ‖∇R‖ at the weights in `state`."""
        return jnp.asarray(gradient_norm) ** 2 + 4 / self._rate**2 * self.variance(state)


@MODELS.register("central_2")
@DYNAMICS.register("central_2")
class SecondOrderCentralFlow(CentralFlow):
    """`flowsim.CentralFlow` of order two, by a name of its own for `compare` and scenarios."""

    order: int = eqx.field(static=True, default=2)
