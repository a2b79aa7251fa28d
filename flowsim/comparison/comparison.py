"""Gradient flow and gradient descent from one initialization, on one time axis: the result, and how runs compare."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array

from ..dynamics import Trajectory
from ..formatting import encodable
from ..formatting.presentation import Drawn
from ..networks import split
from ..probes import MovingEdge
from ..results.runs import Edge, Run
from ..results.schema import SHARPNESS
from ..results.trajectories import ComparedRun, trajectories_of
from .edge_statements import StatementsOfRuns, edge_statements
from .models import ModelRun, distances
from .sharpness_along import SharpnessAlong

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, repr=False)
class Comparison(Drawn):
    """The flow, the descents, and what theory says of the minimum that they reach.

    Printed, it is the table of the command line, as wide as the terminal, and so it is in a notebook; `repr` is a line.
    Table, figures and all else are those of the data set (`to_dataset`), and so the same once it is stored: only the
    trajectories here have networks, weights and paths. The first of these calls computes the sharpnesses at the ends.
    """

    flow: Trajectory
    """The run of the gradient flow."""
    descents: tuple[ComparedRun, ...]
    """Those of the descents, in the order of their learning rates."""
    bounds: tuple[float, float] | None
    """Those of Theorem 2 on the smallest sharpness S_min of all minimizers; `None` where it does not apply (nonlinear
    networks, several outputs)."""
    critical_learning_rate: float | None
    """2 over the lower bound, or `None`."""
    models: tuple[ComparedRun, ...] = ()
    """Flows that model the descents, one after the other for each learning rate."""

    def to_dataset(self, attrs: Mapping[str, Any] | None = None) -> "xarray.Dataset":
        """Return all runs as labelled arrays over (run, record), with `attrs` among the attributes."""
        theory = {"bounds": self.bounds, "critical_learning_rate": self.critical_learning_rate}
        return trajectories_of(self.flow, (*self.descents, *self.models), attrs=attrs, **theory)

    @property
    def statements(self) -> StatementsOfRuns:
        """The statements about descents at the edge of stability and their models, checked: see `edge_statements`."""
        return edge_statements(self.to_dataset())

    def __repr__(self) -> str:
        runs = (*self.descents, *self.models)
        others = [f"{Run(run.dynamics, run.learning_rate).name} {_end(run.trajectory)}" for run in runs]
        return encodable(f"Comparison({'; '.join([f'GF {_end(self.flow)}', *others])})")


def _end(run: Trajectory) -> str:
    return str(run.outcome).lower().replace("_", " ")


def compare_to_flow(flow: Trajectory, run: Trajectory, learning_rate: float, edge: Edge) -> ComparedRun:
    """Return a run that kept its weights, compared to the flow, which recorded at its times."""
    flow_times, times = np.asarray(flow.times), np.asarray(run.times)
    # A time ηk may miss the end of the flow by rounding alone.
    index = np.minimum(np.searchsorted(flow_times, times), len(flow_times) - 1)
    distance = np.array(distances(split(run.weights)[0], split(flow.weights)[0], index))
    rounding = 4 * np.finfo(times.dtype).eps
    beyond = times > flow_times[-1] * (1 + rounding)
    # Where a run ended at a time of its own, the flow has no record.
    distance[~beyond & (np.abs(flow_times[index] - times) > rounding * times)] = np.nan
    if not flow.outcome.stays:
        distance[beyond] = np.nan
    curvature = run.sharpness if edge.curvature == SHARPNESS else run.diagnostics.get(edge.curvature)
    threshold = run.diagnostics.get(MovingEdge().label.name, edge.threshold)
    time, last = _last_common(times, distance)
    return ComparedRun(
        learning_rate=float(learning_rate),
        trajectory=run,
        distance=distance,
        distance_to_flow=last,
        distance_time=time,
        crossing_time=_first_crossing(times, curvature, threshold),
        edge=edge,
        dynamics=run.dynamics,
    )


def compare_model_to_flow(flow: Trajectory, model: ModelRun, along: SharpnessAlong) -> ComparedRun:
    """Return the run of a model, with the sharpness along it, compared to the flow.

    The tolerance within which the model holds its sharpness is widened by that of the measured sharpness.
    """
    rate = model.learning_rate
    compared = compare_to_flow(flow, along.added_to(model.run), rate, model.edge)
    held_within = None if model.held_within is None else model.held_within + along.tolerance(model.run.network)
    return replace(compared, models=model.models, held_within=held_within)


def _first_crossing(times: np.ndarray, along: Array | None, threshold: float | Array) -> float | None:
    """Return the time at which the sharpness first reaches the threshold, between the records that know it.

    A threshold that moves is given at all records.
    """
    sharpness = np.full(len(times), np.nan) if along is None else np.asarray(along)
    if np.ndim(threshold):
        sharpness, threshold = sharpness / np.asarray(threshold), 1.0
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


def _last_common(times: np.ndarray, distance: np.ndarray) -> tuple[float, float]:
    """Return the last time at which a run and the flow can be compared, and their distance there.

    That is the last record whose distance is finite: the end of the run, or the last record before the flow ended
    elsewhere than at rest, or before the weights of a run that diverged left all bounds.
    """
    known = np.flatnonzero(np.isfinite(distance))
    return (float(times[known[-1]]), float(distance[known[-1]])) if len(known) else (math.nan, math.nan)
