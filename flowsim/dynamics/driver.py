"""The one loop of every dynamics: records, stopping, divergence, fixed points, interruption and checkpoints."""

import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..networks import split
from ..problems import Problem
from .checkpoint import Checkpoint
from .dynamics import Attempt, Clock, Dynamics
from .field import GradientField, gradient_field
from .interruptible import advance_to_end, is_traced, steps_per_second
from .records import Instruments
from .schedule import Scales, Schedule
from .stopping import Outcome, Stopping, divergence_ceiling, or_else, verdict


class Request(eqx.Module):
    """A run that is asked for: all that determines it, checked.

    All else is made of it inside the compiled program, where that is free. The run ends at the time `t1` or after
    `max_steps` attempted steps at the latest.
    """

    network: eqx.Module
    problem: Problem
    dynamics: Dynamics
    stopping: Stopping
    schedule: Schedule
    instruments: Instruments
    t1: Float[ArrayLike, ""]
    max_steps: Int[ArrayLike, ""]

    def run(self) -> tuple["_Run", PyTree]:
        """Return the run that was asked for, and the weights that it starts from."""
        field, weights = gradient_field(self.network, self.problem)
        arrays = jax.tree.map(jnp.asarray, (self.stopping, self.schedule, self.t1, self.max_steps))
        stopping, schedule, t1, max_steps = arrays
        return _Run(field, self.dynamics, stopping, schedule, self.instruments, t1, max_steps), weights


class _Run(eqx.Module):
    """All that stays the same during one run."""

    field: GradientField
    dynamics: Dynamics
    stopping: Stopping
    schedule: Schedule
    instruments: Instruments
    t1: Float[Array, ""]
    max_steps: Int[Array, ""]

    def look(self, state: PyTree, ceiling: Array) -> tuple[Array, Array, Array]:
        """Return the objective, the gradient norm and the verdict in a state of the dynamics."""
        objective, gradient_norm = self.dynamics.observe(self.field, state)
        weights = self.dynamics.weights(state)
        code = verdict(self.stopping, self.field, weights, objective, gradient_norm, ceiling)
        return objective, gradient_norm, code


class RunState(eqx.Module):
    """All that a run needs to go on, bit for bit, from where it is. `dynamics` is the dynamics' own state."""

    dynamics: PyTree
    clock: Clock
    steps: Int[Array, ""]
    rejected_steps: Int[Array, ""]
    quiet_steps: Int[Array, ""]
    code: Int[Array, ""]
    gradient_norm: Float[Array, ""]
    schedule: Any
    scales: Scales
    ceiling: Float[Array, ""]

    @property
    def attempts(self) -> Int[Array, ""]:
        """All steps so far, those that count and those that do not."""
        return self.steps + self.rejected_steps


def drive(
    request: Request, *, checkpoint: str | os.PathLike | None = None, checkpoint_seconds: float = 60.0
) -> RunState:
    """Run to the end.

    With a `checkpoint`, a path, the state is kept in that file, and the run goes on from it where the file exists.
    Raises `ValueError` for a checkpoint under a transformation of JAX.
    """
    if checkpoint is not None and is_traced(request):
        raise ValueError(
            "a checkpoint is a file of one run: call integrate or descend outside jit and vmap to keep one"
        )
    weights, _ = split(request.network)
    first = steps_per_second(weights, request.problem, gradients=request.dynamics.gradients_per_step)
    kept = None if checkpoint is None else Checkpoint(checkpoint, request, checkpoint_seconds)
    return advance_to_end(_begin, _advance, request, first=first, checkpoint=kept)


@eqx.filter_jit
def _begin(request: Request, steps: Int[ArrayLike, ""]) -> RunState:
    """Return the state after the first `steps` attempted steps, or at the end if that comes first."""
    run, weights = request.run()
    start = run.dynamics.start(run.field, weights)
    objective, _ = run.dynamics.observe(run.field, start)
    ceiling = divergence_ceiling(objective)
    objective, gradient_norm, code = run.look(start, ceiling)
    clock = Clock(jnp.zeros_like(run.t1), jnp.zeros_like(run.t1))
    scales = Scales(run.dynamics.unit_of_time(start), objective)
    record = eqx.filter_eval_shape(run.instruments.measure, run.dynamics, run.field, start, clock, gradient_norm)
    none = jnp.array(0)
    state = RunState(
        dynamics=start,
        clock=clock,
        steps=none,
        rejected_steps=none,
        quiet_steps=none,
        code=or_else(code, run.t1 <= 0, Outcome.TIME_LIMIT),
        gradient_norm=gradient_norm,
        schedule=run.schedule.init(record, scales.coordinates(clock.time, objective, gradient_norm)),
        scales=scales,
        ceiling=ceiling,
    )
    return _looped(run, _recorded(run, state), steps)


@eqx.filter_jit(donate="all-except-first")
def _advance(request: Request, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Return the state after `steps` more attempted steps, or at the end if that comes first."""
    run, _ = request.run()
    return _looped(run, state, steps)


def _looped(run: _Run, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Step from record to record: the slots of the records are touched only where one is made."""
    last = state.attempts + jnp.minimum(steps, run.max_steps)

    def unfinished(current: RunState) -> Bool[Array, ""]:
        return (current.code == Outcome.RUNNING) & (current.attempts < last)

    def to_next_record(current: RunState) -> RunState:
        def goes_on(reached: RunState) -> Bool[Array, ""]:
            moved = reached.attempts != current.attempts
            return unfinished(reached) & ~(moved & _due(run, reached))

        return _recorded(run, jax.lax.while_loop(goes_on, lambda reached: _step(run, reached), current))

    return jax.lax.while_loop(unfinished, to_next_record, state)


def _step(run: _Run, state: RunState) -> RunState:
    """Return the state after one more attempted step."""
    target = jnp.minimum(run.schedule.horizon(state.schedule), run.t1)
    left = (target - state.clock.time) - state.clock.remainder
    longest = jnp.minimum(left, run.schedule.longest_step(state.schedule))
    attempt = run.dynamics.attempt(run.field, state.dynamics, longest)
    if attempt.kept is True:  # a dynamics that never rejects
        after = _moved(run, state, attempt, target)
    else:
        changed = (attempt.state, state.rejected_steps + 1)
        rejected = eqx.tree_at(lambda s: (s.dynamics, s.rejected_steps), state, changed)
        after = jax.lax.cond(attempt.kept, lambda: _moved(run, state, attempt, target), lambda: rejected)
    code = or_else(after.code, after.attempts >= run.max_steps, Outcome.STEP_LIMIT)
    code = jnp.where(attempt.fault != Outcome.RUNNING, jnp.where(code == Outcome.RUNNING, attempt.fault, code), code)
    return eqx.tree_at(lambda s: s.code, after, code)


def _moved(run: _Run, state: RunState, attempt: Attempt, target: Array) -> RunState:
    """Return the state after a step that counts."""
    steps = state.steps + 1
    clock = run.dynamics.tick(state.clock, attempt, steps, target)
    objective, gradient_norm, code = run.look(attempt.state, state.ceiling)
    still = run.dynamics.stands_still(state.dynamics, attempt, state.gradient_norm)
    # With a patience of one there is nothing to count: what the loop of a descent does not carry, it does not pay for.
    quiet = jnp.where(still, state.quiet_steps + 1, 0) if run.dynamics.patience > 1 else state.quiet_steps
    code = or_else(code, clock.time >= run.t1, Outcome.TIME_LIMIT)
    fixed = quiet >= run.dynamics.patience if run.dynamics.patience > 1 else still
    code = or_else(code, fixed, Outcome.FIXED_POINT)
    coordinates = state.scales.coordinates(clock.time, objective, gradient_norm)
    return RunState(
        dynamics=attempt.state,
        clock=clock,
        steps=steps,
        rejected_steps=state.rejected_steps,
        quiet_steps=quiet,
        code=code,
        gradient_norm=gradient_norm,
        schedule=run.schedule.moved(state.schedule, coordinates, attempt.length),
        scales=state.scales,
        ceiling=state.ceiling,
    )


def _due(run: _Run, state: RunState) -> Bool[Array, ""]:
    ended = state.code != Outcome.RUNNING
    return run.schedule.due(state.schedule, state.clock, state.steps, ended=ended)


def _recorded(run: _Run, state: RunState) -> RunState:
    """Return the state with a record added if one is due, or if the run has ended."""

    def add() -> PyTree:
        record = run.instruments.measure(run.dynamics, run.field, state.dynamics, state.clock, state.gradient_norm)
        return run.schedule.add(state.schedule, record)

    schedule = jax.lax.cond(_due(run, state), add, lambda: state.schedule)
    return eqx.tree_at(lambda s: s.schedule, state, schedule)
