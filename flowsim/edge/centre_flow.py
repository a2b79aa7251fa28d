"""The flow of any descent's centre and of its oscillation, and the flow without that."""

from dataclasses import replace
from typing import Any, ClassVar, Self

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import hessian_product, vectors
from ..dynamics.descent import Descent, DescentState, words
from ..dynamics.dynamics import DYNAMICS, Attempt
from ..dynamics.flow import MODELS, DescentModel, FlowState
from ..dynamics.learning_rates import Scalar
from ..dynamics.outcome import Outcome
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, Measured, norm
from ..solvers.stepper import Stepper
from .centre_field import CentreField, CentrePoint
from .onset import least_amplitude
from .orbit import Position, StepMap, takeover

_LOOSER = 10.0
"""How many times the tolerance what alternates may be off: it is the logarithm that counts."""


class FollowedDescent(eqx.Module):
    """The descent that a run begins with: `here`, so much time `since` then, and the weights that are `shown` between.

    So many steps are `taken`, and so many are `left`.
    """

    here: Position
    shown: PyTree
    since: Float[Array, ""]
    taken: Int[Array, ""]
    left: Int[Array, ""]


class CentreState(FlowState):
    """The state of the flow and of the descent before it, and the gradient at the weights."""

    descent: FollowedDescent = None  # pyright: ignore[reportAssignmentType]
    measured: Measured = None  # pyright: ignore[reportAssignmentType]


@MODELS.register("centre")
@DYNAMICS.register("centre")
class CentreFlow(DescentModel):
    """The flow of the centre of any descent and of what alternates about it, by the step of its `optimizer` alone.

    It follows weights and memory of the descent, momentum and preconditioner with them, and what has changed its sign
    from each step to the next (`flowsim.edge.centre_field` has the equations), in the time of the descent. With
    momentum it holds the sharpness at that threshold, and with a preconditioner the preconditioned sharpness, as the
    oscillation grows where it is above (Cohen et al. 2024, arXiv 2410.24206, derive central flows so for RMSProp). For
    gradient descent `flowsim.EdgeFlow` does the same at a fraction of the cost. Weights, risk and sharpness are
    recorded at the centre.

    In its first steps a descent is neither smooth nor alternating: momentum sets in, preconditioners are unknown, steep
    directions fall within a step or two. So a run begins with the descent's own steps, up to where the third difference
    of its centres is less than a hundredth of the first: some ten steps without momentum, a hundred with 0.9 of it.
    From there it is nothing but the flow. With what the oscillation begins, it learns from the descent, too, which is
    followed up to its edge, for at most 1000 steps (`flowsim.edge.orbit`).

    Errors of a step are measured in the root mean square of all weights, and of each array of the memory, but those of
    a mean of squares entry by entry; those of what alternates may be ten times as large. Steps are explicit, as the
    derivative of a descent's step is not symmetric, and so no longer than one or two of the descent: a run costs 35 to
    150 times its gradients. Where steps would have to be as short as 1e-8 of the descent's, at a singularity, a run
    ends as `STALLED`. A run raises `ValueError` for what `checked` refuses.
    """

    optimizer: Descent = None  # pyright: ignore[reportAssignmentType]
    """The descent that it follows; in `compare`, `None`: each descent."""
    rtol: float | None = None
    """Relative tolerance of a step; by default 1e-4."""
    atol: float | None = None
    """Absolute tolerance of a step, of the weights; by default 0."""

    oscillates: ClassVar[bool] = True
    shortest: ClassVar[float] = 1e-8
    """A step that has to be shorter, in steps of the descent, is at a singularity, where a run ends as `STALLED`."""

    @property
    def learning_rate(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]  (as the optimizer's)
        """The learning rate of the optimizer."""
        return self.optimizer.learning_rate if isinstance(self.optimizer, Descent) else self.optimizer

    @classmethod
    def of(cls, descent: Descent) -> Self:
        """Return the model of a descent."""
        return cls(descent)  # pyright: ignore[reportArgumentType]  (its field is no learning rate)

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `TypeError` for an optimizer that is no descent, and `ValueError` for what that refuses, for one whose
        threshold of stability is not known or whose steps are random, and for tolerances that the precision cannot
        meet.
        """
        if not isinstance(self.optimizer, Descent):
            raise TypeError(f"optimizer must be a flowsim.Descent, such as flowsim.Adam(1e-3), got {self.optimizer!r}")
        name = words(type(self.optimizer).__name__)
        if self.optimizer.minibatches() is not None:
            raise ValueError(
                f"{name} draws minibatches, and no flow of these steps is known: take a full-batch descent"
            )
        if self.optimizer.edge_of_stability() is None:
            raise ValueError(
                f"the curvature at which {name} becomes unstable is not known, and so not where its oscillation "
                "begins: give it a method stability_threshold"
            )
        relative, absolute = tolerances(self.rtol, self.atol, None, dtype, standard=1e-4)
        return replace(self, optimizer=self.optimizer.checked(dtype), rtol=relative, atol=absolute)

    def edge_of_stability(self) -> Scalar | None:
        """Return that of the descent."""
        return self.optimizer.edge_of_stability()

    def sharpness_threshold(self) -> Scalar | None:
        """Return that of the descent."""
        return self.optimizer.sharpness_threshold()

    def lasting_threshold(self, time: Float[Array, ""]) -> Scalar | None:
        """Return that of the descent."""
        return self.optimizer.lasting_threshold(time)

    @property
    def _now(self) -> Descent:
        """The descent at time zero."""
        return self.optimizer.at(jnp.asarray(0.0))

    def may_be_flat(self) -> bool:
        """Tell whether the descent treats weights alike, whatever arrays they are in."""
        return not self.optimizer.shapes_count

    def vector_field(self, field: GradientField) -> CentreField:
        """Return the right-hand side for centre and alternating part."""
        return CentreField(StepMap(field, self.optimizer))

    def stepper(self, field: GradientField, point: CentrePoint) -> Stepper:
        """Return Tsit5, with steps by the largest error of weights, of a part of the memory, or of what alternates."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        units = _units(point, atol / rtol)

        def size(error: CentrePoint) -> Float[Array, ""]:
            found = jnp.max(_sizes(error.centre, units)) / rtol
            if error.alternating is None or point.alternating is None:
                return found
            # What alternates may be of any size, and its parts pass through zero.
            own = _sizes(point.alternating, units)
            return jnp.maximum(
                found, jnp.max(_sizes(error.alternating, units) / jnp.maximum(own, own[-1])) / (_LOOSER * rtol)
            )

        return Stepper(diffrax.Tsit5(), diffrax.PIDController(rtol=0.0, atol=1.0, norm=size))

    def start(self, field: GradientField, weights: PyTree) -> CentreState:
        """Return the state before the first attempt, with where the flow begins after some steps of the descent."""
        field, weights = field.flattened(weights) if self.may_be_flat() else (field, weights)
        step = StepMap(field, self.optimizer)
        begins = takeover(step, weights)
        sizes, squares = _memory_sizes(begins.centre), step.at(0.0).squares(weights)
        point = CentrePoint(begins.centre, sizes, squares, None, None)
        if self.oscillates:
            least = least_amplitude(begins.centre.weights, begins.direction)
            seed = jax.tree.map(lambda v, u: v + least * u, begins.alternating.weights, begins.direction)
            alternating = Position(seed, begins.alternating.memory)
            point = CentrePoint(begins.centre, sizes, squares, alternating, jnp.log(begins.onset + least))
        over: Any = self.vector_field(field)
        stepper = self.stepper(field, point).init(over, point)
        zero, first = jnp.zeros_like(stepper.wanted), 0.1 * jnp.asarray(self._now.time_of_step())
        stepper = replace(stepper, wanted=first.astype(zero.dtype))
        descent = FollowedDescent(
            step.at(0.0).first(weights), weights, zero, jnp.zeros_like(begins.steps), begins.steps
        )
        unknown = Measured(jax.tree.map(jnp.zeros_like, weights), jnp.full_like(zero, jnp.nan))
        return CentreState(point, stepper, field.flattened_by, begins.work, descent, unknown)

    def weights_at(self, point: CentrePoint) -> PyTree:
        """Return the weights of the centre."""
        return point.centre.weights

    def weights(self, state: CentreState) -> PyTree:
        """Return the weights of the centre, or of the descent before it."""
        weights = self._weights(state)
        return weights if state.flattened_by is None else state.flattened_by.tree(weights)

    def _weights(self, state: CentreState) -> PyTree:
        return vectors.where(state.descent.left > 0, state.descent.shown, state.point.centre.weights)

    def attempt(
        self, field: GradientField, state: CentreState, longest: Float[Array, ""], begun: Bool[Array, ""]
    ) -> Attempt:
        """Try a step of the flow, or go on along a step of the descent before it."""
        along = field.along(state.flattened_by)

        def along_flow() -> Attempt:
            tried = super(CentreFlow, self).attempt(field, state, longest, begun)
            least = self.shortest * jnp.asarray(self._now.time_of_step())
            singular = (tried.state.stepper.wanted < least) & (tried.fault == Outcome.RUNNING)
            fault = jnp.where(singular, Outcome.STALLED, tried.fault)
            fault = jnp.where(begun, fault, Outcome.RUNNING).astype(tried.fault.dtype)
            return replace(tried, kept=jnp.asarray(tried.kept), fault=fault)

        def along_descent() -> Attempt:
            descent = state.descent
            step = StepMap(along, self.optimizer).at(-descent.since)
            length = jnp.asarray(step.optimizer.time_of_step())
            rest = length - descent.since
            # A time that is meant to be that of a step differs from it by rounding.
            arrives = longest >= rest - 1e-6 * length
            h = jnp.where(arrives & (longest > rest + 1e-6 * length), rest, longest)
            ahead = step(descent.here)
            since = jnp.where(arrives, 0, descent.since + h)
            here = vectors.where(arrives, ahead, descent.here)
            shown = jax.tree.map(lambda w, a: w + since / length * (a - w), here.weights, ahead.weights)
            taken, left = descent.taken + arrives, descent.left - arrives
            after = replace(state, descent=FollowedDescent(here, shown, since, taken, left))
            return Attempt(jnp.array(True), after, h, ~arrives, jnp.asarray(Outcome.RUNNING, jnp.int32))

        tried = jax.lax.cond(begun & (state.descent.left > 0), along_descent, along_flow)
        measured = jax.lax.cond(tried.kept, lambda: along.measured(self._weights(tried.state)), lambda: state.measured)
        return replace(tried, state=replace(tried.state, measured=measured))

    def stands_still(self, state: CentreState, attempt: Attempt, gradient_norm: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether a step of the flow changed its point by no more than rounding, although it was long enough."""
        return super().stands_still(state, attempt, gradient_norm) & (state.descent.left == 0)

    def objective(self, field: GradientField, state: CentreState) -> Float[Array, ""]:
        """Return the objective at the weights."""
        return state.measured.objective

    def observe(self, field: GradientField, state: CentreState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective at the weights, and the root mean square norm of the gradient over an oscillation."""
        size = norm(state.measured.slope)
        if not self.oscillates:
            return state.measured.objective, size
        product = hessian_product(field.along(state.flattened_by).objective, self._weights(state))
        return state.measured.objective, jnp.hypot(size, norm(product(self._swing(state))))

    def rests(
        self,
        field: GradientField,
        state: CentreState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""]:
        """Tell whether no oscillation grows, and memory moves the weights no further than the gradient does."""

        def look() -> Bool[Array, ""]:
            over = self.vector_field(field.along(state.flattened_by)).at(0.0)
            moved, scale = over.moved(state.point), self._scale(state)
            move = moved.centre.weights
            move = move if scale is None else jax.tree.map(jnp.multiply, scale, move)
            longest = 10 * over.time * jnp.maximum(norm(state.measured.slope), small)
            decays = True if moved.growth is None else moved.growth < 0
            return (norm(move) <= longest) & decays & (state.descent.left == 0)

        return jax.lax.cond(asked, look, lambda: jnp.array(True))

    def preconditioner(self, state: CentreState) -> PyTree | None:
        """Return that of the descent, at the weights and with the memory of the flow."""
        scale = self._scale(state)
        return scale if scale is None or state.flattened_by is None else state.flattened_by.tree(scale)

    def _scale(self, state: CentreState) -> PyTree | None:
        if not self.optimizer.preconditioned:
            return None
        memory = vectors.where(state.descent.left > 0, state.descent.here.memory, state.point.centre.memory)
        gradient = jax.tree.map(jnp.negative, state.measured.slope)
        known = DescentState(self._weights(state), memory, state.measured.objective, gradient)
        return self._now.preconditioner(known)

    def oscillation(self, field: GradientField, state: CentreState) -> PyTree | None:
        """Return v as one row, zero before the flow begins; without an oscillation `None`."""
        if not self.oscillates:
            return None
        swing = self._swing(state)
        swing = swing if state.flattened_by is None else state.flattened_by.tree(swing)
        return jax.tree.map(lambda leaf: leaf[None], swing)

    def unit_of_time(self, state: CentreState) -> Float[Array, ""]:
        """Return the time of a step of the descent."""
        return jnp.asarray(self._now.time_of_step())

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return two gradients for each evaluation and side, and a product for each check of an oscillation."""
        return (4 * evaluations, steps) if self.oscillates else (evaluations, jnp.zeros_like(steps))

    def work(self, state: CentreState, steps: Int[Array, ""]) -> tuple[Int[Array, ""] | None, Int[Array, ""]]:
        """Return the work in all, with a gradient for each step of the descent."""
        gradients, products = super().work(state, steps)
        return None if gradients is None else gradients + state.descent.taken, products

    def _swing(self, state: CentreState) -> PyTree:
        """Return the weights' part of v."""
        begun = (state.descent.left == 0).astype(state.descent.since.dtype)
        return vectors.scaled(begun, state.point.alternating.weights)


@MODELS.register("stable")
@DYNAMICS.register("stable")
class StableFlow(CentreFlow):
    """The flow τdz/dt = Φ(z) − z of weights and memory z, whose Euler steps of length τ are the descent z ← Φ(z).

    For gradient descent it is the gradient flow. It begins with the first steps of the descent as `flowsim.CentreFlow`
    does, and has no oscillation: beyond the edge of stability it goes on where the descent cannot follow it. Where a
    centre flow comes closer to a descent than this, the oscillation and the second order in τ make the difference.
    """

    oscillates: ClassVar[bool] = False


def _units(point: CentrePoint, least: Float[Array, ""]) -> Position:
    """Return in which units errors are measured, entry by entry: the root mean square of weights, and `least`.

    Of memory it is that of each array, both with what alternates; of one of squares it is the entries themselves, as a
    preconditioner divides by them.
    """
    centre, alternating = point.centre, point.alternating or jax.tree.map(jnp.zeros_like, point.centre)
    size = _root_mean_square(centre.weights) + _root_mean_square(alternating.weights) + least
    weights = jax.tree.map(lambda leaf: jnp.full_like(leaf, size), centre.weights)
    leaves, structure = jax.tree.flatten(centre.memory)
    sizes = _memory_sizes(centre) + _memory_sizes(alternating) + 1e-3 * point.sizes
    memory = []
    for leaf, size, squares in zip(leaves, sizes + jnp.finfo(sizes.dtype).tiny, point.squares, strict=True):
        memory.append(jnp.where(squares > 0, jnp.abs(leaf) + 1e-6 * size, size))
    return Position(weights, structure.unflatten(memory))


def _sizes(position: Position, units: Position) -> Float[Array, " parts"]:
    """Return the root mean squares in such units: of the weights, and of each array of the memory."""
    scaled = jax.tree.map(jnp.divide, position, units)
    return jnp.append(_memory_sizes(scaled), _root_mean_square(scaled.weights))


def _memory_sizes(position: Position) -> Float[Array, " arrays"]:
    leaves = jax.tree.leaves(position.memory)
    return jnp.array([_root_mean_square(leaf) for leaf in leaves], vectors.dtype_of(position.weights))


def _root_mean_square(part: PyTree) -> Float[Array, ""]:
    return norm(part) / vectors.size_of(part) ** 0.5
