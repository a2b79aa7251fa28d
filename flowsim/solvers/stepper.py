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
from jaxtyping import Array, Bool, Float, PyTree

from .error import Smoothness, first_length
from .field import Measured, VectorField, norm
from .solver import ProposingSolver, Work, no_work, work_of


class StepperState(eqx.Module):
    """What the next step starts from, and what all steps so far have cost.

    `name` is that of the solver; `counted` says whether its gradients are known: not for Diffrax's implicit solvers.
    `measures` says that it holds the gradient where it is.
    """

    solver: PyTree
    controller: PyTree
    smoothness: Smoothness
    wanted: Float[Array, ""]
    work: Work
    name: str = eqx.field(static=True)
    counted: bool = eqx.field(static=True)
    measures: bool = eqx.field(static=True)


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
        """Return the state before the first step."""
        term, zero = diffrax.ODETerm(field), jnp.zeros((), jax.tree.leaves(point)[0].dtype)
        solver = self.solver.init(term, zero, jnp.ones_like(zero), point, None)
        known = self._measured(solver)
        guess = None if known is None else first_length(point, known.slope, self.controller.rtol, self.controller.atol)
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
            smoothness=Smoothness.unknown(zero.dtype),
            wanted=first,
            work=no_work(),
            name=type(self.solver).__name__,
            counted=counted,
            measures=known is not None,
        )

    def attempt(self, field: VectorField, point: PyTree, state: StepperState, longest: Float[Array, ""]) -> TriedStep:
        """Try a step of the length that the controller wants, or of `longest` where that is shorter."""
        term, zero = diffrax.ODETerm(field), jnp.zeros_like(state.wanted)
        length, cut = jnp.minimum(state.wanted, longest), longest < state.wanted
        taken = self._loosened(state.smoothness.slack, point)
        candidate, error, _, solver, solved = taken.step(term, zero, length, point, None, state.solver, False)
        # Where a field leaves its domain or a root is not found, the step is too long.
        error = jax.tree.map(lambda leaf: jnp.where(jnp.isnan(leaf), jnp.inf, leaf).astype(leaf.dtype), error)
        kept, begin, end, _, controller, controlled = self.controller.adapt_step_size(
            zero, length, point, candidate, None, error, cast(int, self.solver.error_order(term)), state.controller
        )
        proposed = jnp.asarray(end - begin, zero.dtype)
        # A step that was cut short says little about how long the one after it may be.
        wanted = jnp.where(kept & cut, jnp.maximum(proposed, state.wanted), proposed)
        spent = self._work(solver, controller) - self._work(state.solver, state.controller)
        work = state.work + spent + Work(self._stages, jnp.array(0))
        back, smoothness = state.solver, state.smoothness
        if self._proposing is not None:
            back = self._proposing.after_rejection(state.solver, solver)
            distance = norm(jax.tree.map(jnp.subtract, candidate, point)) / norm(point)
            rtol, steady = jnp.asarray(self._proposing.rtol), self._proposing.steady_order(state.solver)
            after = smoothness.after(error.size, length, distance, jnp.asarray(kept), rtol, rough=error.rough)
            smoothness = jax.tree.map(lambda new, old: jnp.where(steady, new, old), after, smoothness)
        solver, candidate = jax.tree.map(lambda new, old: jnp.where(kept, new, old), (solver, candidate), (back, point))
        okay = (~kept | (solved == diffrax.RESULTS.successful)) & (controlled == diffrax.RESULTS.successful)
        after = replace(state, solver=solver, controller=controller, smoothness=smoothness, wanted=wanted, work=work)
        return TriedStep(jnp.asarray(kept), jnp.asarray(okay), cut, length, candidate, after)

    def measured(self, state: StepperState) -> Measured | None:
        """Return what the solver knows of the point where it is, `None` for one that does not keep it."""
        return self._measured(state.solver)

    def _loosened(self, slack: Float[Array, ""], point: PyTree) -> diffrax.AbstractAdaptiveSolver:
        """Return the solver with tolerances multiplied by `slack`, if they are its own."""
        if self._proposing is None:
            return self.solver
        entries = sum(leaf.size for leaf in jax.tree.leaves(point))
        return self._proposing.loosened(slack, norm(point) / entries**0.5)

    def _measured(self, solver: PyTree) -> Measured | None:
        return None if self._proposing is None else self._proposing.measured(solver)

    @property
    def _proposing(self) -> ProposingSolver | None:
        return self.solver if isinstance(self.solver, ProposingSolver) else None

    @property
    def _stages(self) -> Array:
        tableau = getattr(self.solver, "tableau", None)
        return jnp.array(0 if tableau is None else len(tableau.b_sol) - bool(tableau.fsal))

    def _work(self, solver_state: PyTree, controller_state: PyTree) -> Work:
        return work_of(self.solver, solver_state) + work_of(self.controller, controller_state)
