"""The steps of the central flow: along the edge, and up to where one more eigenvalue comes to it."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..solvers import LowRankExtrapolation, Proposal, ProposingSolver
from ..solvers.field import GradientField, Measured, norm
from ..solvers.solver import Work, no_work
from .central_edge import Face, edge_unknown, empty_rows, overlaps, projected, spectrum, with_vectors
from .central_field import CentralCurvature, CentralField, Edge, Reading


class Approach(eqx.Module):
    """The last step from here that went past an event: its `length`, the `signals` at its end, and which try it was.

    `ordinary` is the length of steps before they were shortened, zero where they were not.
    """

    length: Float[Array, ""]
    signals: Float[Array, " events"]
    tries: Int[Array, ""]
    ordinary: Float[Array, ""]

    @classmethod
    def none(cls, begin: Float[Array, " events"], ordinary: Float[Array, ""]) -> "Approach":
        """Return that no step went too far."""
        far = jnp.full_like(ordinary, jnp.inf)
        return cls(far, jnp.full_like(begin, jnp.inf), jnp.array(0), ordinary)

    def passed(
        self, end: Float[Array, " events"], met: Float[Array, " events"], *, most_tries: int = 12
    ) -> Bool[Array, ""]:
        """Tell whether a step that ends with these signals went past an event by more than is `met`.

        For one event a step is shortened up to `most_tries` times; what jumps past it is not met.
        """
        return jnp.any(end > met) & (self.tries < most_tries)

    def shortened(
        self, h: Float[Array, ""], begin: Float[Array, " events"], end: Float[Array, " events"]
    ) -> tuple[Float[Array, ""], "Approach"]:
        """Return the length at which, by a secant, the first signal is zero, and what is known then."""
        again = jnp.isfinite(self.length) & jnp.isfinite(self.signals) & (self.signals != end)
        length, value = jnp.where(again, self.length, 0), jnp.where(again, self.signals, begin)
        guess = h - end * (h - length) / jnp.where(end > value, end - value, jnp.where(end < value, end - value, 1))
        guess = jnp.where((guess > 0) & (guess < h), guess, h / 2)
        first = jnp.min(jnp.where(end > 0, guess, h))
        return first, Approach(h, end, self.tries + 1, jnp.maximum(self.ordinary, h))

    def onward(
        self, h: Float[Array, ""], end: Float[Array, " events"], met: Float[Array, " events"]
    ) -> tuple[Float[Array, ""], "Approach"]:
        """Return the length of the step after one that is kept, zero where the solver is free, and what is known then.

        At an event steps are as long again as they were; just before it, the next one leads there.
        """
        there = jnp.any(jnp.abs(end) <= met)
        rate = (self.signals - end) / (self.length - h)
        ahead = jnp.isfinite(self.signals) & (self.signals > 0) & (rate > 0) & (end < 0)
        left = jnp.min(jnp.where(ahead, -end / jnp.where(ahead, rate, 1), jnp.inf))
        left = jnp.where(jnp.isfinite(self.length) & jnp.isfinite(left), left, 0)
        length = jnp.where(there, self.ordinary, left)
        return length, Approach.none(end, jnp.where(there, 0, self.ordinary))


class CentralState(eqx.Module):
    """Where the solver is: what it measured there, the spectrum, X, the normals of the edge and what bends it.

    Before the first look `known` is false, and what was measured is that of the gradient flow. `comes_down` says that
    the run began beyond the edge, and is not there yet, `slack` how far X is from losing rank. `largest` is the largest
    tr X so far, `switches` how often the number of eigenvalues at the edge changed.
    """

    known: Bool[Array, ""]
    measured: Measured
    edge: Edge
    covariance: Float[Array, "m m"]
    normals: PyTree
    bends: PyTree
    comes_down: Bool[Array, ""]
    gradient_norm: Float[Array, ""]
    slack: Float[Array, ""]
    largest: Float[Array, ""]
    approach: Approach
    switches: Int[Array, ""]
    inner: Any
    spent: Work


class CentralSteps(ProposingSolver):
    """Linearly implicit steps of the central flow on a gradient `field`, with up to `most` eigenvalues at the edge.

    A step is one of `LowRankExtrapolation` for the eigenvalues that are at the edge where it begins. Where it ends,
    those whose part of X is positive are put back onto 2/η, along T. Others that fell below it are let go. A step that
    leads one more beyond 2/η is taken again, shorter, until it ends there.
    """

    field: GradientField
    learning_rate: Float[Array, ""]
    rtol: Float[Array, ""]
    atol: Float[Array, ""]
    most: int = eqx.field(static=True)
    met: float = eqx.field(static=True, default=1e-10)
    """How near to 2/η, in units of it, a step ends where the first eigenvalue comes to the edge,"""
    held: float = eqx.field(static=True, default=1e-9)
    """how near those end that are held there,"""
    left: float = eqx.field(static=True, default=1e-8)
    """and how far below it one no longer counts as at the edge."""
    joined: float = eqx.field(static=True, default=1e-5)
    """Where one is held already, the next has come when it is nearer than rtol, and this at most: the two repel each
    other, and their vectors turn the faster the nearer they are, so that steps with one alone held do not meet it
    exactly."""
    rank_met: float = eqx.field(static=True, default=0.05)
    """X that loses rank is led to where it has, to this part of √rtol of its size."""
    off: float = eqx.field(static=True, default=10.0)
    """A departure from the edge larger than this, in units of rtol, is no error of a step."""

    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = diffrax.LocalLinearInterpolation

    def order(self, terms: Any) -> int:
        """Return the largest order: the number of columns of the extrapolation."""
        return 5 if self.rtol.dtype.itemsize < 8 else 8

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> CentralState:
        """Return the state before the first step: the spectrum is not known, and no eigenvalue is held."""
        edge = edge_unknown(y0, self.most)
        room = edge.room(self.most)
        normals, bends = empty_rows(y0, room * (room + 1) // 2), empty_rows(y0, room * len(edge.values))
        objective, gradient = jax.value_and_grad(self.field.objective)(y0)
        measured, zero = Measured(jax.tree.map(jnp.negative, gradient), objective), jnp.zeros_like(objective)
        return CentralState(
            known=jnp.array(False),
            measured=measured,
            edge=edge,
            covariance=jnp.zeros((room, room), objective.dtype),
            normals=normals,
            bends=bends,
            comes_down=jnp.array(True),
            gradient_norm=norm(gradient),
            slack=zero,
            largest=zero,
            approach=Approach.none(jnp.stack([zero, zero]), zero),
            switches=jnp.array(0),
            inner=self._inner(self._field(edge, normals, bends)).beginning(y0, measured),
            spent=Work(jnp.array(1), jnp.array(0)),
        )

    @property
    def edge_value(self) -> Float[Array, ""]:
        """2/η."""
        return 2 / self.learning_rate

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
        field = self._field(state.edge, state.normals, state.bends)
        inner = dataclasses.replace(state.inner, measured=state.measured, work=no_work())
        y1, proposal, _, inner, _ = self._inner(field).step(terms, t0, t0 + h, y0, args, inner, made_jump)
        # The evaluation at the end is made below, where the end is known.
        spent = state.spent + inner.work + Work(jnp.array(-1), jnp.array(0))
        state = dataclasses.replace(state, inner=dataclasses.replace(inner, measured=state.measured), spent=spent)

        def ended() -> tuple:
            end = jax.tree.map(lambda new, old: jnp.where(state.known, new, old), y1, y0)
            return self._ended(field, end, h, proposal, state)

        def failed() -> tuple:
            return y1, proposal, state, jnp.array(False)

        y1, proposal, state, crowded = jax.lax.cond((proposal.size <= 1) | ~state.known, ended, failed)
        result = diffrax.RESULTS.where(crowded, diffrax.RESULTS.internal_error, diffrax.RESULTS.successful)
        return y1, proposal, {"y0": y0, "y1": y1}, state, result

    def _ended(
        self, field: CentralField, y1: PyTree, h: Float[Array, ""], proposal: Proposal, state: CentralState
    ) -> tuple:
        """Return where a good step ends, what to do next, and the state there."""
        edge, products = spectrum(field, y1)
        excess, comes = self._newcomers(edge, state.edge)
        count = state.edge.active + comes
        edge = eqx.tree_at(lambda e: e.active, edge, count)
        far = jnp.where(state.known, jnp.where(state.comes_down, self.off * self.rtol, jnp.inf), 0)
        bounds = self._part(self.held) * self.edge_value, far * self.edge_value
        y, reading, spent = projected(field, y1, edge, bounds)
        state = dataclasses.replace(state, spent=state.spent + spent + Work(jnp.array(0), products))
        begin, end, met = self._signals(state, excess, jnp.where(comes > 0, jnp.inf, reading.slack))

        def too_long() -> tuple:
            length, approach = state.approach.shortened(h, begin, end)
            again = Proposal(jnp.full_like(h, 2.0), length / h, aimed=True)
            return y1, again, dataclasses.replace(state, approach=approach), jnp.array(False)

        def kept() -> tuple:
            bends, passes = eqx.tree_at(lambda f: f.edge, field, edge).bends(y, reading, count)
            after, crowded = self._there(edge, reading, dataclasses.replace(state, bends=bends), passes)
            length, approach = state.approach.onward(h, end, met)
            aimed = length > 0
            onward = Proposal(proposal.size, jnp.where(aimed, length / h, proposal.factor), aimed=aimed)
            again = Proposal(jnp.full_like(h, 2.0), jnp.ones_like(h), aimed=True)
            onward = jax.tree.map(lambda new, same: jnp.where(state.known, new, same), onward, again)
            return y, onward, dataclasses.replace(after, approach=approach), crowded

        return jax.lax.cond(state.approach.passed(end, met) & state.known, too_long, kept)

    def _newcomers(self, edge: Edge, before: Edge) -> tuple[Float[Array, ""], Int[Array, ""]]:
        """Return by how much the largest eigenvalue that was not held is beyond the edge, and how many are at it."""
        count = len(edge.values)
        own = jnp.where(jnp.arange(count) < edge.near, overlaps(edge.vectors, before.vectors, before.active), -1)
        rank = jnp.argsort(jnp.argsort(-own))
        free = jnp.where((rank >= before.active) & (jnp.arange(count) < edge.near), edge.values, -jnp.inf)
        excess = jnp.max(free) - self.edge_value
        return excess, jnp.sum(free >= (1 - self._met(before.active)) * self.edge_value)

    def _met(self, active: Int[Array, ""]) -> Float[Array, ""]:
        """Return the part of 2/η by which the next eigenvalue may miss it that comes where so many are `active`."""
        alone = self._part(self.met)
        return jnp.where(active > 0, jnp.clip(self.rtol, alone, max(self.joined, alone)), alone)

    def _signals(
        self, state: CentralState, excess: Float[Array, ""], slack: Float[Array, ""]
    ) -> tuple[Float[Array, " events"], Float[Array, " events"], Float[Array, " events"]]:
        """Return what passes zero where an eigenvalue comes, and where X loses rank, at the begin and end of a step.

        The third are the sizes at which they count as zero. X is led a little beyond, so that no step begins before.
        """
        index = jnp.arange(len(state.edge.values))
        there = jnp.max(jnp.where(index >= state.edge.active, state.edge.values, -jnp.inf)) - self.edge_value
        met = jnp.stack([self._met(state.edge.active), self.rank_met * jnp.sqrt(self.rtol)])
        unit = jnp.maximum(jnp.trace(state.covariance), jnp.sqrt(self.rtol) * state.largest)
        unit = jnp.where((state.slack > 0) & (unit > 0), unit, jnp.inf)
        begin = jnp.stack([jnp.minimum(there, 0) / self.edge_value, -state.slack / unit])
        end = jnp.stack([excess / self.edge_value, jnp.where(jnp.isinf(unit), -jnp.inf, -slack / unit)])
        beyond = jnp.stack([jnp.zeros_like(slack), met[1]])
        return begin - beyond, end - beyond, met

    def _there(
        self, edge: Edge, reading: Reading, state: CentralState, passes: Int[Array, ""]
    ) -> tuple[CentralState, Array]:
        """Return the state at a point of which all is known, and whether too many eigenvalues are at the edge."""
        count, index = edge.active, jnp.arange(len(edge.values))
        face = Face.of(reading, count, self.edge_value)
        left = jnp.maximum(self._part(self.left), 2 * self._met(count - 1))
        held = (reading.values >= (1 - left) * self.edge_value) | (index < face.rank)
        active = jnp.sum(held & (index < count))
        crowded = active > self.most
        far = jnp.max(jnp.abs(face.departure), initial=0) > self.off * self.rtol * self.edge_value
        edge = with_vectors(eqx.tree_at(lambda e: e.active, edge, active), reading)
        state = dataclasses.replace(
            state,
            known=jnp.array(True),
            measured=Measured(reading.slope, reading.objective),
            edge=edge,
            covariance=reading.covariance,
            normals=face.normals(),
            comes_down=state.comes_down & far,
            switches=state.switches + ((active != state.edge.active) & state.known),
            gradient_norm=reading.gradient_norm,
            slack=reading.slack,
            largest=jnp.maximum(state.largest, jnp.trace(reading.covariance)),
            spent=state.spent + Work(jnp.array(0), passes),
        )
        return state, crowded

    def _field(self, edge: Edge, normals: PyTree, bends: PyTree) -> CentralField:
        relaxation = self.learning_rate
        curvature = CentralCurvature(edge.rows, normals, bends, relaxation)
        finest = 32 * jnp.finfo(relaxation.dtype).eps
        rtol = jnp.maximum(1e-3 * self.rtol, finest)
        return CentralField(self.field, self.learning_rate, relaxation, rtol, edge, curvature, self.most)

    def _inner(self, field: CentralField) -> LowRankExtrapolation:
        return LowRankExtrapolation(
            curvature=lambda _: field.curvature,  # pyright: ignore[reportArgumentType]
            rtol=self.rtol,
            atol=self.atol,
            columns=self.order(None),
            followed=0,
            overhead=8.0,
            frozen_up_to=float("inf"),
            measure=lambda y: Measured(y, jnp.zeros_like(self.learning_rate)),
            counted=field.counted,
        )

    def _part(self, part: float) -> float:
        return _resolved(part, self.met, self.learning_rate.dtype)


def held_within(dtype: jnp.dtype) -> float:
    """Return the part of 2/η by which an eigenvalue may end a step away from it while it is held there."""
    return _resolved(CentralSteps.held, CentralSteps.met, dtype)


def _resolved(part: float, finest: float, dtype: jnp.dtype) -> float:
    """Return a part of 2/η that a precision can resolve: the `finest` is 64 units in the last place at least."""
    return max(part, part / finest * 64 * float(jnp.finfo(dtype).eps))
