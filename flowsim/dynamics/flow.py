"""Gradient flow, integrated to its limit."""

import os

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..problems import Problem
from .checkpoint import Checkpoint
from .field import GradientField, checked_parts, constant, gradient_field, norm
from .interruptible import advance_to_end, is_traced, steps_per_second
from .method import Attempt, Method, MethodState, check_method, method_for, tolerances
from .recording import AtTimes, Diagnostics, Instruments, Scales, Spread, instruments
from .stopping import Outcome, Stopping, divergence_ceiling, stopping_for, verdict
from .trajectory import Trajectory, as_times, trajectory_of

# A run whose last steps, so many of them, all left the weights as they were to rounding will not move again.
_QUIET_STEPS = 10


def integrate(
    network: eqx.Module,
    problem: Problem,
    *,
    solver: diffrax.AbstractAdaptiveSolver | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    t1: float = float("inf"),
    max_steps: int = 1_000_000,
    ts: ArrayLike | None = None,
    between: bool = False,
    stopping: Stopping | None = None,
    diagnostics: Diagnostics | None = None,
    sharpness: bool = False,
    weights: bool = False,
    stepsize_controller: diffrax.AbstractAdaptiveStepSizeController | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
) -> Trajectory:
    """Integrate the gradient flow dW/dt = −∇R(W) from `network` to its limit.

    Steps adapt to `rtol` and `atol` (default 1e-6 and 1e-3·rtol; in float32, 1e-4). The run ends with `stopping`
    (default: ‖∇R‖ ≤ 1e-8; in float32, 1e-4), at time `t1`, or after `max_steps` steps, accepted and rejected, whichever
    comes first: see `Trajectory.outcome`. `solver` is any Diffrax ODE solver with an error estimate; the default
    follows from the problem (`flowsim.solvers.default_solver`), and `Trajectory.method` names it. The steps of
    an explicit Diffrax solver never exceed what the sharpness allows it (`SharpnessLimitedController`).
    `stepsize_controller` replaces the step control altogether, and then holds the tolerances.

    Records are made at the increasing times `ts`, reached exactly, and at the end, and with `between` also where
    much happens between them; without `ts`, at the ends of some 200 steps, spread over plateau, fast phase and
    approach. Steps are kept short enough for that: `ts=[]` leaves only the record at the end, and is the fastest way
    to the limit. Each record holds the risk, excess risk, squared distance and gradient norm, what the functions of
    the network in `diagnostics` return (floating-point arrays), and on request the `sharpness` and the `weights`,
    both of which cost more than the flow.

    With `checkpoint`, a path, the state is written to that file every `checkpoint_seconds` and at the end. Where the
    file exists, the run goes on from it and ends, bit for bit, as without the interruption.

    Works under `jax.jit` and `jax.vmap` without `checkpoint`. Raises `ValueError` or `TypeError` for arguments that
    cannot be right; a run that does not converge is returned, not raised.
    """
    start, rest, dtype = checked_parts(network)
    relative, absolute = tolerances(rtol, atol, stepsize_controller, dtype)
    check_method(solver, stepsize_controller)
    if isinstance(t1, int | float) and not t1 >= 0:
        raise ValueError(f"t1 must be zero or more, got {t1}")
    if not (isinstance(max_steps, int | np.integer) and max_steps >= 1):
        raise ValueError(f"max_steps must be a whole number, one or more, got {max_steps!r}")
    request = _Request(
        network=network,
        problem=problem,
        solver=solver,
        controller=stepsize_controller,
        rtol=relative,
        atol=absolute,
        stopping=stopping_for(stopping, problem, dtype),
        schedule=Spread() if ts is None else AtTimes(constant(as_times(ts, "ts"), dtype), between),
        instruments=instruments(problem, diagnostics, sharpness=sharpness, weights=weights),
        t1=constant(t1, dtype),
        max_steps=constant(max_steps, jnp.result_type(int)),
    )
    if checkpoint is not None and is_traced(request):
        raise ValueError("a checkpoint is a file of one run: call integrate outside jit and vmap to keep one")
    state = advance_to_end(
        _begin,
        _advance,
        request,
        first=steps_per_second(start, problem, gradients=15),
        checkpoint=None if checkpoint is None else Checkpoint(checkpoint, request, checkpoint_seconds),
    )
    return _trajectory(state, rest, problem)


def _trajectory(state: "_State", rest: eqx.Module, problem: Problem) -> Trajectory:
    """Return what a run that ended in `state` found."""
    return trajectory_of(
        state.schedule_state.records,
        network=eqx.combine(state.weights, rest),
        rest=rest,
        problem=problem,
        time=state.time,
        steps=state.steps,
        rejected_steps=state.rejected_steps,
        code=state.code,
        method=state.method.name,
        gradients=state.gradients,
        products=state.method.work.products,
    )


class _Request(eqx.Module):
    """The arguments of `integrate`, checked. All else is made of them inside the compiled program, where it is free."""

    network: eqx.Module
    problem: Problem
    solver: diffrax.AbstractAdaptiveSolver | None
    controller: diffrax.AbstractAdaptiveStepSizeController | None
    rtol: Float[ArrayLike, ""]
    atol: Float[ArrayLike, ""]
    stopping: Stopping
    schedule: Spread | AtTimes
    instruments: Instruments
    t1: Float[ArrayLike, ""]
    max_steps: Int[ArrayLike, ""]

    def run(self) -> tuple["_Run", PyTree]:
        """Return the run that was asked for, and the weights that it starts from."""
        field, weights = gradient_field(self.network, self.problem)
        method = method_for(
            field, weights, self.solver, self.controller, jnp.asarray(self.rtol), jnp.asarray(self.atol)
        )
        arrays = jax.tree.map(jnp.asarray, (self.stopping, self.schedule, self.t1, self.max_steps))
        stopping, schedule, t1, max_steps = arrays
        return _Run(field, method, stopping, schedule, self.instruments, t1, max_steps), weights


class _Run(eqx.Module):
    """All that stays the same during one integration."""

    field: GradientField
    method: Method
    stopping: Stopping
    schedule: Spread | AtTimes
    instruments: Instruments
    t1: Float[Array, ""]
    max_steps: Int[Array, ""]

    def look(self, weights: PyTree, ceiling: Array) -> tuple[Array, Array, Array]:
        """Return the objective, the gradient norm and the verdict at these weights."""
        objective, gradient = jax.value_and_grad(self.field.objective)(weights)
        size = norm(gradient)
        return objective, size, verdict(self.stopping, self.field, weights, objective, size, ceiling)


class _State(eqx.Module):
    """All that a run needs to go on, bit for bit, from where it is."""

    weights: PyTree
    method: MethodState
    time: Float[Array, ""]
    time_remainder: Float[Array, ""]
    steps: Int[Array, ""]
    rejected_steps: Int[Array, ""]
    quiet_steps: Int[Array, ""]
    code: Int[Array, ""]
    gradient_norm: Float[Array, ""]
    schedule_state: PyTree
    scales: Scales
    ceiling: Float[Array, ""]

    @property
    def gradients(self) -> Int[Array, ""] | None:
        """Evaluations of the gradient: those of the method, and one for the verdict on each accepted step."""
        return self.method.work.gradients + self.steps + 1 if self.method.counted else None


@eqx.filter_jit
def _begin(request: _Request, steps: Int[ArrayLike, ""]) -> _State:
    """Return the state after the first `steps` attempted steps, or at the end if that comes first."""
    run, weights = request.run()
    method = run.method.init(run.field, weights)
    ceiling = divergence_ceiling(run.field.objective(weights))
    objective, gradient_norm, code = run.look(weights, ceiling)
    zero = jnp.zeros_like(run.t1)
    record = eqx.filter_eval_shape(run.instruments.measure, run.field, weights, zero, gradient_norm)
    scales = Scales(method.wanted, objective)
    none = jnp.array(0)
    state = _State(
        weights=weights,
        method=method,
        time=zero,
        time_remainder=zero,
        steps=none,
        rejected_steps=none,
        quiet_steps=none,
        code=_or_else(code, run.t1 <= 0, Outcome.TIME_LIMIT),
        gradient_norm=gradient_norm,
        schedule_state=run.schedule.init(record, scales.coordinates(zero, objective, gradient_norm)),
        scales=scales,
        ceiling=ceiling,
    )
    return _looped(run, _recorded(run, state), steps)


@eqx.filter_jit(donate="all-except-first")
def _advance(request: _Request, state: _State, steps: Int[ArrayLike, ""]) -> _State:
    """Return the state after `steps` more attempted steps, or at the end if that comes first."""
    run, _ = request.run()
    return _looped(run, state, steps)


def _looped(run: _Run, state: _State, steps: Int[ArrayLike, ""]) -> _State:
    last = state.steps + state.rejected_steps + jnp.minimum(steps, run.max_steps)

    def unfinished(current: _State) -> Bool[Array, ""]:
        return (current.code == Outcome.RUNNING) & (current.steps + current.rejected_steps < last)

    return jax.lax.while_loop(unfinished, lambda current: _step(run, current), state)


def _step(run: _Run, state: _State) -> _State:
    """Return the state after one more attempted step."""
    target = jnp.minimum(run.schedule.horizon(state.schedule_state), run.t1)
    left = (target - state.time) - state.time_remainder
    longest = jnp.minimum(left, run.schedule.longest_step(state.schedule_state))
    attempt = run.method.attempt(run.field, state.weights, state.method, longest)
    rejected = eqx.tree_at(lambda s: (s.method, s.rejected_steps), state, (attempt.state, state.rejected_steps + 1))
    after = jax.lax.cond(attempt.kept, lambda: _moved(run, state, attempt, target), lambda: rejected)
    code = _or_else(after.code, after.steps + after.rejected_steps >= run.max_steps, Outcome.STEP_LIMIT)
    code = _or_else(code, ~(attempt.state.wanted > 0), Outcome.STALLED)
    code = _or_else(code, ~attempt.okay, Outcome.SOLVER_FAILED)
    return _recorded(run, eqx.tree_at(lambda s: s.code, after, code))


def _moved(run: _Run, state: _State, attempt: Attempt, target: Array) -> _State:
    """Return the state after an accepted step."""
    arrived = attempt.length >= (target - state.time) - state.time_remainder
    time, remainder = _add(state.time, state.time_remainder, attempt.length)
    time, remainder = jnp.where(arrived, target, time), jnp.where(arrived, 0, remainder)
    objective, gradient_norm, code = run.look(attempt.weights, state.ceiling)
    quiet = jnp.where(_is_quiet(state, attempt), state.quiet_steps + 1, 0)
    code = _or_else(code, time >= run.t1, Outcome.TIME_LIMIT)
    code = _or_else(code, quiet >= _QUIET_STEPS, Outcome.FIXED_POINT)
    coordinates = state.scales.coordinates(time, objective, gradient_norm)
    return _State(
        weights=attempt.weights,
        method=attempt.state,
        time=time,
        time_remainder=remainder,
        steps=state.steps + 1,
        rejected_steps=state.rejected_steps,
        quiet_steps=quiet,
        code=code,
        gradient_norm=gradient_norm,
        schedule_state=run.schedule.moved(state.schedule_state, coordinates, attempt.length),
        scales=state.scales,
        ceiling=state.ceiling,
    )


def _is_quiet(state: _State, attempt: Attempt) -> Bool[Array, ""]:
    """Tell whether an accepted step left the weights as they were, to rounding, and not only for being short.

    On a plateau, too, a step may change nothing that can be seen; but there the next one is longer.
    """
    change = norm(jax.tree.map(jnp.subtract, attempt.weights, state.weights))
    rounding = jnp.finfo(change.dtype).eps * norm(attempt.weights)
    long = attempt.length * state.gradient_norm > 2 * rounding
    settled = ~attempt.cut & (attempt.state.wanted <= 1.05 * state.method.wanted)
    return (change <= rounding) & (long | settled)


def _recorded(run: _Run, state: _State) -> _State:
    """Return the state with a record added if one is due, or if the run has ended."""

    def add() -> PyTree:
        record = run.instruments.measure(
            run.field, state.weights, state.time, state.gradient_norm, time_remainder=state.time_remainder
        )
        return run.schedule.add(state.schedule_state, record)

    due = run.schedule.due(state.schedule_state, state.time, ended=state.code != Outcome.RUNNING)
    schedule_state = jax.lax.cond(due, add, lambda: state.schedule_state)
    return eqx.tree_at(lambda s: s.schedule_state, state, schedule_state)


def _or_else(code: Array, condition: Array, outcome: Outcome) -> Array:
    """Return `outcome` where `condition` holds and no earlier reason ended the run."""
    return jnp.where((code == Outcome.RUNNING) & condition, jnp.asarray(outcome, code.dtype), code)


def _add(total: Array, remainder: Array, term: Array) -> tuple[Array, Array]:
    """Add to a number that is kept as an unevaluated sum of two (Knuth's two-sum)."""
    term = term + remainder
    high = total + term
    shadow = high - total
    return high, (total - (high - shadow)) + (term - shadow)
