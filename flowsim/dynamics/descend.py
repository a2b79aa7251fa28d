"""Gradient descent and its kin: the gradient field discretized in steps of a learning rate."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import nondifferentiable_backward
from jaxtyping import ArrayLike, Int, PyTree

from ..formatting import ProgressCallback
from ..networks import split, warn_of_single_precision
from ..probes import Probe
from ..problems import Problem
from ..runtime.compiling import is_traced, with_standard_options
from ..solvers.field import check_step_count, checked_parts, constant
from .branches import BranchPoint
from .descent import Descent
from .driver import DescentProgress, drive
from .gradient_descent import GradientDescent
from .integrate import check_end_time
from .learning_rates import LearningRate
from .loop import Request
from .optimizers import as_descent
from .records import AtSteps, instruments
from .stopping import Stopping, stopping_for
from .trajectory import Trajectory, as_times, trajectory_of

if TYPE_CHECKING:
    import optax

_NOT_BACKWARDS = (
    "a descent has no derivative in reverse mode (jax.grad, jax.vjp, jax.jacrev), as its number of steps is not known "
    "beforehand: differentiate it forwards, with jax.jvp or jax.jacfwd in the few numbers that it depends on"
)


@with_standard_options
def descend(
    network: PyTree,
    problem: Problem,
    *,
    learning_rate: "float | LearningRate | Callable[[Any], Any] | None" = None,
    optimizer: "Descent | optax.GradientTransformation | None" = None,
    steps: int,
    t1: float = math.inf,
    record_steps: ArrayLike | None = None,
    stopping: Stopping | None = None,
    diagnostics: Mapping[str, Callable[[Any], Any]] | None = None,
    probes: Sequence[Probe | Callable[[Any], Any]] = (),
    sharpness: bool = False,
    weights: bool = False,
    states: bool = False,
    after: BranchPoint | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | ProgressCallback | None = None,
) -> Trajectory:
    """Run gradient descent W ← W − η∇R(W) for at most `steps` steps with `learning_rate` η, or another `optimizer`.

    It ends early by the criteria of `stopping`, when the risk diverges, or when a step changes no weight in floating
    point, where all later steps would stay. A run that diverges is returned, not raised. Time is η·k after k steps, or
    what else the optimizer says of its steps (`Descent.time_of_step`), so that it is that of the flow that they follow.
    What records hold is as in `integrate`.

    A learning rate, that of an optimizer too, may change in time (`flowsim.LearningRate`), as `flowsim.WarmUp` does, or
    any function of time, not of steps as Optax's: then it is recorded, and with it the edge of stability that moves.

    Works without `checkpoint` under `jax.jit` and `jax.vmap`, with a traced `learning_rate` too, and under `jax.jvp`
    and `jax.jacfwd`.

    Args:
        network: The weights before the first step: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        learning_rate: η of gradient descent; not beside an `optimizer`.
        optimizer: A `flowsim.Descent`, which holds its learning rate itself, or any `optax.GradientTransformation`, the
            steps of which count one by one (`flowsim.Optax` gives them another time).
        steps: The largest number of steps.
        t1: The time at which the run ends at the latest: with the first step that reaches it, up to rounding.
        record_steps: Increasing numbers of the steps at which records are made, beside the one at the end; by default
            `default_record_steps(steps)`, some 250, dense at first.
        stopping: When the run counts as converged, as in `integrate`.
        diagnostics: Functions of the network, by name, which return floating-point arrays to be recorded.
        probes: What else is recorded: a `flowsim.Probe`, or a function of the network.
        sharpness: Whether to record the sharpness.
        weights: Whether to record the weights, as `Trajectory.weights`.
        states: Whether to record what the optimizer remembers, from which another descent may go on.
        after: The record of another run, `run.branch(step)`, from which this one goes on. To `stopping`, the distance
            travelled is that from where the other run began.
        checkpoint: A file for the state of the run, as in `integrate`.
        checkpoint_seconds: Seconds between two checkpoints.
        progress: As in `integrate`; it counts steps of `steps`, fewer where the run ends early.

    Returns:
        The run: its records, where it ended, and why.

    Raises:
        ValueError: For arguments that cannot be right, and for a risk or a gradient that is NaN or infinite at the
            start, with the place in the network; inside `jax.jit` and `jax.vmap` such a run has diverged.
        TypeError: For arguments of another type.
        RuntimeError: Where it is differentiated backwards.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> descent = flowsim.descend(jnp.array([1.0, 1.0]), bowl, learning_rate=0.1, steps=20)
        >>> print(descent.outcome, int(descent.steps))
        STEP_LIMIT 20
    """
    network, rest, dtype = checked_parts(network, problem)
    warn_of_single_precision(network)
    begin, made, start = None, 0, network
    if after is not None:
        if not isinstance(after, BranchPoint):
            raise TypeError(f"after must be a place to go on from, as run.branch(400), got {after!r}")
        shapes = [
            jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (split(network)[0], after.weights)
        ]
        if jax.tree.structure(shapes[0]) != jax.tree.structure(shapes[1]) or shapes[0] != shapes[1]:
            raise ValueError("the run to go on from was one of another network: expected weights of the same shapes")
        start, network = eqx.combine(split(after.run.start)[0], rest), eqx.combine(after.weights, rest)
    if (optimizer is None) == (learning_rate is None):
        raise ValueError("give either a learning_rate, for gradient descent, or an optimizer, which holds its own")
    descent = GradientDescent(learning_rate) if optimizer is None else as_descent(optimizer)
    dynamics = descent.checked(dtype)
    check_step_count("steps", steps)
    check_end_time(t1)
    stopping = stopping_for(stopping, problem, dtype)
    if after is not None:
        begin, made = after.begin(dynamics, problem, stopping), after.step
    default = default_record_steps(steps, evenly=dynamics.is_scheduled())
    marks = made + default if record_steps is None else as_times(record_steps, "record_steps", whole=True)
    if marks[0] < made:
        raise ValueError(f"record_steps count the steps of the whole run, here from {made} on, got {marks[0]}")
    steps += made
    # The last step replaces all later marks. With as many as before, another number of steps compiles nothing.
    marks = np.minimum(marks, steps) if marks[-1] >= steps else np.append(marks, steps)
    request = Request(
        network=start,
        problem=problem,
        dynamics=dynamics,
        stopping=stopping,
        schedule=AtSteps(marks),
        instruments=instruments(
            network, dynamics, diagnostics, probes, sharpness=sharpness, weights=weights, states=states
        ),
        t1=constant(t1 * (1 - 4 * float(jnp.finfo(dtype).eps)), dtype),
        max_steps=constant(steps, jnp.result_type(int)),
        begin=begin,
    )
    if states and is_traced(request):
        raise ValueError("states are kept of one run: call descend outside jit and vmap to go on from its records")
    state = drive(
        request,
        progress=progress,
        measure=DescentProgress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
    )
    # Backwards, a loop of unknown length has no end to begin at.
    state = nondifferentiable_backward(state, msg=_NOT_BACKWARDS) if is_traced(state) else state
    return trajectory_of(state, request, rest)


def default_record_steps(
    steps: int, records: int = 250, *, in_a_row: int = 2, evenly: bool = False
) -> Int[np.ndarray, " marks"]:
    """Return some of the steps 0, …, `steps`, to be recorded: most of them one by one, the others spread geometrically.

    At the edge of stability iterates alternate from one step to the next: single records far apart would show a beat
    that does not exist.

    Args:
        steps: The number of the last step.
        records: About how many are returned.
        in_a_row: How many of those that are spread stand next to each other: by default pairs k, k + 1.
        evenly: Whether only a quarter are one by one, and the others spread evenly, for what may happen late in a run.

    Returns:
        The numbers of the steps, in increasing order.
    """
    if steps < records:
        return np.arange(steps + 1)
    first = records // 4 if evenly else 3 * records // 4
    spaced = np.linspace if evenly else np.geomspace
    later = np.round(spaced(first, steps, (records - first) // in_a_row)).astype(int)
    return np.unique(np.concatenate([np.arange(first), *(later - back for back in range(in_a_row))]))
