"""Flows, integrated to their limit."""

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import nondifferentiable
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, PyTree

from ..formatting import ProgressCallback
from ..kinds import got
from ..networks import warn_of_single_precision
from ..probes import Probe
from ..problems import Problem
from ..runtime.compiling import is_traced, with_standard_options
from ..solvers.field import check_step_count, checked_parts, constant
from .descent import Descent
from .driver import FlowProgress, drive
from .dynamics import Dynamics
from .flow import Flow, GradientFlow
from .loop import Request
from .records import AtTimes, Spread, instruments
from .stopping import Stopping, stopping_for
from .trajectory import Trajectory, as_times, trajectory_of

MAX_STEPS = 1_000_000
"""After how many steps a flow ends by default."""
_NOT_DIFFERENTIABLE = (
    "a flow whose steps adapt has no derivative (jax.grad, jax.jvp and their kin): take differences of two flows at "
    "small tolerances, or differentiate flowsim.descend forwards, with jax.jvp or jax.jacfwd"
)


@with_standard_options
def integrate(
    network: PyTree,
    problem: Problem,
    *,
    model: Dynamics | None = None,
    solver: diffrax.AbstractAdaptiveSolver | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    t1: float | Array = float("inf"),
    max_steps: int = MAX_STEPS,
    ts: ArrayLike | None = None,
    between: bool = False,
    records: int | None = None,
    stopping: Stopping | None = None,
    diagnostics: Mapping[str, Callable[[Any], Any]] | None = None,
    probes: Sequence[Probe | Callable[[Any], Any]] = (),
    sharpness: bool = False,
    weights: bool = False,
    stepsize_controller: diffrax.AbstractAdaptiveStepSizeController | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | ProgressCallback | None = None,
) -> Trajectory:
    """Integrate a flow from `network` to its limit: the gradient flow dW/dt = −∇R(W), or another `model`.

    Steps adapt to `rtol` and `atol`. The run ends with `stopping`, at time `t1`, or after `max_steps` steps, whichever
    comes first: see `Trajectory.outcome`. A run that does not converge is returned, not raised.

    Each record holds the risk, excess risk, squared distance and gradient norm, and what `diagnostics`, `probes`,
    `sharpness` and `weights` ask for. Without `ts`, records are spread over plateau, fast phase and approach, and steps
    are kept short enough for that: `ts=[]` leaves only the record at the end, and is the fastest way to the limit.

    Where the gradient jumps, as that of a ReLU network does, no step meets its tolerance: flowsim's explicit solvers
    loosen it then, and a warning says by how much, as does `loosened`.

    Works under `jax.jit` and `jax.vmap` without `checkpoint`.

    Args:
        network: The weights at time 0: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        model: Dynamics with adaptive steps, which holds its solver and tolerances itself; by default the gradient flow.
        solver: Any Diffrax ODE solver with an error estimate. The default follows from the problem
            (`flowsim.solvers.default_solver`), and `Trajectory.method` names it. The steps of an explicit Diffrax
            solver never exceed what the sharpness allows it (`SharpnessLimitedController`).
        rtol: Relative tolerance of a step; by default 1e-6, in float32 1e-4.
        atol: Absolute tolerance of a step, beside which smaller weights are not followed; by default 0.
        t1: The time at which the run ends at the latest.
        max_steps: The number of steps, accepted and rejected, after which it ends.
        ts: Increasing times of records, reached exactly; there is one at the end in any case. Under `jax.jit` they may
            be traced, and are not checked then.
        between: Whether to record where much happens between the times `ts`, too.
        records: Without `ts`, the largest number of records, half as many at least; by default 128.
        stopping: When the run counts as converged; by default ‖∇R‖ ≤ 1e-8, in float32 1e-4.
        diagnostics: Functions of the network, by name, which return floating-point arrays to be recorded.
        probes: What else is recorded: a `flowsim.Probe`, or a function of the network.
        sharpness: Whether to record the sharpness, which costs more than the flow.
        weights: Whether to record the weights, as `Trajectory.weights`, which costs more than the flow.
        stepsize_controller: Replaces the step control altogether, and then holds the tolerances.
        checkpoint: A file to which the state is written every `checkpoint_seconds` and at the end. Where it exists, the
            run goes on from it and ends, bit for bit, as without the interruption.
        checkpoint_seconds: Seconds between two checkpoints.
        progress: With True a bar on standard error, or in a notebook, shows the time left; with `None` it does so at a
            prompt or in a notebook, after two seconds, not in scripts that `python` runs. A function is called with a
            `flowsim.Progress` about twice a second, and when something is compiled. What counts is the nearest of the
            criteria that may end the run: time of a finite `t1`, steps of `max_steps`, or the decades by which ‖∇R‖,
            the risk or the excess risk has fallen of those that it has to fall, so that a plateau shows as one. It
            changes no result and compiles nothing; under `jax.jit` and `jax.vmap` it is left out.

    Returns:
        The run: its records, where it ended, and why.

    Raises:
        ValueError: For arguments that cannot be right; for weights that the risk has no derivative in, as behind
            `jax.lax.stop_gradient`, and a model that draws random numbers; and for a risk or a gradient that is NaN or
            infinite at the start, with the place in the network; inside `jax.jit` and `jax.vmap` such a run has
            diverged.
        TypeError: For arguments of another type.
        RuntimeError: Where it is differentiated.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> flow = flowsim.integrate(jnp.array([1.0, 1.0]), bowl)
        >>> print(flow.outcome)
        CONVERGED
    """
    network, rest, dtype = checked_parts(network, problem)
    warn_of_single_precision(network)
    check_step_count("max_steps", max_steps)
    dynamics = flow_of(model, solver, stepsize_controller, rtol, atol).checked(dtype)
    check_end_time(t1)
    if ts is not None and records is not None:
        raise ValueError("records are made at the times ts, or at so many times of the flow's own choice: give one")
    if ts is not None:
        # Times that a program computes are not known here: only their number is.
        times = jnp.ravel(ts) if isinstance(ts, Tracer) else as_times(ts, "ts")
        schedule = AtTimes(constant(times, dtype), between)
    elif records is None:
        schedule = Spread()
    elif not isinstance(records, int | np.integer) or isinstance(records, bool) or records < 2:
        raise ValueError(f"records must be a whole number, two or more, got {records!r}")
    else:
        schedule = Spread(int(records) // 2 * 2)
    request = Request(
        network=network,
        problem=problem,
        dynamics=dynamics,
        stopping=stopping_for(stopping, problem, dtype),
        schedule=schedule,
        instruments=instruments(network, dynamics, diagnostics, probes, sharpness=sharpness, weights=weights),
        t1=constant(t1, dtype),
        max_steps=constant(max_steps, jnp.result_type(int)),
    )
    if is_traced((network, problem)):
        # The control of the steps has no derivative, nor does where they end.
        request = nondifferentiable(request, msg=_NOT_DIFFERENTIABLE)
    state = drive(
        request,
        progress=progress,
        measure=FlowProgress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
    )
    # What the functions of a problem read may be differentiated, too.
    state = nondifferentiable(state, msg=_NOT_DIFFERENTIABLE) if is_traced(state) else state
    trajectory = trajectory_of(state, request, rest)
    if not isinstance(trajectory.loosened, Tracer) and float(trajectory.loosened) > 1:
        # The text has no number, and the line is the user's: Python shows it once for all flows of a call.
        package, frame, level = __name__.partition(".")[0], sys._getframe(), 1
        while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == package:
            frame, level = frame.f_back, level + 1
        warnings.warn(
            "the gradient jumps on the way, as that of a ReLU network does: steps could not meet rtol, and were "
            "allowed larger errors (`loosened` of the trajectory is how many times larger); no digit of where it ends "
            "is certain, as with another rtol or solver it may end elsewhere",
            stacklevel=level,
        )
    return trajectory


def flow_of(
    model: Dynamics | None = None,
    solver: diffrax.AbstractAdaptiveSolver | None = None,
    stepsize_controller: diffrax.AbstractAdaptiveStepSizeController | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Dynamics:
    """Return the flow that `integrate` runs with these options: the gradient flow, or the `model`, which has its own.

    Raises `ValueError` or `TypeError` where they do not go together.
    """
    options = (solver, stepsize_controller, rtol, atol)
    if model is None:
        return GradientFlow(*options)
    if not isinstance(model, Dynamics) or isinstance(model, Descent):
        found = got(model, Flow, needs=("learning_rate", "optimizer"))
        remedy = "" if ": " in found else ": use flowsim.descend(..., optimizer=...) for steps of a learning rate"
        raise TypeError(f"model must be a flow, such as flowsim.GradientFlow(), got {found}{remedy}")
    if any(option is not None for option in options):
        raise ValueError("with a model, give solver, stepsize_controller, rtol and atol to it, not to integrate")
    return model


def check_end_time(t1: Any) -> None:
    """Raise `ValueError` for what is no time at which a flow could end."""
    if not isinstance(t1, jax.Array) and not (np.ndim(t1) == 0 and np.asarray(t1).dtype.kind in "iuf" and t1 >= 0):
        raise ValueError(f"t1 must be a number, zero or more, got {t1!r}")
