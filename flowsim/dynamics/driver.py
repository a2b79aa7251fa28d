"""The one loop of every dynamics: records, stopping, divergence, fixed points, interruption and checkpoints."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..networks import split
from ..problems import Problem
from ..runtime.compiling import compiled, is_traced
from ..solvers.field import GradientField, gradient_field
from .checkpoint import Checkpoint
from .dynamics import Attempt, Clock, Dynamics
from .interruptible import advance_to_end, steps_per_second
from .outcome import ASKS, Outcome, or_else
from .records import Instruments, check_same_shapes
from .schedule import Scales, Schedule
from .stopping import Stopping
from .verdict import Watch, divergence_ceiling, settled_verdict, verdict

# The code of a state that stands for a run which has not begun.
_UNBORN = -2


class Request(eqx.Module):
    """A run that is asked for: all that determines it, checked.

    All else is made of it inside the compiled program, where that is free. The run ends at the time `t1` or after
    `max_steps` attempted steps at the latest.
    """

    network: PyTree
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

    def limited(self, code: Array, clock: Clock, attempts: Array) -> Int[Array, ""]:
        """Return a verdict, or that a limit of the run was reached where it says that the run goes on."""
        code = or_else(code, clock.time >= self.t1, Outcome.TIME_LIMIT)
        return or_else(code, attempts >= self.max_steps, Outcome.STEP_LIMIT)


class RunState(eqx.Module):
    """All that a run needs to go on, bit for bit, from where it is. `dynamics` is the dynamics' own state.

    `unrest` is its restlessness where it was last judged: of most, the norm of the gradient here. `fixed` says that the
    run stands still where it asks for second derivatives, `recorded` that there is a record of where it is.
    """

    dynamics: PyTree
    clock: Clock
    steps: Int[Array, ""]
    rejected_steps: Int[Array, ""]
    quiet_steps: Int[Array, ""]
    code: Int[Array, ""]
    unrest: Float[Array, ""]
    schedule: Any
    scales: Scales
    ceiling: Float[Array, ""]
    watch: Watch
    fixed: Bool[Array, ""]
    recorded: Bool[Array, ""]

    @property
    def attempts(self) -> Int[Array, ""]:
        """All steps so far, those that count and those that do not."""
        return self.steps + self.rejected_steps


def drive(
    request: Request,
    *,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
    told: Callable[[RunState], None] | None = None,
) -> RunState:
    """Run to the end.

    With a `checkpoint`, a path, the state is kept in that file, and the run goes on from it where the file exists.
    `told` hears of the start, and of a state about every half a second; not under a transformation of JAX.
    Raises `ValueError` for a checkpoint under a transformation of JAX.
    """
    if checkpoint is not None and is_traced(request):
        raise ValueError(
            "a checkpoint is a file of one run: call integrate or descend outside jit and vmap to keep one"
        )
    if is_traced(request):
        return _to_end(request)
    weights, _ = split(request.network)
    first = steps_per_second(weights, request.problem, gradients=request.dynamics.gradients_per_step)
    kept = None if checkpoint is None else Checkpoint(checkpoint, request, checkpoint_seconds)
    return advance_to_end(_unborn(request), _advance, _settle, request, first=first, checkpoint=kept, told=told)


@partial(compiled, few_calls=True)
def _unborn(request: Request) -> RunState:
    """Return a state of the right shapes that `_advance` begins with."""
    shapes = eqx.filter_eval_shape(_started, request)
    arrays, rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    zeros = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), arrays)
    return eqx.tree_at(lambda s: s.code, eqx.combine(zeros, rest), jnp.asarray(_UNBORN, arrays.code.dtype))


def _started(request: Request) -> RunState:
    """Return the state before the first step; a record of it is due."""
    run, weights = request.run()
    start = run.dynamics.start(run.field, weights)
    objective, gradient_norm = run.dynamics.observe(run.field, start)
    ceiling = divergence_ceiling(objective)
    watch = Watch.of(run.stopping, gradient_norm)
    unrest = run.dynamics.restlessness(start, gradient_norm)
    code = verdict(run.stopping, run.field, weights, objective, unrest, ceiling, watch, due=jnp.array(True))
    code, _ = _unless_moved(run, start, code, jnp.full_like(unrest, jnp.inf), watch, fixed=jnp.array(False))
    clock = Clock(jnp.zeros_like(run.t1), jnp.zeros_like(run.t1))
    scales = Scales(run.dynamics.unit_of_time(start), objective)
    record = eqx.filter_eval_shape(run.instruments.measure, run.dynamics, run.field, start, clock, gradient_norm)
    none = jnp.array(0)
    return RunState(
        dynamics=start,
        clock=clock,
        steps=none,
        rejected_steps=none,
        quiet_steps=none,
        code=or_else(code, run.t1 <= 0, Outcome.TIME_LIMIT),
        unrest=unrest,
        schedule=run.schedule.init(record, scales.coordinates(clock.time, objective, gradient_norm)),
        scales=scales,
        ceiling=ceiling,
        watch=watch,
        fixed=jnp.array(False),
        recorded=jnp.array(False),
    )


@partial(compiled, donate="all-except-first", sized_by=[0])
def _advance(request: Request, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Return the state after `steps` more attempted steps, or where the run ends or asks if that comes first."""
    run, _ = request.run()
    arrays, rest = eqx.partition(state, eqx.is_array)

    def begin() -> RunState:
        begun = eqx.filter(_started(request), eqx.is_array)
        check_same_shapes(arrays.schedule.records.slots, begun.schedule.records.slots)
        return begun

    begun = jax.lax.cond(state.code == _UNBORN, begin, lambda: arrays)
    return _looped(run, eqx.combine(begun, rest), steps)


def _settle(request: Request, state: RunState) -> RunState:
    """Return a state that asks for second derivatives with the answer: the run ends here, or goes on."""
    _, rest = split(request.network)
    network = eqx.combine(request.dynamics.weights(state.dynamics), rest)
    threshold = request.dynamics.sharpness_threshold()
    code = settled_verdict(request.stopping, request.network, network, request.problem, state.code, threshold)
    return _answered(request, state, code)


@partial(compiled, sized_by=[0], few_calls=True)
def _answered(request: Request, state: RunState, code: Int[Array, ""]) -> RunState:
    """Return a state that asks with the answer `code`: the outcome, or that the run goes on."""
    run, _ = request.run()
    code = run.limited(or_else(code, state.fixed, Outcome.FIXED_POINT), state.clock, state.attempts)
    asked = state.code == ASKS
    watch = state.watch.after(state.attempts, state.unrest)
    watch = jax.tree.map(lambda new, old: jnp.where(asked, new, old), watch, state.watch)
    state = eqx.tree_at(lambda s: (s.code, s.watch), state, (jnp.where(asked, code, state.code), watch))
    return jax.lax.cond(asked, lambda: _recorded(run, state), lambda: state)


def _to_end(request: Request) -> RunState:
    """Return the end of a run under a transformation of JAX."""
    run, _ = request.run()

    def further(state: RunState) -> RunState:
        return _looped(run, _settle(request, state), np.asarray(np.iinfo(np.int32).max))

    def goes_on(state: RunState) -> Bool[Array, ""]:
        return state.code <= Outcome.RUNNING

    return jax.lax.while_loop(goes_on, further, _started(request))


def _looped(run: _Run, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Step from record to record: the slots of the records are touched only where one is made."""
    last = state.attempts + jnp.minimum(steps, run.max_steps)

    def goes_on(current: RunState) -> Bool[Array, ""]:
        return (current.code == Outcome.RUNNING) & (current.attempts < last) & ~_due(run, current)

    def to_next_record(current: RunState) -> RunState:
        return _recorded(run, jax.lax.while_loop(goes_on, lambda reached: _step(run, reached), current))

    return jax.lax.while_loop(lambda s: goes_on(s) | _due(run, s), to_next_record, state)


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
    objective, unrest, code = _judged(run, state, attempt)
    still = run.dynamics.stands_still(state.dynamics, attempt, state.unrest)
    # With a patience of one there is nothing to count: what the loop of a descent does not carry, it does not pay for.
    quiet = jnp.where(still, state.quiet_steps + 1, 0) if run.dynamics.patience > 1 else state.quiet_steps
    fixed = quiet >= run.dynamics.patience if run.dynamics.patience > 1 else still
    code, rests = _unless_moved(run, attempt.state, code, state.unrest, state.watch, fixed=fixed)
    standing = int(Outcome.FIXED_POINT) if run.stopping.gradient_norm is None else ASKS
    standing = standing if rests is True else jnp.where(rests, standing, Outcome.FIXED_POINT)
    code = or_else(or_else(code, clock.time >= run.t1, Outcome.TIME_LIMIT), fixed, standing)
    coordinates = state.scales.coordinates(clock.time, objective, unrest)
    return RunState(
        dynamics=attempt.state,
        clock=clock,
        steps=steps,
        rejected_steps=state.rejected_steps,
        quiet_steps=quiet,
        code=code,
        unrest=unrest,
        schedule=run.schedule.moved(state.schedule, coordinates, attempt.length),
        scales=state.scales,
        ceiling=state.ceiling,
        watch=state.watch.seen(unrest),
        fixed=fixed,
        recorded=jnp.array(False),
    )


def _judged(run: _Run, state: RunState, attempt: Attempt) -> tuple[Array, Array, Array]:
    """Return the objective after a step that counts, the restlessness, and the verdict on both.

    Where the dynamics spares the look, that is NaN, the restlessness of the last look, and RUNNING.
    """

    def look() -> tuple[Array, Array, Array]:
        objective, gradient_norm = run.dynamics.observe(run.field, attempt.state)
        unrest = run.dynamics.restlessness(attempt.state, gradient_norm)
        due = (unrest <= state.watch.bound) | (state.attempts >= state.watch.attempts)
        due = due & (unrest <= state.unrest)
        weights = run.dynamics.weights(attempt.state)
        code = verdict(run.stopping, run.field, weights, objective, unrest, state.ceiling, state.watch, due=due)
        return objective, unrest, code

    wanted = run.dynamics.is_judged(attempt.state)
    if wanted is True:
        return look()
    spared = jnp.full_like(state.unrest, jnp.nan), state.unrest, jnp.asarray(Outcome.RUNNING, jnp.int32)
    return jax.lax.cond(wanted | (state.attempts + 1 >= run.max_steps), look, lambda: spared)


def _unless_moved(
    run: _Run, state: PyTree, code: Int[Array, ""], before: Float[Array, ""], watch: Watch, *, fixed: Bool[Array, ""]
) -> tuple[Int[Array, ""], Bool[Array, ""] | bool]:
    """Return the verdict on the weights, RUNNING where the dynamics moves on all the same, and whether it does not."""
    arrived = (code == ASKS) | (code == Outcome.CONVERGED)
    rests = run.dynamics.rests(run.field, state, before, watch.small, asked=arrived | fixed)
    return code if rests is True else jnp.where(arrived & ~rests, Outcome.RUNNING, code).astype(code.dtype), rests


def _due(run: _Run, state: RunState) -> Bool[Array, ""]:
    ended = state.code > Outcome.RUNNING
    return ~state.recorded & run.schedule.due(state.schedule, state.clock, state.steps, ended=ended)


def _recorded(run: _Run, state: RunState) -> RunState:
    """Return the state with a record added if one is due, or if the run has ended."""

    def add() -> tuple[PyTree, Array]:
        gradient_norm = state.unrest
        if run.dynamics.is_judged(state.dynamics) is not True:
            _, gradient_norm = run.dynamics.observe(run.field, state.dynamics)
        record = run.instruments.measure(run.dynamics, run.field, state.dynamics, state.clock, gradient_norm)
        return run.schedule.add(state.schedule, record), jnp.array(True)

    made = jax.lax.cond(_due(run, state), add, lambda: (state.schedule, state.recorded))
    return eqx.tree_at(lambda s: (s.schedule, s.recorded), state, made)
