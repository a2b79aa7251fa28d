"""Gradient descent: the gradient field discretized by explicit Euler steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..problems import Problem
from .field import GradientField, checked_parts, constant, gradient_field, norm
from .interruptible import advance_to_end, steps_per_second
from .recording import Diagnostics, Instruments, Records, empty_records, instruments
from .stopping import Outcome, Stopping, divergence_ceiling, stopping_for, verdict
from .trajectory import Trajectory, as_times, trajectory_of

_RECORDS = 250


def descend(
    network: eqx.Module,
    problem: Problem,
    *,
    learning_rate: float,
    steps: int,
    record_steps: ArrayLike | None = None,
    stopping: Stopping | None = None,
    diagnostics: Diagnostics | None = None,
    sharpness: bool = False,
    weights: bool = False,
) -> Trajectory:
    """Run gradient descent W ← W − η∇R(W) for at most `steps` steps with `learning_rate` η.

    It ends early by the criteria of `stopping` (as in `integrate`), when the risk diverges, or when a step
    changes no weight in floating point, where all later steps would stay. Time is η·k after k steps. Records
    are made at the increasing step numbers `record_steps` and at the end (default:
    `default_record_steps(steps)`, some 250, dense at first); what they hold is as
    in `integrate`.

    Works under `jax.jit` and `jax.vmap`, with a traced `learning_rate` too. Raises `ValueError` or
    `TypeError` for arguments that cannot be right; a run that diverges is returned, not raised.
    """
    start, rest, dtype = checked_parts(network)
    if not isinstance(learning_rate, Tracer) and not 0 < float(learning_rate) <= float(jnp.finfo(dtype).max):
        raise ValueError(f"learning_rate must be a positive finite number of {dtype}, got {learning_rate}")
    if not (isinstance(steps, int | np.integer) and steps >= 1):
        raise ValueError(f"steps must be a whole number, one or more, got {steps!r}")
    marks = default_record_steps(steps) if record_steps is None else as_times(record_steps, "record_steps", whole=True)
    request = _Request(
        network=network,
        problem=problem,
        stopping=stopping_for(stopping, problem, dtype),
        instruments=instruments(problem, diagnostics, sharpness=sharpness, weights=weights),
        learning_rate=constant(learning_rate, dtype),
        marks=np.append(marks[marks < steps], steps),
    )
    state = advance_to_end(_begin, _advance, request, first=steps_per_second(start, problem, gradients=1))
    return trajectory_of(
        state.records,
        network=eqx.combine(state.weights, rest),
        rest=rest,
        problem=problem,
        time=request.learning_rate * state.step.astype(dtype),
        steps=state.step,
        rejected_steps=jnp.zeros_like(state.step),
        code=state.code,
        method="gradient descent",
        gradients=state.step + 1,
        products=jnp.zeros_like(state.step),
    )


def default_record_steps(steps: int, records: int = _RECORDS) -> np.ndarray:
    """Return about `records` of the steps 0, …, `steps`: most of them one by one, then pairs k, k + 1 spread
    geometrically.

    At the edge of stability everything alternates from one step to the next, and single records far apart would
    show a beat that is not there.
    """
    if steps < records:
        return np.arange(steps + 1)
    first = 3 * records // 4
    later = np.round(np.geomspace(first, steps, (records - first) // 2)).astype(int)
    return np.unique(np.concatenate([np.arange(first), later - 1, later]))


class _Request(eqx.Module):
    """The arguments of `descend`, checked."""

    network: eqx.Module
    problem: Problem
    stopping: Stopping
    instruments: Instruments
    learning_rate: Float[ArrayLike, ""]
    marks: Int[np.ndarray, " records"]

    def run(self) -> tuple["_Run", PyTree]:
        """Return the run that was asked for, and the weights that it starts from."""
        field, weights = gradient_field(self.network, self.problem)
        stopping, rate, marks = jax.tree.map(jnp.asarray, (self.stopping, self.learning_rate, self.marks))
        return _Run(field, stopping, self.instruments, rate, marks), weights


class _Run(eqx.Module):
    """All that stays the same during one descent."""

    field: GradientField
    stopping: Stopping
    instruments: Instruments
    learning_rate: Float[Array, ""]
    marks: Int[Array, " records"]


class _State(eqx.Module):
    """All that a descent needs to go on from where it is."""

    weights: PyTree
    gradient: PyTree
    step: Int[Array, ""]
    code: Int[Array, ""]
    ceiling: Float[Array, ""]
    records: Records


@eqx.filter_jit
def _begin(request: _Request, steps: Int[ArrayLike, ""]) -> _State:
    """Return the state after the first `steps` steps, or at the end if that comes first."""
    run, weights = request.run()
    objective, gradient = jax.value_and_grad(run.field.objective)(weights)
    ceiling = divergence_ceiling(objective)
    code = verdict(run.stopping, run.field, weights, objective, norm(gradient), ceiling)
    zero = jnp.zeros((), run.learning_rate.dtype)
    record = eqx.filter_eval_shape(run.instruments.measure, run.field, weights, zero, zero)
    records = empty_records(run.marks.size + 1, record)
    return _looped(run, _recorded(run, _State(weights, gradient, jnp.array(0), code, ceiling, records)), steps)


@eqx.filter_jit
def _advance(request: _Request, state: _State, steps: Int[ArrayLike, ""]) -> _State:
    """Return the state after `steps` more steps, or at the end if that comes first."""
    run, _ = request.run()
    return _looped(run, state, steps)


def _looped(run: _Run, state: _State, steps: Int[ArrayLike, ""]) -> _State:
    last = state.step + jnp.minimum(steps, run.marks[-1])

    def unfinished(current: _State) -> Bool[Array, ""]:
        return (current.code == Outcome.RUNNING) & (current.step < last)

    def to_next_record(current: _State) -> _State:
        target = jnp.minimum(run.marks[_upcoming(run, current)], last)
        arrived = jax.lax.while_loop(
            lambda s: (s.code == Outcome.RUNNING) & (s.step < target), lambda s: _step(run, s), current
        )
        exhausted = (arrived.code == Outcome.RUNNING) & (arrived.step >= run.marks[-1])
        code = jnp.where(exhausted, jnp.asarray(Outcome.STEP_LIMIT, arrived.code.dtype), arrived.code)
        return _recorded(run, eqx.tree_at(lambda s: s.code, arrived, code))

    return jax.lax.while_loop(unfinished, to_next_record, state)


def _step(run: _Run, state: _State) -> _State:
    weights = jax.tree.map(lambda w, g: w - run.learning_rate * g, state.weights, state.gradient)
    objective, gradient = jax.value_and_grad(run.field.objective)(weights)
    code = verdict(run.stopping, run.field, weights, objective, norm(gradient), state.ceiling)
    same = [jnp.all(old == new) for old, new in zip(*map(jax.tree.leaves, (state.weights, weights)), strict=True)]
    settled = (code == Outcome.RUNNING) & jnp.all(jnp.stack(same))
    code = jnp.where(settled, jnp.asarray(Outcome.FIXED_POINT, code.dtype), code)
    return _State(weights, gradient, state.step + 1, code, state.ceiling, state.records)


def _upcoming(run: _Run, state: _State) -> Int[Array, ""]:
    """Return the index of the first mark that has no record yet."""
    made = jnp.searchsorted(run.marks, state.step, side="right")
    return jnp.minimum(made, run.marks.size - 1)


def _recorded(run: _Run, state: _State) -> _State:
    """Return the state with a record added if the step is marked, or if the run has ended."""
    marked = run.marks[jnp.minimum(jnp.searchsorted(run.marks, state.step), run.marks.size - 1)] == state.step

    def add() -> Records:
        time = run.learning_rate * state.step.astype(run.learning_rate.dtype)
        record = run.instruments.measure(run.field, state.weights, time, norm(state.gradient))
        return state.records.add(record)

    wanted = marked | (state.code != Outcome.RUNNING)
    records = jax.lax.cond(wanted, add, lambda: state.records)
    return eqx.tree_at(lambda s: s.records, state, records)
