"""The one loop of every dynamics, inside the compiled program: steps, records, termination and divergence."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..networks import split, strongly_typed
from ..problems import Problem
from ..runtime.compiling import compiled
from ..solvers.field import GradientField, gradient_field
from .branches import Begin
from .dynamics import Attempt, Clock, Dynamics
from .limit import outcome_by_curvature
from .outcome import Outcome, decide
from .records import Instruments, Scales, Schedule
from .stopping import OUTCOMES_OF_A_CHECK, Stopping, Watch, check_termination, divergence_ceiling

Conditions = dict[Outcome, Bool[Array, ""]]


class Request(eqx.Module):
    """All that determines a run, validated. It ends at the latest at time `t1` or after `max_steps` attempted steps.

    Where it goes on from a state of a run from the weights of the network, `begin` says how. Everything else is derived
    from it inside the compiled program, where that costs nothing.
    """

    network: PyTree
    problem: Problem
    dynamics: Dynamics
    stopping: Stopping
    schedule: Schedule
    instruments: Instruments
    t1: Float[ArrayLike, ""]
    max_steps: Int[ArrayLike, ""]
    begin: Begin | None = None

    def run(self) -> tuple["_Run", PyTree]:
        """Return the run, and the weights that it starts from."""
        field, weights = gradient_field(self.network, self.problem)
        arrays = jax.tree.map(jnp.asarray, (self.stopping, self.schedule, self.t1, self.max_steps))
        stopping, schedule, t1, max_steps = arrays
        return _Run(field, self.dynamics, stopping, schedule, self.instruments, t1, max_steps, self.begin), weights


class _Run(eqx.Module):
    """All that stays the same during one run."""

    field: GradientField
    dynamics: Dynamics
    stopping: Stopping
    schedule: Schedule
    instruments: Instruments
    t1: Float[Array, ""]
    max_steps: Int[Array, ""]
    begin: Begin | None


class RunState(eqx.Module):
    """All that a run needs to continue bit for bit. `dynamics` is the state of the dynamics itself.

    Before it has `begun`, by a first attempt of no length, nothing is measured. `code` is the number of the `Outcome`;
    where there is a `question`, second derivatives have to tell first whether this is the limit. `stationarity` is the
    stationarity measure at the last termination check, usually the gradient norm. `recorded` says that this state has
    been recorded. `order` is that to which the risk is flat at the limit, two unless that is degenerate.
    """

    dynamics: PyTree
    clock: Clock
    begun: Bool[Array, ""]
    steps: Int[Array, ""]
    rejected_steps: Int[Array, ""]
    quiet_steps: Int[Array, ""]
    code: Int[Array, ""]
    question: Bool[Array, ""]
    order: Float[Array, ""]
    stationarity: Float[Array, ""]
    schedule: Any
    scales: Scales
    ceiling: Float[Array, ""]
    watch: Watch
    recorded: Bool[Array, ""]

    @property
    def attempts(self) -> Int[Array, ""]:
        """The number of steps so far, accepted and rejected."""
        return self.steps + self.rejected_steps


@partial(compiled, few_calls=True)
def start_state(request: Request) -> RunState:
    """Return the state before the first attempt, in which nothing is measured."""
    return _start(request)


def _start(request: Request) -> RunState:
    run, weights = request.run()
    weights = weights if run.begin is None else run.dynamics.weights(run.begin.state.dynamics)
    clock = Clock(jnp.zeros_like(run.t1), jnp.zeros_like(run.t1))
    dynamics, unknown = run.dynamics.at(clock.time), jnp.full_like(run.t1, jnp.nan)
    start = dynamics.start(run.field, weights)
    none = jnp.array(0)
    state = RunState(
        dynamics=start,
        clock=clock,
        begun=jnp.array(False),
        steps=none,
        rejected_steps=none,
        quiet_steps=none,
        code=jnp.asarray(Outcome.RUNNING, jnp.int32),
        question=jnp.array(False),
        order=jnp.full_like(run.t1, 2),
        stationarity=jnp.full_like(run.t1, jnp.inf),
        schedule=None,
        scales=Scales(unknown, unknown),
        ceiling=unknown,
        watch=Watch.of(run.stopping, unknown.dtype),
        recorded=jnp.array(False),
    )
    record = eqx.filter_eval_shape(partial(_measured, run), state, unknown)
    state = strongly_typed(replace(state, schedule=run.schedule.init(record)))
    return state if run.begin is None else run.begin.of(state)


@partial(compiled, donate="all-except-first", sized_by=[0])
def advance(request: Request, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Return the state after `steps` more attempted steps, or where it ends or has a question if that comes first.

    A run that has not begun begins, besides.
    """
    run, _ = request.run()
    return _run_steps(run, state, steps)


def check_limit(request: Request, state: RunState) -> RunState:
    """Return a state with its question answered by second derivatives."""
    _, rest = split(request.network)
    network = eqx.combine(_weights(request.dynamics, state.dynamics), rest)
    threshold = request.dynamics.lasting_threshold(state.clock.time)
    code, order = outcome_by_curvature(
        request.stopping, request.network, network, request.problem, state.question, threshold
    )
    return _answered(request, state, code, order)


@partial(compiled, sized_by=[0], few_calls=True)
def _weights(dynamics: Dynamics, state: PyTree) -> PyTree:
    return dynamics.weights(state)


@partial(compiled, sized_by=[0], few_calls=True)
def _answered(request: Request, state: RunState, code: Int[Array, ""], order: Float[Array, ""]) -> RunState:
    """Return a state after its question, with the `order` at its limit, and a record if the run ends.

    The outcomes that `code` may be count before those that the state may have beside a question.
    """
    run, _ = request.run()
    watch = state.watch.after(state.attempts, state.stationarity)
    watch = jax.tree.map(lambda new, old: jnp.where(state.question, new, old), watch, state.watch)
    at_limit = (code == Outcome.CONVERGED) | (code == Outcome.STATIONARY)
    after = replace(
        state,
        code=jnp.where(code == Outcome.RUNNING, state.code, code).astype(state.code.dtype),
        question=jnp.zeros_like(state.question),
        order=jnp.where(at_limit, order, state.order).astype(state.order.dtype),
        watch=watch,
    )
    return jax.lax.cond(state.question, lambda: _record(run, after), lambda: state)


def run_to_end(request: Request) -> RunState:
    """Return the end of a run under a transformation of JAX."""
    run, _ = request.run()

    def further(state: RunState) -> RunState:
        return _run_steps(run, check_limit(request, state), np.asarray(np.iinfo(np.int32).max))

    return jax.lax.while_loop(lambda state: ~_has_ended(state), further, _start(request))


def _run_steps(run: _Run, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Step from record to record: the slots of the records are touched only where one is made."""
    last = state.attempts + jnp.minimum(steps, run.max_steps)

    def goes_on(current: RunState) -> Bool[Array, ""]:
        ready = (current.code == Outcome.RUNNING) & ~current.question & run.dynamics.is_within_regime(current.dynamics)
        return ready & ((current.attempts < last) | ~current.begun) & ~_due(run, current)

    def to_next_record(current: RunState) -> RunState:
        return _record(run, jax.lax.while_loop(goes_on, partial(_step, run), current))

    return jax.lax.while_loop(lambda s: goes_on(s) | _due(run, s), to_next_record, state)


def _step(run: _Run, state: RunState) -> RunState:
    """Return the state after one more attempted step."""
    target = jnp.minimum(run.schedule.horizon(state.schedule), run.t1)
    left = (target - state.clock.time) - state.clock.remainder
    longest = jnp.minimum(left, run.schedule.longest_step(state.schedule))
    attempt = run.dynamics.at(state.clock.time).attempt(run.field, state.dynamics, longest, state.begun)
    if attempt.kept is True:  # a dynamics that never rejects
        after, conditions = _keep_step(run, state, attempt, target)
    else:
        rejected = replace(state, dynamics=attempt.state, rejected_steps=state.rejected_steps + 1)
        none = dict.fromkeys((*OUTCOMES_OF_A_CHECK, Outcome.FIXED_POINT, Outcome.TIME_LIMIT), jnp.array(False))
        after, conditions = jax.lax.cond(
            attempt.kept, lambda: _keep_step(run, state, attempt, target), lambda: (rejected, none)
        )
    conditions[Outcome.DIVERGED] |= attempt.fault == Outcome.DIVERGED
    conditions[Outcome.STALLED] = attempt.fault == Outcome.STALLED
    conditions[Outcome.SOLVER_FAILED] = attempt.fault == Outcome.SOLVER_FAILED
    if run.dynamics.is_scheduled():
        # A function of time may stop to be a learning rate on the way.
        conditions[Outcome.SOLVER_FAILED] |= state.begun & ~(attempt.length > 0)
    conditions[Outcome.STEP_LIMIT] = after.attempts >= run.max_steps
    # What second derivatives may tell counts before a fixed point and all that follows it.
    earlier = decide({outcome: conditions[outcome] for outcome in (Outcome.SOLVER_FAILED, *OUTCOMES_OF_A_CHECK)})
    return replace(after, code=decide(conditions), question=after.question & (earlier == Outcome.RUNNING))


def _keep_step(run: _Run, state: RunState, attempt: Attempt, target: Array) -> tuple[RunState, Conditions]:
    """Return the state after a step that counts, whose outcome is left to be decided, and the conditions of outcomes.

    The question is whether to ask second derivatives if none of the conditions that count before them holds.
    """
    steps = state.steps + state.begun
    if run.begin is None:
        clock = run.dynamics.tick(state.clock, attempt, steps, target)
    else:
        clock = run.begin.later(run.dynamics.tick(state.clock, attempt, run.begin.since(steps), target))
    objective, stationarity, conditions, question, ceiling, watch = _check_termination(run, state, attempt)
    still = state.begun & run.dynamics.stands_still(state.dynamics, attempt, state.stationarity)
    settled = run.dynamics.is_settled(clock.time)
    still &= settled
    # With a patience of one there is nothing to count: what the loop of a descent does not carry, it does not pay for.
    quiet = jnp.where(still, state.quiet_steps + 1, 0) if run.dynamics.patience > 1 else state.quiet_steps
    is_over = clock.time >= run.t1
    # At rest steps grow: few fit in before the time limit, or none, and the last is cut short.
    soon = settled & run.dynamics.will_stand_still(run.field, state.dynamics, attempt)
    ends_at_rest = still | (attempt.cut & (state.quiet_steps > 0)) | soon
    fixed = (quiet >= run.dynamics.patience) | (is_over & ends_at_rest) if run.dynamics.patience > 1 else still
    if run.stopping.gradient_norm is not None:
        question |= fixed
    asked = conditions[Outcome.CONVERGED] | question | fixed
    rests = run.dynamics.at(clock.time).rests(run.field, attempt.state, state.stationarity, watch.small, asked=asked)
    conditions[Outcome.CONVERGED] &= rests
    conditions |= {Outcome.FIXED_POINT: fixed, Outcome.TIME_LIMIT: is_over}
    scales = Scales(run.dynamics.at(clock.time).unit_of_time(attempt.state), objective)
    scales = jax.tree.map(lambda known, new: jnp.where(state.begun, known, new), state.scales, scales)
    coordinates = scales.coordinates(clock.time, objective, stationarity)
    after = replace(
        state,
        dynamics=attempt.state,
        clock=clock,
        begun=jnp.array(True),
        steps=steps,
        quiet_steps=quiet,
        question=question & rests,
        stationarity=stationarity,
        schedule=run.schedule.moved(state.schedule, coordinates, attempt.length),
        scales=scales,
        ceiling=ceiling,
        watch=watch.seen(stationarity),
        recorded=jnp.array(False),
    )
    return after, conditions


def _check_termination(
    run: _Run, state: RunState, attempt: Attempt
) -> tuple[Array, Array, Conditions, Bool[Array, ""], Array, Watch]:
    """Return the objective after a step that counts, the stationarity measure, and what `check_termination` says.

    And the ceiling and the watch, which the first check sets. Where the dynamics skips the check, all stay as they are,
    the objective is NaN, and no condition holds.
    """

    def check() -> tuple[Array, Array, Conditions, Bool[Array, ""], Array, Watch]:
        objective, gradient_norm = run.dynamics.observe(run.field, attempt.state)
        ceiling = jnp.where(state.begun, state.ceiling, divergence_ceiling(objective))
        watch = state.watch.seen(jnp.where(state.begun, 0, gradient_norm))
        stationarity = run.dynamics.stationarity_measure(attempt.state, gradient_norm)
        asked = (stationarity <= watch.bound) | (state.attempts >= watch.attempts)
        due = asked & (stationarity <= state.stationarity)
        weights = run.dynamics.weights(attempt.state)
        conditions, question = check_termination(
            run.stopping, run.field, weights, objective, stationarity, ceiling, watch, due=due
        )
        if run.dynamics.sharpness_threshold() is not None:
            # At a minimum where the run is unstable it has not moved far yet: its curvature decides.
            question = jnp.where(conditions[Outcome.CONVERGED], asked, question)
            conditions[Outcome.CONVERGED] = jnp.array(False)
        return objective, stationarity, conditions, question, ceiling, watch

    wanted = run.dynamics.checks_termination(attempt.state)
    if wanted is True:
        return check()
    unknown, no = jnp.full_like(state.stationarity, jnp.nan), jnp.array(False)
    skipped = unknown, state.stationarity, dict.fromkeys(OUTCOMES_OF_A_CHECK, no), no, state.ceiling, state.watch
    return jax.lax.cond(wanted | ~state.begun | (state.attempts + 1 >= run.max_steps), check, lambda: skipped)


def _has_ended(state: RunState) -> Bool[Array, ""]:
    return (state.code != Outcome.RUNNING) & ~state.question


def _due(run: _Run, state: RunState) -> Bool[Array, ""]:
    ended = _has_ended(state)
    return state.begun & ~state.recorded & run.schedule.due(state.schedule, state.clock, state.steps, ended=ended)


def _measured(run: _Run, state: RunState, gradient_norm: Float[Array, ""]) -> dict[str, PyTree]:
    """Return one record of a state, with the state itself where that is asked for."""
    dynamics = run.dynamics.at(state.clock.time)
    record = run.instruments.measure(dynamics, run.field, state.dynamics, state.clock, gradient_norm)
    return record | {"states": replace(state, schedule=None) if run.instruments.states else None}


def _record(run: _Run, state: RunState) -> RunState:
    """Return the state with a record added if one is due, or if the run has ended."""

    def add() -> tuple[PyTree, Array]:
        gradient_norm = state.stationarity
        if run.dynamics.checks_termination(state.dynamics) is not True:
            _, gradient_norm = run.dynamics.observe(run.field, state.dynamics)
        return run.schedule.add(state.schedule, _measured(run, state, gradient_norm)), jnp.array(True)

    schedule, recorded = jax.lax.cond(_due(run, state), add, lambda: (state.schedule, state.recorded))
    return replace(state, schedule=schedule, recorded=recorded)
