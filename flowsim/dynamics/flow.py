"""Gradient flow, integrated to its limit."""

from typing import cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from ..problems import Problem
from .field import GradientField, gradient_field, norm
from .interruptible import advance_to_end
from .recording import AtTimes, Diagnostics, Instruments, Scales, Spread, instruments
from .step_control import ChainedController, ChainState, SharpnessLimitedController, stability_interval
from .stopping import Outcome, Stopping, divergence_ceiling, stopping_for, verdict
from .trajectory import Trajectory, as_times, trajectory_of

_STEPS_PER_SOLVE = 128


def integrate(
    network: eqx.Module,
    problem: Problem,
    *,
    solver: diffrax.AbstractSolver | None = None,
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
) -> Trajectory:
    """Integrate the gradient flow dW/dt = −∇R(W) from `network` to its limit.

    Steps adapt to `rtol` and `atol` (default 1e-6 and 1e-3·rtol; in float32, 1e-4), and never exceed what
    the sharpness allows an explicit method (`SharpnessLimitedController`). The run ends with `stopping`
    (default: ‖∇R‖ ≤ 1e-8; in float32, 1e-4), at time `t1`, or after `max_steps` steps, whichever comes
    first: see `Trajectory.outcome`. `solver` is any Diffrax ODE solver with an error estimate, explicit
    (default `Tsit5`) or implicit; `stepsize_controller` replaces the step control altogether.

    Records are made at the increasing times `ts`, reached exactly, and at the end, and with `between` also where
    much happens between them; without `ts`, at the ends of some 200 steps at most, spread over plateau, fast phase and
    approach. Each holds the risk, excess risk, squared distance and gradient norm, what the functions of the network in
    `diagnostics` return (floating-point arrays), and on request the `sharpness` and the `weights`, both of which cost
    more than the flow.

    Works under `jax.jit` and `jax.vmap`. Raises `ValueError` or `TypeError` for arguments that cannot be
    right; a run that does not converge is returned, not raised.
    """
    field, start = gradient_field(network, problem)
    dtype = jax.tree.leaves(start)[0].dtype
    rtol, atol = _tolerances(rtol, atol, dtype)
    stopping = stopping_for(stopping, dtype)
    solver = diffrax.Tsit5() if solver is None else solver
    if stepsize_controller is None:
        stepsize_controller = _step_control(solver, field, jnp.asarray(rtol, dtype), jnp.asarray(atol, dtype))
    if isinstance(t1, int | float) and not t1 >= 0:
        raise ValueError(f"t1 must be zero or more, got {t1}")
    if not (isinstance(max_steps, int | np.integer) and max_steps >= 1):
        raise ValueError(f"max_steps must be a whole number, one or more, got {max_steps!r}")
    schedule = Spread() if ts is None else AtTimes(jnp.asarray(as_times(ts, "ts"), dtype), between)
    run = _Run(
        field=field,
        solver=solver,
        controller=stepsize_controller,
        stopping=stopping,
        schedule=schedule,
        instruments=instruments(problem, diagnostics, sharpness=sharpness, weights=weights),
        t1=jnp.asarray(t1, dtype),
        max_steps=jnp.asarray(max_steps),
    )
    state = advance_to_end(_advance, run, _start(run, start), first=16)
    return trajectory_of(
        state.schedule_state.records,
        network=field.network(state.weights),
        problem=problem,
        rest=field.rest,
        time=state.time,
        steps=state.steps,
        rejected_steps=state.rejected_steps,
        code=state.code,
    )


class _Run(eqx.Module):
    """All that stays the same during one integration."""

    field: GradientField
    solver: diffrax.AbstractSolver
    controller: diffrax.AbstractAdaptiveStepSizeController
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
    solver_state: PyTree
    controller_state: PyTree
    time: Float[Array, ""]
    time_remainder: Float[Array, ""]
    steps: Int[Array, ""]
    rejected_steps: Int[Array, ""]
    code: Int[Array, ""]
    schedule_state: PyTree
    scales: Scales
    ceiling: Float[Array, ""]


@eqx.filter_jit
def _start(run: _Run, weights: PyTree) -> _State:
    term = diffrax.ODETerm(run.field)
    zero = jnp.zeros_like(run.t1)
    controller = ChainedController(
        run.controller, horizon=jnp.full_like(zero, jnp.inf), budget=jnp.array(_STEPS_PER_SOLVE)
    ).wrap(1)
    order = run.solver.error_order(term)
    t_next, controller_state = controller.init(
        term, zero, controller.horizon, weights, None, None, run.solver.func, order
    )
    solver_state = run.solver.init(term, zero, t_next, weights, None)
    ceiling = divergence_ceiling(run.field.objective(weights))
    objective, gradient_norm, code = run.look(weights, ceiling)
    code = _or_else(code, run.t1 <= 0, Outcome.TIME_LIMIT)
    scales = Scales(t_next, objective)
    record = eqx.filter_eval_shape(run.instruments.measure, run.field, weights, zero, gradient_norm)
    schedule_state = run.schedule.init(record)
    state = _State(
        weights=weights,
        solver_state=solver_state,
        controller_state=controller_state,
        time=zero,
        time_remainder=zero,
        steps=jnp.array(0),
        rejected_steps=jnp.array(0),
        code=code,
        schedule_state=schedule_state,
        scales=scales,
        ceiling=ceiling,
    )
    return _recorded(run, state, objective, gradient_norm)


@eqx.filter_jit
def _advance(run: _Run, state: _State, solves: Int[Array, ""]) -> _State:
    def unfinished(carry: tuple) -> Array:
        count, current = carry
        return (current.code == Outcome.RUNNING) & (count < solves)

    def body(carry: tuple) -> tuple:
        count, current = carry
        return count + 1, _solve_to_next_record(run, current)

    return jax.lax.while_loop(unfinished, body, (jnp.array(0), state))[1]


def _solve_to_next_record(run: _Run, state: _State) -> _State:
    """Integrate up to the next record, the end, or for 128 steps, in a time that starts from zero again.

    A plateau can last longer than the inverse of the unit roundoff: on one clock the step at its end would
    be lost.
    """
    next_record = run.schedule.horizon(state.schedule_state)
    target = jnp.minimum(next_record, run.t1)
    horizon = (target - state.time) - state.time_remainder
    budget = jnp.minimum(_STEPS_PER_SOLVE, run.max_steps - state.steps - state.rejected_steps)
    controller = ChainedController(run.controller, horizon=horizon, budget=budget)
    controller_state = eqx.tree_at(lambda s: s.steps, state.controller_state, jnp.array(0))

    def pause(t, y, args, **_):
        objective, gradient_norm, code = run.look(y, state.ceiling)
        mark = state.scales.mark(state.time + t, objective, gradient_norm)
        due = run.schedule.due(state.schedule_state, mark)
        return (code != Outcome.RUNNING) | (t >= horizon) | ((t > 0) & due)

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(run.field),
        run.solver,
        t0=jnp.zeros_like(horizon),
        t1=jnp.full_like(horizon, jnp.inf),
        dt0=jnp.minimum(controller_state.wanted, horizon),
        y0=state.weights,
        saveat=diffrax.SaveAt(t1=True, solver_state=True, controller_state=True),
        stepsize_controller=controller,
        solver_state=state.solver_state,
        controller_state=controller_state,
        max_steps=None,
        throw=False,
        event=diffrax.Event(pause),
        adjoint=diffrax.ForwardMode(),
    )
    return _settled(run, state, solution, target, horizon)


def _settled(run: _Run, state: _State, solution: diffrax.Solution, target: Array, horizon: Array) -> _State:
    """Return the state after one solve, with its record if one is due, and its outcome if it ended."""
    weights, (elapsed,) = jax.tree.map(lambda leaf: leaf[0], solution.ys), cast(Array, solution.ts)
    controller_state = cast(ChainState, solution.controller_state)
    arrived = elapsed >= horizon
    time, remainder = _add(state.time, state.time_remainder, elapsed)
    time, remainder = jnp.where(arrived, target, time), jnp.where(arrived, 0, remainder)
    steps = state.steps + solution.stats["num_accepted_steps"]
    rejected = state.rejected_steps + solution.stats["num_rejected_steps"]
    objective, gradient_norm, code = run.look(weights, state.ceiling)
    code = _or_else(code, time >= run.t1, Outcome.TIME_LIMIT)
    code = _or_else(code, steps + rejected >= run.max_steps, Outcome.STEP_LIMIT)
    code = _or_else(code, ~(controller_state.wanted > 0), Outcome.STALLED)
    okay = solution.result == diffrax.RESULTS.event_occurred
    code = _or_else(code, ~okay, Outcome.SOLVER_FAILED)
    settled = _State(
        weights=weights,
        solver_state=solution.solver_state,
        controller_state=controller_state,
        time=time,
        time_remainder=remainder,
        steps=steps,
        rejected_steps=rejected,
        code=code,
        schedule_state=state.schedule_state,
        scales=state.scales,
        ceiling=state.ceiling,
    )
    return _recorded(run, settled, objective, gradient_norm)


def _recorded(run: _Run, state: _State, objective: Array, gradient_norm: Array) -> _State:
    """Return the state with a record added if one is due, or if the run has ended."""
    mark = state.scales.mark(state.time, objective, gradient_norm)
    wanted = run.schedule.due(state.schedule_state, mark) | (state.code != Outcome.RUNNING)

    def add() -> PyTree:
        record = run.instruments.measure(run.field, state.weights, state.time, gradient_norm)
        return run.schedule.add(state.schedule_state, record, mark)

    schedule_state = jax.lax.cond(wanted, add, lambda: state.schedule_state)
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


def _step_control(
    solver: diffrax.AbstractSolver, field: GradientField, rtol: Array, atol: Array
) -> diffrax.AbstractAdaptiveStepSizeController:
    controller = diffrax.PIDController(rtol=rtol, atol=atol)
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        return controller
    return SharpnessLimitedController(controller, field, interval=stability_interval(solver))


def _tolerances(rtol: float | None, atol: float | None, dtype: jnp.dtype) -> tuple[float, float]:
    """Return the tolerances, filled in after the precision; `ValueError` where it cannot meet them."""
    single = dtype.itemsize < 8
    rtol = (1e-4 if single else 1e-6) if rtol is None else rtol
    atol = 1e-3 * rtol if atol is None else atol
    finest = 32 * float(jnp.finfo(dtype).eps)
    if not 0 < rtol < 1 or not atol >= 0:
        raise ValueError(f"expected 0 < rtol < 1 and atol ≥ 0, got rtol={rtol} and atol={atol}")
    if rtol < finest:
        raise ValueError(
            f"rtol={rtol:g} is finer than {dtype} can meet: write rtol={finest:.1g} or more"
            + (", or use float64 weights (jax.config.update('jax_enable_x64', True))" if single else "")
        )
    return rtol, atol
