"""A run measured against the flow: how far it is from it, and when it reaches its edge of stability."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..dynamics import Trajectory
from ..networks import split
from ..results.runs import SHARPNESS, Edge
from ..results.trajectories import ComparedRun, last_common
from ..runtime.compiling import compiled
from .models import Followed
from .sharpness_course import SharpnessAlong


def beside(flow: Trajectory, run: Trajectory, learning_rate: float, edge: Edge) -> ComparedRun:
    """Return a run that kept its weights as it stands beside the flow, which recorded at its times."""
    flow_times, times = np.asarray(flow.times), np.asarray(run.times)
    # A time ηk may miss the end of the flow by rounding alone.
    index = np.minimum(np.searchsorted(flow_times, times), len(flow_times) - 1)
    distance = np.array(_distances(split(run.path)[0], split(flow.path)[0], index))
    rounding = 4 * np.finfo(times.dtype).eps
    beyond = times > flow_times[-1] * (1 + rounding)
    # A run that ends at a time of its own has no record of the flow beside its last one.
    distance[~beyond & (np.abs(flow_times[index] - times) > rounding * times)] = np.nan
    if not flow.outcome.stays:
        distance[beyond] = np.nan
    time, last = last_common(times, distance)
    return ComparedRun(
        learning_rate=float(learning_rate),
        trajectory=run,
        distance=distance,
        distance_to_flow=last,
        distance_time=time,
        crossing_time=_first_crossing(times, _curvature(run, edge.curvature), edge.threshold),
        edge=edge,
        dynamics=run.dynamics,
    )


def model_beside(flow: Trajectory, followed: Followed, along: SharpnessAlong) -> ComparedRun:
    """Return the run of a model with its sharpness along the way, as it stands beside the flow.

    To within what the model holds its sharpness comes within what that is measured.
    """
    rate = followed.learning_rate
    known = beside(flow, along.added_to(followed.run, pairs=False), rate, Edge.of_gradient_descent(rate))
    if followed.held_within is None:
        return known
    return replace(known, held_within=followed.held_within + along.tolerance(followed.run.network))


def _curvature(run: Trajectory, name: str) -> Array | None:
    """Return what is known along a run of the curvature that its threshold is about."""
    return run.sharpness if name == SHARPNESS else run.diagnostics.get(name)


@compiled
def _distances(ours: PyTree, theirs: PyTree, index: Int[Array | np.ndarray, " records"]) -> Float[Array, " records"]:
    squares = [
        jnp.sum((a - b[index]) ** 2, axis=tuple(range(1, a.ndim)))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    ]
    return jnp.sqrt(sum(squares))


def _first_crossing(times: np.ndarray, along: Array | None, threshold: float) -> float | None:
    """Return the time at which the sharpness first reaches the threshold, between the records that know it."""
    sharpness = np.full(len(times), np.nan) if along is None else np.asarray(along)
    known = np.flatnonzero(np.isfinite(sharpness))
    times, sharpness = times[known], sharpness[known]
    above = np.flatnonzero(sharpness >= threshold)
    if len(above) == 0:
        return None
    first = above[0]
    if first == 0:
        return float(times[0])
    t, s = times[first - 1 : first + 1], sharpness[first - 1 : first + 1]
    return float(np.interp(threshold, s, t))
