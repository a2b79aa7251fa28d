"""The one loop of every dynamics, inside the compiled program: steps, records, termination and divergence."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..networks import cast, split, strongly_typed, weight_dtype
from ..problems import Problem
from ..runtime.compiling import compiled
from ..solvers.field import GradientField
from .branches import Begin
from .dynamics import Attempt, Clock, Dynamics
from .limit import outcome_by_curvature
from .outcome import Outcome, decide
from .records import Instruments, Scales, Schedule
from .stopping import OUTCOMES_OF_A_CHECK, Stopping, Watch, check_termination, divergence_ceiling

Conditions = dict[Outcome, Bool[Array, ""]]


class Request(eqx.Module):
    """All that determines a run, validated. It ends at the latest at time `t1` or after `max_steps` attempted steps.

    Where it goes on from a state of a run from the weights of the network, `begin` says how. `in_program` derives from
    it what a compiled program computes with, inside of that, where it costs nothing.
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

    @property
    def field(self) -> GradientField:
        """The gradient field of the network on the problem."""
        return GradientField(self.problem, split(self.network)[1])

    def in_program(self) -> "Request":
        """Return the same as a program computes with it: numbers as arrays, the problem in the weights' precision."""
        arrays = jax.tree.map(jnp.asarray, (self.stopping, self.schedule, self.t1, self.max_steps))
        stopping, schedule, t1, max_steps = arrays
        problem = cast(self.problem, weight_dtype(self.network))
        return replace(self, problem=problem, stopping=stopping, schedule=schedule, t1=t1, max_steps=max_steps)


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


def start_state(request: Request) -> RunState:
    """Return the state before the first attempt, in which nothing is measured."""
    request, (weights, _) = request.in_program(), split(request.network)
    weights = weights if request.begin is None else request.dynamics.weights(request.begin.state.dynamics)
    clock = Clock(jnp.zeros_like(request.t1), jnp.zeros_like(request.t1))
    dynamics, unknown = request.dynamics.at(clock.time), jnp.full_like(request.t1, jnp.nan)
    start = dynamics.start(request.field, weights)
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
        order=jnp.full_like(request.t1, 2),
        stationarity=jnp.full_like(request.t1, jnp.inf),
        schedule=None,
        scales=Scales(unknown, unknown),
        ceiling=unknown,
        watch=Watch.of(request.stopping, unknown.dtype),
        recorded=jnp.array(False),
    )
    record = eqx.filter_eval_shape(partial(_measured, request), state, unknown)
    state = strongly_typed(replace(state, schedule=request.schedule.init(record)))
    return state if request.begin is None else request.begin.of(state)


def advance(request: Request, state: RunState, steps: Int[ArrayLike, ""]) -> RunState:
    """Return the state after `steps` more attempted steps, or where it ends or has a question if that comes first.

    A run that has not begun begins, too. It steps from record to record: the slots of the records are touched only
    where one is made.
    """
    request = request.in_program()
    last = state.attempts + jnp.minimum(steps, request.max_steps)

    def goes_on(current: RunState) -> Bool[Array, ""]:
        ready = (current.code == Outcome.RUNNING) & ~current.question
        ready &= request.dynamics.is_within_regime(current.dynamics)
        return ready & ((current.attempts < last) | ~current.begun) & ~_due(request, current)

    def to_next_record(current: RunState) -> RunState:
        return _record(request, jax.lax.while_loop(goes_on, partial(_step, request), current))

    return jax.lax.while_loop(lambda s: goes_on(s) | _due(request, s), to_next_record, state)


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
    request = request.in_program()
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
    return jax.lax.cond(state.question, lambda: _record(request, after), lambda: state)


def run_to_end(request: Request) -> RunState:
    """Return the end of a run under a transformation of JAX."""
    run, most = request.in_program(), np.asarray(np.iinfo(np.int32).max)
    return jax.lax.while_loop(
        lambda state: ~_has_ended(state),
        lambda state: advance(run, check_limit(request, state), most),
        start_state(request),
    )


def _step(request: Request, state: RunState) -> RunState:
    """Return the state after one more attempted step."""
    target = jnp.minimum(request.schedule.horizon(state.schedule), request.t1)
    left = (target - state.clock.time) - state.clock.remainder
    longest = jnp.minimum(left, request.schedule.longest_step(state.schedule))
    attempt = request.dynamics.at(state.clock.time).attempt(request.field, state.dynamics, longest, state.begun)
    if attempt.kept is True:  # a dynamics that never rejects
        after, conditions = _keep_step(request, state, attempt, target)
    else:
        rejected = replace(state, dynamics=attempt.state, rejected_steps=state.rejected_steps + 1)
        none = dict.fromkeys((*OUTCOMES_OF_A_CHECK, Outcome.FIXED_POINT, Outcome.TIME_LIMIT), jnp.array(False))
        after, conditions = jax.lax.cond(
            attempt.kept, lambda: _keep_step(request, state, attempt, target), lambda: (rejected, none)
        )
    conditions[Outcome.DIVERGED] |= attempt.fault == Outcome.DIVERGED
    conditions[Outcome.STALLED] = attempt.fault == Outcome.STALLED
    conditions[Outcome.SOLVER_FAILED] = attempt.fault == Outcome.SOLVER_FAILED
    if request.dynamics.is_scheduled():
        # A function of time may stop to be a learning rate on the way.
        conditions[Outcome.SOLVER_FAILED] |= state.begun & ~(attempt.length > 0)
    conditions[Outcome.STEP_LIMIT] = after.attempts >= request.max_steps
    # What second derivatives may tell counts before a fixed point and all that follows it.
    earlier = decide({outcome: conditions[outcome] for outcome in (Outcome.SOLVER_FAILED, *OUTCOMES_OF_A_CHECK)})
    return replace(after, code=decide(conditions), question=after.question & (earlier == Outcome.RUNNING))


def _keep_step(request: Request, state: RunState, attempt: Attempt, target: Array) -> tuple[RunState, Conditions]:
    """Return the state after a step that counts, whose outcome is left to be decided, and the conditions of outcomes.

    The question is whether to ask second derivatives if none of the conditions that count before them holds.
    """
    dynamics, steps = request.dynamics, state.steps + state.begun
    origin = None if request.begin is None else request.begin.origin
    clock = dynamics.tick(state.clock, attempt, steps if origin is None else steps - origin.steps, target)
    clock = clock if origin is None else origin.clock.after(clock.time)
    objective, stationarity, conditions, question, ceiling, watch = _check_termination(request, state, attempt)
    still = state.begun & dynamics.stands_still(state.dynamics, attempt, state.stationarity)
    settled = dynamics.is_settled(clock.time)
    still &= settled
    # With a patience of one there is nothing to count: what the loop of a descent does not carry, it does not pay for.
    quiet = jnp.where(still, state.quiet_steps + 1, 0) if dynamics.patience > 1 else state.quiet_steps
    is_over = clock.time >= request.t1
    # At rest steps grow: few fit in before the time limit, or none, and the last is cut short.
    soon = settled & dynamics.will_stand_still(request.field, state.dynamics, attempt)
    ends_at_rest = still | (attempt.cut & (state.quiet_steps > 0)) | soon
    fixed = (quiet >= dynamics.patience) | (is_over & ends_at_rest) if dynamics.patience > 1 else still
    if request.stopping.gradient_norm is not None:
        question |= fixed
    asked = conditions[Outcome.CONVERGED] | question | fixed
    rests = dynamics.at(clock.time).rests(request.field, attempt.state, state.stationarity, watch.small, asked=asked)
    conditions[Outcome.CONVERGED] &= rests
    conditions |= {Outcome.FIXED_POINT: fixed, Outcome.TIME_LIMIT: is_over}
    scales = Scales(dynamics.at(clock.time).unit_of_time(attempt.state), objective)
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
        schedule=request.schedule.moved(state.schedule, coordinates, attempt.length),
        scales=scales,
        ceiling=ceiling,
        watch=watch.seen(stationarity),
        recorded=jnp.array(False),
    )
    return after, conditions


def _check_termination(
    request: Request, state: RunState, attempt: Attempt
) -> tuple[Array, Array, Conditions, Bool[Array, ""], Array, Watch]:
    """Return the objective after a step that counts, the stationarity measure, and what `check_termination` says.

    And the ceiling and the watch, which the first check sets. Where the dynamics skips the check, all stay as they are,
    the objective is NaN, and no condition holds.
    """

    def check() -> tuple[Array, Array, Conditions, Bool[Array, ""], Array, Watch]:
        objective, gradient_norm = request.dynamics.observe(request.field, attempt.state)
        ceiling = jnp.where(state.begun, state.ceiling, divergence_ceiling(objective))
        watch = state.watch.seen(jnp.where(state.begun, 0, gradient_norm))
        stationarity = request.dynamics.stationarity_measure(attempt.state, gradient_norm)
        asked = (stationarity <= watch.bound) | (state.attempts >= watch.attempts)
        due = asked & (stationarity <= state.stationarity)
        weights = request.dynamics.weights(attempt.state)
        conditions, question = check_termination(
            request.stopping, request.field, weights, objective, stationarity, ceiling, watch, due=due
        )
        if request.dynamics.sharpness_threshold() is not None:
            # At a minimum where the run is unstable it has not moved far yet: its curvature decides.
            question = jnp.where(conditions[Outcome.CONVERGED], asked, question)
            conditions[Outcome.CONVERGED] = jnp.array(False)
        return objective, stationarity, conditions, question, ceiling, watch

    wanted = request.dynamics.checks_termination(attempt.state)
    if wanted is True:
        return check()
    unknown, no = jnp.full_like(state.stationarity, jnp.nan), jnp.array(False)
    skipped = unknown, state.stationarity, dict.fromkeys(OUTCOMES_OF_A_CHECK, no), no, state.ceiling, state.watch
    return jax.lax.cond(wanted | ~state.begun | (state.attempts + 1 >= request.max_steps), check, lambda: skipped)


def _has_ended(state: RunState) -> Bool[Array, ""]:
    return (state.code != Outcome.RUNNING) & ~state.question


def _due(request: Request, state: RunState) -> Bool[Array, ""]:
    ended = _has_ended(state)
    return state.begun & ~state.recorded & request.schedule.due(state.schedule, state.clock, state.steps, ended=ended)


def _measured(request: Request, state: RunState, gradient_norm: Float[Array, ""]) -> dict[str, PyTree]:
    """Return one record of a state, with the state itself where that is asked for."""
    dynamics = request.dynamics.at(state.clock.time)
    record = request.instruments.measure(dynamics, request.field, state.dynamics, state.clock, gradient_norm)
    return record | {"states": replace(state, schedule=None) if request.instruments.states else None}


def _record(request: Request, state: RunState) -> RunState:
    """Return the state with a record added if one is due, or if the run has ended."""

    def add() -> tuple[PyTree, Array]:
        gradient_norm = state.stationarity
        if request.dynamics.checks_termination(state.dynamics) is not True:
            _, gradient_norm = request.dynamics.observe(request.field, state.dynamics)
        return request.schedule.add(state.schedule, _measured(request, state, gradient_norm)), jnp.array(True)

    schedule, recorded = jax.lax.cond(_due(request, state), add, lambda: (state.schedule, state.recorded))
    return replace(state, schedule=schedule, recorded=recorded)
