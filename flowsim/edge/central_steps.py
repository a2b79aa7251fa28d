"""The steps of the central flow: along the edge, and up to where one more eigenvalue comes to it."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import vectors
from ..curvature.eigenpair import decomposition
from ..dynamics.flow import DescentModel
from ..dynamics.learning_rates import rate_and_slope
from ..solvers import Proposal, ProposingSolver
from ..solvers.extrapolation import believable_error, best_factor, extrapolation_weights
from ..solvers.field import GradientField, Measured, norm
from ..solvers.solver import Work, no_work
from ..solvers.step_control import ErrorScale
from .approach import Approach
from .central_curvature import CentralCurvature
from .central_edge import Face
from .central_field import CentralField, Edge, Reading, bends, column
from .central_onset import Growth
from .onset import least_amplitude


class CentralState(eqx.Module):
    """Where the solver is: what it measured there, the spectrum, X, and the curvature for the next step.

    Before the first look `known` is false, and what was measured is that of the gradient flow. `comes_down` says that
    the run began beyond the edge, and is not there yet, `slack` how far X is from losing rank. `largest` is the largest
    tr X so far, `switches` how often the number of eigenvalues at the edge changed, and `growth`, of order two alone,
    how far the oscillation has grown.
    """

    known: Bool[Array, ""]
    measured: Measured
    edge: Edge
    covariance: Float[Array, "m m"]
    curvature: CentralCurvature
    comes_down: Bool[Array, ""]
    gradient_norm: Float[Array, ""]
    slack: Float[Array, ""]
    largest: Float[Array, ""]
    approach: Approach
    switches: Int[Array, ""]
    growth: Growth
    spent: Work


class _Table(eqx.Module):
    """An extrapolation table in the making (`flowsim.solvers.LowRankExtrapolation`), as increments over y0.

    Row j takes j substeps; `ends` are where rows have got to, row `row` after so many substeps as are `taken`, and
    `errors[k]` the error estimates of order k; `rounded` says whether that of the last row may be rounding.
    """

    ends: PyTree
    row: Int[Array, ""]
    taken: Int[Array, ""]
    errors: Float[Array, " orders"]
    increment: PyTree
    rounded: Bool[Array, ""]

    @classmethod
    def begun(cls, first: Callable[[Float[Array, ""]], PyTree], h: Float[Array, ""], columns: int) -> "_Table":
        """Return the table in which each row has taken its `first` substep of a length, from y0."""
        lengths = h / jnp.arange(1, columns + 1, dtype=h.dtype)
        ends = jax.vmap(first)(lengths)
        unknown = jnp.full(columns + 1, jnp.inf, h.dtype)
        nothing = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), ends)
        return cls(ends, jnp.array(2), jnp.array(1), unknown, nothing, jnp.array(False))

    @property
    def point(self) -> PyTree:
        """Where the row has got to."""
        return vectors.row(self.ends, self.row - 1)

    @property
    def error(self) -> Float[Array, ""]:
        """The error estimate of the last row."""
        return self.errors[self.row]

    def further(self, moved: PyTree, scale: ErrorScale, counts: Bool[Array, ""]) -> tuple["_Table", Bool[Array, ""]]:
        """Return the table after a substep that `moved` the row, if it `counts`, and whether it is done.

        That is when the error estimate of the last row, in units of the `scale`, is below one or no longer falls.
        """
        taken, columns = self.taken + counts, len(self.errors) - 1
        moved = vectors.where(counts, moved, jax.tree.map(jnp.zeros_like, moved))
        ends = jax.tree.map(lambda leaf, new: leaf.at[self.row - 1].add(new), self.ends, moved)

        def complete() -> tuple:
            weights, differences = map(jnp.asarray, extrapolation_weights(columns))
            increment, difference = (vectors.combination(all[self.row], ends) for all in (weights, differences))
            size, rounded = believable_error(scale, increment, difference, self.errors, self.row)
            falls = (self.row < 4) | (size < self.errors[self.row - 1])
            done = ~((size > 1) & (self.row < columns) & falls)
            row = jnp.where(done, self.row, self.row + 1)
            return row, jnp.array(1), self.errors.at[self.row].set(size), increment, rounded, done

        def between() -> tuple:
            return self.row, taken, self.errors, self.increment, self.rounded, jnp.array(False)

        *rest, done = jax.lax.cond(counts & (taken == self.row), complete, between)
        return _Table(ends, *rest), done


class Phase(enum.IntEnum):
    """What a reading is for: a substep, the look around where a step ends, or the way back onto the edge from there."""

    SUBSTEP = 0
    LOOK = 1
    RETURN = 2
    ENDED = 3
    FAILED = 4


class _Round(eqx.Module):
    """A step in the making: the `point` that is read next, and what has been read there before."""

    phase: Int[Array, ""]
    point: PyTree
    table: _Table
    reading: Reading
    edge: Edge
    face: Face
    tries: Int[Array, ""]
    spent: Work


class CentralSteps(ProposingSolver):
    """Linearly implicit steps of the central flow on a gradient `field`, with up to `most` eigenvalues at the edge.

    `flow_order` is that of the central flow in η.

    A step is one of linearly implicit extrapolation, as of `LowRankExtrapolation`, for the eigenvalues that are at the
    edge where it begins. Where it ends, those whose part of X is positive are put back onto 2/η, along T. Others that
    fell below it are let go. A step that leads one more beyond 2/η is taken again, shorter, until it ends there.
    """

    field: GradientField
    model: DescentModel
    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    most: int = eqx.field(static=True)
    flow_order: int = eqx.field(static=True, default=1)
    met: float = eqx.field(static=True, default=1e-10)
    """How near to 2/η, in units of it, a step ends where the first eigenvalue comes to the edge,"""
    held: float = eqx.field(static=True, default=1e-9)
    """how near those end that are held there, at most,"""
    aimed: float = eqx.field(static=True, default=1e-11)
    """how near those are led back that are not: what is left departs further in the next step,"""
    left: float = eqx.field(static=True, default=1e-8)
    """and how far below it one no longer counts as at the edge."""
    joined: float = eqx.field(static=True, default=1e-5)
    """Where one is held already, the next has come when it is nearer than rtol, and this at most: the two repel each
    other, and their vectors turn the faster the nearer they are, so that steps with one alone held do not meet it
    exactly."""
    rank_met: float = eqx.field(static=True, default=0.05)
    """X that loses rank is led to where it has, to this part of √rtol of its size, and an oscillation to where it is
    large enough to hold an eigenvalue, to the same part in its logarithm."""
    off: float = eqx.field(static=True, default=10.0)
    """A departure from the edge larger than this, in units of rtol, is no error of a step."""
    most_returns: int = eqx.field(static=True, default=4)
    """Steps of Newton's method that lead back onto the edge, at most."""
    near: float = eqx.field(static=True, default=0.9)
    """Eigenvalues from this part of 2/η on are worth following."""
    overhead: float = eqx.field(static=True, default=8.0)
    """The price of a step beside its evaluations, in evaluations."""
    drift: Float[Array, ""] | None = None
    """η', where the learning rate changes in time."""
    scouts: int = eqx.field(static=True, default=16)
    """The dimension of the Krylov space in which a look around searches for all others."""

    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = diffrax.LocalLinearInterpolation

    def order(self, terms: Any) -> int:
        """Return the largest order: the number of columns of the extrapolation."""
        return 5 if self.rtol.dtype.itemsize < 8 else 8

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> CentralState:
        """Return the state before the first step: the spectrum is not known, and no eigenvalue is held."""
        edge = Edge.unknown(y0, self.most, scouts=self.scouts)
        room = edge.room(self.most)
        objective, gradient = jax.value_and_grad(self.field.objective)(y0)
        zero = jnp.zeros_like(objective)
        return CentralState(
            known=jnp.array(False),
            measured=Measured(jax.tree.map(jnp.negative, gradient), objective),
            edge=edge,
            covariance=jnp.zeros((room, room), objective.dtype),
            curvature=CentralCurvature.none(
                y0, len(edge.curvatures), room * (room + 1) // 2, self.at(t0).model.learning_rate
            ),
            comes_down=jnp.array(True),
            gradient_norm=norm(gradient),
            slack=zero,
            largest=zero,
            approach=Approach.none(jnp.stack([zero, zero]), zero),
            switches=jnp.array(0),
            growth=Growth.unknown(zero),
            spent=Work(jnp.array(1), jnp.array(0)),
        )

    def at(self, time: Any) -> "CentralSteps":
        """Return the solver at a time, the learning rate of its model a number."""
        if not self.model.is_scheduled():
            return self
        eta, slope = rate_and_slope(self.model.learning_rate, time)
        model = dataclasses.replace(self.model, learning_rate=eta)
        return dataclasses.replace(self, model=model, drift=slope)

    @property
    def edge_value(self) -> Float[Array, ""]:
        """2/η."""
        return 2 / self.model.learning_rate

    def work(self, solver_state: CentralState) -> Work:
        """Return the work of all steps so far."""
        return solver_state.spent

    def measured(self, solver_state: CentralState) -> Measured:
        """Return the field and the objective where the solver is."""
        return solver_state.measured

    def after_rejection(self, before: CentralState, after: CentralState) -> CentralState:
        """Return what has been learned, at the point from where the step went; all of the first look."""
        learned = dataclasses.replace(before, approach=after.approach, spent=after.spent)
        return jax.tree.map(lambda old, new: jnp.where(before.known, old, new), learned, after)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: CentralState, made_jump: Any
    ) -> tuple:
        """Take one step, or the part of it after which other eigenvalues are at the edge.

        The first is none: it looks around, and is rejected. So a program holds what reads the field at the end of a
        step once, and not a second time for the point where it begins.
        """
        state = solver_state
        h = jnp.where(state.known, t1 - t0, 0)
        first, last = self.at(t0), self.at(t0 + h)
        end = self._end(y0, t0, h, state)
        state = dataclasses.replace(state, spent=state.spent + end.spent)
        ended = end.phase == Phase.ENDED
        comes, slack = end.reading.comes, end.reading.slack
        begin, signals, met = first._signals(
            last.edge_value, state, end.reading.excess, jnp.where(comes > 0, jnp.inf, slack), end.reading.growth
        )
        long = ended & state.known & state.approach.passed(signals, met)
        after, crowded = last._there(end, state, ended & ~long)
        shorter, again = state.approach.shortened(h, begin, signals)
        onward, free = state.approach.onward(h, signals, met)
        approach = jax.tree.map(lambda a, b: jnp.where(long, a, b), again, free)
        approach = jax.tree.map(lambda new, old: jnp.where(ended, new, old), approach, state.approach)
        length = jnp.where(long, shorter, jnp.where(state.known, onward, h))
        aimed = ended & (long | (onward > 0)) | ~state.known
        size = jnp.where(long | ~state.known, 2.0, end.table.error)
        factor = jnp.where(state.known, length / h, 1.0)
        factor = jnp.where(aimed, factor, best_factor(end.table.errors, end.table.row, self.overhead))
        proposal = Proposal(size, factor, aimed=aimed, rounded=end.table.rounded)
        result = diffrax.RESULTS.where(crowded, diffrax.RESULTS.internal_error, diffrax.RESULTS.successful)
        state = dataclasses.replace(after, approach=approach)
        return end.point, proposal, {"y0": y0, "y1": end.point}, state, result

    def _end(self, y0: PyTree, t0: Any, h: Float[Array, ""], state: CentralState) -> _Round:
        """Return where a step ends, or fails. Whatever reads the field is a round of one loop."""
        field, curvature, edge_value = self._field(state, t0, h), state.curvature, self.at(t0 + h).edge_value
        far = jnp.where(state.comes_down | self._waits(state), self.off * self.rtol, jnp.inf)
        far = jnp.where(state.known, far, 0) * edge_value
        near = _resolved(self.aimed, self.aimed, h.dtype) * edge_value

        def along(length: Float[Array, ""], slope: PyTree) -> PyTree:
            return vectors.scaled(length, curvature.resolvent(length, slope))

        tangent = vectors.scaled(h, state.measured.slope)
        scale = ErrorScale.of(y0, tangent, self.rtol, self.atol)

        def read(now: _Round) -> _Round:
            look, ends = now.phase == Phase.LOOK, now.phase >= Phase.LOOK
            here = self.at(t0 + jnp.where(ends, h, now.table.taken * h / now.table.row))
            there = dataclasses.replace(field, model=here.model, drift=here.drift)
            reading, edge, products = there.reading(now.point, now.edge, look=look, ends=ends)
            seen = ((one.excess, one.comes, one.growth) for one in (reading, now.reading))
            excess, comes, growth = jax.tree.map(lambda new, old: jnp.where(look, new, old), *seen)
            # Extrapolation multiplies what is not smooth in the field: all substeps begin with the same vectors.
            known = (edge.vectors, edge.values), (now.edge.vectors, now.edge.values)
            known = vectors.where(ends, *known)
            reading = dataclasses.replace(reading, excess=excess, comes=comes, growth=growth)
            spent = now.spent + Work(jnp.array(1), products)
            table, done = now.table.further(along(h / now.table.row, reading.slope), scale, ~ends)
            done = jnp.where(done, jnp.where(table.error <= 1, Phase.LOOK, Phase.FAILED), Phase.SUBSTEP)
            face = jax.lax.cond(ends, lambda: Face.of(reading, edge, edge_value), lambda: now.face)
            again = (face.departure > near) & (face.departure < far) & (now.tries < self.most_returns)
            returned = vectors.combination(jnp.where(again, face.way_back, 0), reading.tangents)
            stepped = jax.tree.map(jnp.add, y0, vectors.where(done == Phase.SUBSTEP, table.point, table.increment))
            return _Round(
                phase=jnp.where(ends, jnp.where(again, Phase.RETURN, Phase.ENDED), done),
                point=vectors.where(ends, jax.tree.map(jnp.add, now.point, returned), stepped),
                table=table,
                reading=reading,
                edge=dataclasses.replace(edge, vectors=known[0], values=known[1]),
                face=face,
                tries=now.tries + ends,
                spent=spent,
            )

        nothing = Reading.none(y0, state.edge, state.edge.room(self.most))
        table = _Table.begun(lambda length: along(length, state.measured.slope), h, self.order(None))
        begin = _Round(
            phase=jnp.where(state.known, Phase.SUBSTEP, Phase.LOOK),
            point=jax.tree.map(jnp.add, y0, table.point),
            table=table,
            reading=nothing,
            edge=state.edge,
            face=Face.none(nothing),
            tries=jnp.array(0),
            spent=no_work(),
        )
        return jax.lax.while_loop(lambda now: now.phase < Phase.ENDED, read, begin)

    @property
    def _kink_met(self) -> Float[Array, ""]:
        return self.rank_met * jnp.sqrt(self.rtol)

    def _met(self, active: Int[Array, ""]) -> Float[Array, ""]:
        """Return the part of 2/η by which the next eigenvalue may miss it that comes where so many are `active`."""
        alone = self._part(self.met)
        return jnp.where(active > 0, jnp.clip(self.rtol, alone, max(self.joined, alone)), alone)

    def _signals(
        self,
        ends_at: Float[Array, ""],
        state: CentralState,
        excess: Float[Array, ""],
        slack: Float[Array, ""],
        growth: Growth,
    ) -> tuple[Float[Array, " events"], Float[Array, " events"], Float[Array, " events"]]:
        """Return what passes zero where an eigenvalue comes, and where X loses rank, at the begin and end of a step.

        Where it ends, the edge is at the curvature `ends_at`. The third are the sizes at which they count as zero. X is
        led a little beyond, so that no step begins before.
        """
        index = jnp.arange(len(state.edge.values))
        there = jnp.max(jnp.where(index >= state.edge.active, state.edge.values, -jnp.inf)) - self.edge_value
        waits = self._waits(state)
        met = jnp.stack([jnp.where(waits, self._kink_met, self._met(state.edge.active)), self._kink_met])
        unit = jnp.maximum(jnp.trace(state.covariance), jnp.sqrt(self.rtol) * state.largest)
        unit = jnp.where((state.slack > 0) & (unit > 0), unit, jnp.inf)
        comes = jnp.where(waits, -state.growth.missing, jnp.minimum(there, 0) / self.edge_value)
        begin = jnp.stack([comes, -state.slack / unit])
        end = jnp.stack(
            [
                jnp.where(waits, -growth.missing, excess / ends_at),
                jnp.where(jnp.isinf(unit), -jnp.inf, -slack / unit),
            ]
        )
        beyond = jnp.stack([jnp.zeros_like(slack), met[1]])
        return begin - beyond, end - beyond, met

    def _there(self, end: _Round, state: CentralState, kept: Bool[Array, ""]) -> tuple[CentralState, Array]:
        """Return the state at the end of a step that is `kept`, and whether too many eigenvalues are at the edge."""
        edge, reading, face = end.edge, end.reading, end.face
        count, index = edge.active, jnp.arange(len(edge.values))
        left = jnp.maximum(self._part(self.left), 2 * self._met(count - 1))
        held = (edge.values >= (1 - left) * self.edge_value) | (index < face.rank)
        active = jnp.sum(held & (index < count))

        def curvature() -> CentralCurvature:
            rates = jnp.maximum(edge.curvatures, 0)
            rates = rates if self.flow_order == 1 else rates * (1 + self.model.learning_rate / 2 * rates)
            roots = jnp.sqrt(rates)
            own = jax.tree.map(lambda leaf: column(roots, leaf) * leaf, edge.ritz)
            rows = jax.tree.map(lambda *both: jnp.concatenate(both), own, bends(reading, edge, self.edge_value))
            normals = vectors.combination(face.normals, reading.tangents)
            return CentralCurvature.of(rows, normals, len(roots), self.model.learning_rate)

        state = dataclasses.replace(
            state,
            known=jnp.array(True),
            measured=Measured(reading.slope, reading.objective),
            edge=eqx.tree_at(lambda e: e.active, edge, active),
            covariance=reading.covariance,
            curvature=jax.lax.cond(kept, curvature, lambda: state.curvature),
            comes_down=(state.comes_down | self._waits(state))
            & (face.departure > self.off * self.rtol * self.edge_value),
            switches=state.switches + ((active != state.edge.active) & state.known),
            growth=self._growth(end, state, active) if self.flow_order > 1 else state.growth,
            gradient_norm=reading.gradient_norm,
            slack=reading.slack,
            largest=jnp.maximum(state.largest, jnp.trace(reading.covariance)),
        )
        return state, kept & (active > self.most)

    def _growth(self, end: _Round, state: CentralState, active: Int[Array, ""]) -> Growth:
        """Return how far an oscillation has grown where a step ends: where X holds an eigenvalue, to the size of X.

        There all that it began with is used up, down to rounding. X vanishes as it lets go, and the oscillation goes on
        from what it was in this step.
        """
        first = vectors.row(end.edge.vectors, 0)
        rounding = jnp.log(least_amplitude(end.point, first))
        largest = [jnp.max(decomposition(covariance)[0]) for covariance in (end.reading.covariance, state.covariance)]
        held = jnp.maximum(jnp.log(jnp.maximum(*largest)) / 2, rounding)
        factor = self.model.learning_rate * end.edge.values[0] - 1
        known, still = end.reading.growth, jnp.zeros_like(factor)
        held = Growth(held, rounding, factor, still, known.missing)
        return vectors.where((active > 0) | (state.edge.active > 0), held, known)

    def _waits(self, state: CentralState) -> Bool[Array, ""]:
        """Tell whether an eigenvalue that comes to the edge is held no sooner than its oscillation has grown."""
        return state.known & (state.edge.active == 0) & (self.flow_order > 1)

    def _field(self, state: CentralState, t0: Any, h: Float[Array, ""]) -> CentralField:
        edge, model = state.edge, self.at(t0).model
        relaxation = model.learning_rate
        options = {"near": self.near, "scouts": self.scouts, "order": self.flow_order}
        options |= {"growth": state.growth, "steps": self._steps_in(t0, h)}
        options |= {"waits": self._waits(state), "missed": self._kink_met}
        rtol = jnp.maximum(1e-3 * self.rtol, 32 * jnp.finfo(relaxation.dtype).eps)
        met = self._met(edge.active)
        return CentralField(self.field, model, relaxation, rtol, met, edge, self.most, **options)

    def _steps_in(self, t0: Any, h: Float[Array, ""]) -> Float[Array, ""]:
        """Return the steps of descent in a time, ∫ (1 + η'/2)/η dt, by Simpson's rule where η changes."""
        if not self.model.is_scheduled():
            return h / self.model.learning_rate
        eta, slope = jax.vmap(lambda part: rate_and_slope(self.model.learning_rate, t0 + part * h))(
            jnp.array([0, 0.5, 1], h.dtype)
        )
        return h * jnp.sum(jnp.array([1, 4, 1], h.dtype) / 6 * (1 + slope / 2) / eta)

    def _part(self, part: float) -> float:
        return _resolved(part, self.met, self.rtol.dtype)


def held_within(dtype: jnp.dtype) -> float:
    """Return the part of 2/η by which an eigenvalue may end a step away from it while it is held there."""
    return _resolved(CentralSteps.held, CentralSteps.met, dtype)


def _resolved(part: float, finest: float, dtype: jnp.dtype) -> float:
    """Return a part of 2/η that a precision can resolve: the `finest` is 64 units in the last place at least."""
    return max(part, part / finest * 64 * float(jnp.finfo(dtype).eps))
