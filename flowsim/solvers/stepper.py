"""A Diffrax solver and its step-size controller, taken one step at a time.

The loop around it is `dynamics.loop` and not `diffrax.diffeqsolve`, for five reasons. Every step counts from time zero:
on one clock, steps at the end of a plateau that lasts longer than 1/ε would be lost. Records are spread over what
happens, and a step that a record cuts short must not shorten the ones after it. The termination check sees objective,
gradient and change of the weights together. A run is a state that can be left and taken up again, bit for bit, between
any two steps: for interrupts, checkpoints and progress. And descents and flows other than this one, whose steps no ODE
solver takes, go through the same loop.
"""

from dataclasses import replace
from typing import cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from .field import Measured, VectorField, norm
from .solver import CountsWork, ProposingSolver, Work, no_work


class Smoothness(eqx.Module):
    """By how much the tolerance is loosened as the field jumps, as the gradient of a ReLU network does.

    At a jump the error of a step falls like its length, whatever the order of the method: an adaptive method grinds its
    steps to the tolerance and gains nothing. One sign of it is a step that is tried again, shorter, with an error that
    fell so slowly; another a step that its solver calls rough: with many jumps ahead, or in a valley along one that the
    steps cross one after the other, errors stay the same. Where signs accumulate, the tolerance is multiplied by a
    `slack` that rises until they end, up to a relative tolerance of 3·10⁻⁴, and falls slowly in between; `most` is the
    largest so far, one for a smooth field.
    `size` and `length` are those of the attempt before if it was rejected, else zero.
    """

    slack: Float[Array, ""]
    most: Float[Array, ""]
    signs: Float[Array, ""]
    size: Float[Array, ""]
    length: Float[Array, ""]
    coarsest: float = eqx.field(static=True, default=3e-4)
    """The relative tolerance up to which it is loosened."""
    looser: float = eqx.field(static=True, default=4.0)
    tighter: float = eqx.field(static=True, default=0.995)
    """The factors to the slack at a jump and after a smooth step."""
    lowest_order: float = eqx.field(static=True, default=1.5)
    """An error that falls more slowly is that of a jump, of order one; the methods here are of order two at least."""
    too_many: float = eqx.field(static=True, default=1.5)
    kept: float = eqx.field(static=True, default=0.9)
    """More signs than `too_many` loosen the tolerance; each is forgotten over some ten steps."""
    slow_counts: float = eqx.field(static=True, default=0.25)
    rough_counts: float = eqx.field(static=True, default=0.4)
    """A step that is only slow counts little, as with the Huber loss the derivative of f alone may jump."""

    def after(
        self,
        size: Float[Array, ""],
        length: Float[Array, ""],
        distance: Float[Array, ""],
        kept: Bool[Array, ""],
        rtol: Float[Array, ""],
        *,
        rough: ArrayLike,
    ) -> "Smoothness":
        """Return what is known after an attempt with an error of a `size` in units of the tolerance.

        `distance` is how far the step goes, relative to the weights. Where that is less than the tolerance, near a
        limit, rounding may make up what is taken for its error.
        """
        again = (distance > rtol) & (self.length > length) & jnp.isfinite(size) & jnp.isfinite(self.size)
        fall, shortening = self.size / size, self.length / length
        slow, rough = again & (fall < shortening**self.lowest_order), (distance > rtol) & rough
        sign = slow | rough
        weight = jnp.where(slow, jnp.where(rough, 1, self.slow_counts), jnp.where(rough, self.rough_counts, 0))
        signs = jnp.where(kept, self.kept, 1) * self.signs + weight
        looser = jnp.minimum(self.looser * self.slack, jnp.maximum(self.coarsest / rtol, 1))
        slack = jnp.where(sign & (signs > self.too_many), looser, jnp.where(kept, self.tighter, 1) * self.slack)
        slack = jnp.maximum(slack, 1)
        size, length = (jnp.where(kept, 0, number).astype(slack.dtype) for number in (size, length))
        return replace(self, slack=slack, most=jnp.maximum(self.most, slack), signs=signs, size=size, length=length)


class Rounding(eqx.Module):
    """The absolute error, as a `share` of the root mean square of the weights, that is rounding of the field.

    A weight that symmetry holds at zero moves by rounding alone, and no step is exact beside that. Its error is as
    large a part of its increment in every step, however short, where that of any smooth motion falls at least like the
    length. So where an attempt is tried again, shorter, with an error that may be rounding and has not fallen in units
    of the tolerance, the share is ε, and ten times as much at each further sign of this kind, up to `most` times rtol.
    It only rises, as what is rounding stays so. `size` and `length` are those of the attempt before if it was rejected,
    else zero.
    """

    share: Float[Array, ""]
    size: Float[Array, ""]
    length: Float[Array, ""]
    most: float = eqx.field(static=True, default=1e-3)

    def after(
        self,
        size: Float[Array, ""],
        length: Float[Array, ""],
        kept: Bool[Array, ""],
        rtol: Float[Array, ""],
        *,
        rounded: Bool[Array, ""],
    ) -> "Rounding":
        """Return what is known after an attempt with an error of a `size` in units of the tolerance."""
        stays = rounded & jnp.isfinite(self.size) & (size > 0.5 * self.size) & (length < 0.6 * self.length) & ~kept
        more = jnp.maximum(10 * self.share, float(jnp.finfo(size.dtype).eps))
        share = jnp.where(stays, jnp.minimum(more, jnp.maximum(self.most * rtol, self.share)), self.share)
        size, length = (jnp.where(kept, 0, number).astype(share.dtype) for number in (size, length))
        return replace(self, share=share, size=size, length=length)


LASTING = 10
"""So many steps in a row are no accident of rounding."""


class StepperState(eqx.Module):
    """What the next step starts from, and what all steps so far have cost.

    `name` is that of the solver; `counted` says whether its gradients are known: not for Diffrax's implicit solvers.
    `measures` says that it holds the gradient where it is, and `blank` that it does so from the first attempt on.
    `largest` is the largest root mean square of the weights so far, and `growing` for how many steps in a row, none
    longer than the one before, each entry has grown, up to `LASTING`.
    `regime` tells which of two kinds of steps comes next, and `only` for which of them this program is made; `None`
    where there is one kind, and for both.
    """

    solver: PyTree
    controller: PyTree
    smoothness: Smoothness
    rounding: Rounding
    wanted: Float[Array, ""]
    largest: Float[Array, ""]
    growing: PyTree
    work: Work
    regime: Bool[Array, ""] | None
    name: str = eqx.field(static=True)
    counted: bool = eqx.field(static=True)
    measures: bool = eqx.field(static=True)
    blank: bool = eqx.field(static=True)
    only: bool | None = eqx.field(static=True, default=None)


class TriedStep(eqx.Module):
    """The outcome of one attempted step: whether it is `kept`, where it leads, and whether the solver is `okay`."""

    kept: Bool[Array, ""]
    okay: Bool[Array, ""]
    cut: Bool[Array, ""]
    length: Float[Array, ""]
    point: PyTree
    state: StepperState


class Stepper(eqx.Module):
    """A solver and a step-size controller.

    The field does not depend on time, so every step counts from zero: on one clock, the step at the end of a plateau
    that lasts longer than the inverse of the unit roundoff would be lost.
    """

    solver: diffrax.AbstractAdaptiveSolver
    controller: diffrax.AbstractAdaptiveStepSizeController

    def init(self, field: VectorField, point: PyTree) -> StepperState:
        """Return the state before the first attempt.

        Raises `TypeError` for a solver that was filled in for another field.
        """
        measures = getattr(getattr(self.solver, "measure", None), "__self__", field)
        if type(measures) is not type(field):
            raise TypeError(
                f"{type(self.solver).__name__} was filled in for a {type(measures).__name__} and would not step along "
                f"this {type(field).__name__}: fill it in for that, or pass a solver of Diffrax's"
            )
        term, zero = diffrax.ODETerm(field), jnp.zeros((), jax.tree.leaves(point)[0].dtype)
        one = jnp.ones_like(zero)
        proposing = self.solver if isinstance(self.solver, ProposingSolver) else None
        solver = None if proposing is None else proposing.blank(point)
        blank = solver is not None
        if not blank:
            solver = self.solver.init(term, zero, one, point, None)
        known = self.measured(solver)
        # Diffrax's guess divides by the tolerance of weights that may be zero.
        guess = first_length(point, field(zero, point, None)) if known is None else zero
        first, controller = self.controller.init(
            term, zero, jnp.full_like(zero, jnp.inf), point, guess, None, self.solver.func, self.solver.order(term)
        )
        first = jnp.asarray(first, zero.dtype)
        # Diffrax begins with numbers of Python's, and goes on with arrays: a state that comes back must look the same.
        solver, controller = jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if eqx.is_array_like(leaf) else leaf, (solver, controller)
        )
        counted = not isinstance(self.solver, diffrax.AbstractImplicitSolver)
        return StepperState(
            solver=solver,
            controller=controller,
            smoothness=Smoothness(one, one, zero, zero, zero),
            rounding=Rounding(zero, zero, zero),
            wanted=first,
            largest=zero,
            growing=jax.tree.map(lambda entry: jnp.zeros(entry.shape, jnp.int8), point),
            work=no_work(),
            regime=None if proposing is None else proposing.regime(solver),
            name=type(self.solver).__name__,
            counted=counted,
            measures=known is not None,
            blank=blank,
        )

    def attempt(
        self,
        field: VectorField,
        point: PyTree,
        state: StepperState,
        longest: Float[Array, ""],
        *,
        begun: Bool[Array, ""],
    ) -> TriedStep:
        """Try a step of the length that the controller wants, or of `longest` where that is shorter.

        The first attempt, before the run has `begun`, is a step of no length, which is kept.
        """
        term, zero = diffrax.ODETerm(field), jnp.zeros_like(state.wanted)
        length, cut = jnp.where(begun, jnp.minimum(state.wanted, longest), 0), begun & (longest < state.wanted)
        taken, largest = self.solver, state.largest
        proposing = self.solver if isinstance(self.solver, ProposingSolver) else None
        if proposing is not None:
            root_mean_square = norm(point) / sum(leaf.size for leaf in jax.tree.leaves(point)) ** 0.5
            noise = state.rounding.share * root_mean_square
            # Where all weights pass zero together, those beside a jump are held at it all the same.
            largest = jnp.maximum(largest, root_mean_square)
            taken = proposing.loosen(state.smoothness.slack, largest, noise).within(state.only)
        candidate, error, _, solver, solved = taken.step(term, zero, length, point, None, state.solver, False)
        # Where a field leaves its domain or a root is not found, the step is too long.
        error = jax.tree.map(lambda leaf: jnp.where(jnp.isnan(leaf), jnp.inf, leaf).astype(leaf.dtype), error)
        kept, begin, end, _, controller, controlled = self.controller.adapt_step_size(
            zero, length, point, candidate, None, error, cast(int, self.solver.error_order(term)), state.controller
        )
        proposed = jnp.asarray(end - begin, zero.dtype)
        # A step that was cut short says little about how long the one after it may be.
        wanted = jnp.where(kept & cut, jnp.maximum(proposed, state.wanted), proposed)
        # The first attempt, of no length, measures the field where the run begins: the first step follows from it.
        measured = self.measured(solver)
        if measured is None:
            wanted = jnp.where(begun, wanted, state.wanted)
        else:
            wanted = jax.lax.cond(begun, lambda: wanted, lambda: first_length(point, measured.slope))
        kept = kept | ~begun
        # A solver counts its evaluations itself, or takes one in each stage; a controller may take products.
        tableau, spent = getattr(self.solver, "tableau", None), no_work()
        for part, then, now in ((self.solver, state.solver, solver), (self.controller, state.controller, controller)):
            if isinstance(part, CountsWork):
                spent = spent + (part.work(now) - part.work(then))
        stages = 0 if tableau is None else len(tableau.b_sol) - bool(tableau.fsal)
        work = state.work + spent + Work(jnp.array(stages), jnp.array(0))
        back, smoothness, rounding = state.solver, state.smoothness, state.rounding
        if proposing is not None:
            back = proposing.after_rejection(state.solver, solver)
            distance = norm(jax.tree.map(jnp.subtract, candidate, point)) / norm(point)
            rtol, steady = jnp.asarray(proposing.rtol), proposing.steady_order(state.solver)
            after = smoothness.after(error.size, length, distance, jnp.asarray(kept), rtol, rough=error.rough)
            smoothness = jax.tree.map(lambda new, old: jnp.where(steady, new, old), after, smoothness)
            rounding = rounding.after(error.size, length, jnp.asarray(kept), rtol, rounded=error.rounded)
        solver, candidate = jax.tree.map(lambda new, old: jnp.where(kept, new, old), (solver, candidate), (back, point))
        if not state.blank:  # the solver knew where it begins: the first attempt changes nothing
            tried, before = (solver, controller, work), (state.solver, state.controller, state.work)
            solver, controller, work = jax.tree.map(lambda new, old: jnp.where(begun, new, old), tried, before)
        # Rounding grows, too, while steps get longer.
        steady = wanted <= 1.05 * state.wanted

        def longer(steps: Array, now: Array, later: Array) -> Array:
            grows = steady & (jnp.abs(later) > 1.001 * jnp.abs(now))
            return jnp.where(kept, jnp.where(grows, jnp.minimum(steps + 1, LASTING), 0), steps).astype(steps.dtype)

        growing = jax.tree.map(longer, state.growing, point, candidate)
        regime = None if proposing is None else proposing.regime(solver)
        okay = (~kept | (solved == diffrax.RESULTS.successful)) & (controlled == diffrax.RESULTS.successful)
        after = replace(
            state,
            solver=solver,
            controller=controller,
            smoothness=smoothness,
            rounding=rounding,
            wanted=wanted,
            largest=largest,
            growing=growing,
            work=work,
            regime=regime,
        )
        candidate = jax.tree.map(lambda new, old: jnp.where(begun, new, old), candidate, point)
        return TriedStep(jnp.asarray(kept), jnp.asarray(okay) | ~begun, cut, length, candidate, after)

    def measured(self, solver_state: PyTree) -> Measured | None:
        """Return f and the objective where the solver is, `None` for one that does not keep both."""
        return self.solver.measured(solver_state) if isinstance(self.solver, ProposingSolver) else None


def first_length(y0: PyTree, slope: PyTree, *, share: float = 0.01, at_zero: float = 1e-6) -> Float[Array, ""]:
    """Return a length for the first step: what moves y0 by a hundredth of itself (Hairer, Nørsett and Wanner, II.4).

    Each weight counts beside itself, or a thousandth of the root mean square of all. Where all are zero, it moves them
    by a hundredth; where the field is zero, it is `at_zero`.
    """
    size, root = norm(y0), sum(leaf.size for leaf in jax.tree.leaves(y0)) ** 0.5
    least = jnp.where(size > 0, 1e-3 * size / root, 1)
    relative = jax.tree.map(lambda weight, speed: speed / jnp.maximum(jnp.abs(weight), least), y0, slope)
    speed = norm(relative) / root
    known = (speed > 0) & jnp.isfinite(speed)
    return jnp.where(known, share / jnp.where(known, speed, 1), at_zero)
