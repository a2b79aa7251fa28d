"""Gradient flow and gradient descent from one initialization, on one time axis: the result, and how runs compare."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array

from ..columns import SHARPNESS, Columns, ComparedRun, Run, trajectories_of
from ..dynamics import Trajectory
from ..edge import DescentModel
from ..formatting import encodable
from ..formatting.presentation import Drawn
from ..networks import split, weight_dtype
from ..probes import MovingEdge
from ..theory import minimal_sharpness_bounds_of
from .centres import distances
from .edge_statements import StatementsOfRuns, edge_statements
from .measure import Runs, SharpnessAlong

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
    models: tuple[ComparedRun, ...] = ()
    """Flows that model the descents, one after the other for each learning rate."""

    @classmethod
    def of(cls, runs: Runs, along: SharpnessAlong) -> "Comparison":
        """Compare the runs of a plan.

        Args:
            runs: The runs, among them one flow, with what was measured of them.
            along: How the sharpness was followed: its error widens the tolerance within which a model holds its own.

        Returns:
            The comparison, with what theory says of the minimum.
        """
        (flow,) = (run for spec, run in runs.items() if spec.is_flow)
        descents, models = [], []
        for spec, run in runs.items():
            if spec.is_descent:
                branch = ""
                if spec.start is not None:
                    trunk = spec.start.of
                    branch = f"step {min(spec.start.step, int(runs[trunk].steps))} of {trunk.run.name}"
                descents.append(compare_to_flow(flow, run, replace(spec.run, branch=branch)))
            elif spec.follows is not None:
                assert isinstance(spec.dynamics, DescentModel)
                within = spec.dynamics.held_within(weight_dtype(run.network))
                within = None if within is None else within + along.tolerance(run.network)
                models.append(compare_to_flow(flow, run, spec.run, held_within=within))
        bounds = minimal_sharpness_bounds_of(flow.network, flow.problem)
        return cls(flow, tuple(descents), bounds, tuple(models))

    @property
    def critical_learning_rate(self) -> float | None:
        """2 over the lower bound, above which no minimizer is stable; `None` without bounds."""
        return None if self.bounds is None or self.bounds[0] == 0 else 2 / self.bounds[0]

    def to_dataset(self, attrs: Mapping[str, Any] | None = None) -> "xarray.Dataset":
        """Return all runs as labelled arrays over (run, record), with `attrs` among the attributes."""
        return self.to_columns(attrs).to_xarray()

    def to_columns(self, attrs: Mapping[str, Any] | None = None) -> Columns:
        """Return what `to_dataset` returns as columns of NumPy arrays, for which xarray is not needed."""
        return trajectories_of(self.flow, (*self.descents, *self.models), bounds=self.bounds, attrs=attrs)

    @property
    def statements(self) -> StatementsOfRuns:
        """The statements about descents at the edge of stability and their models, checked: see `edge_statements`."""
        return edge_statements(self.to_columns())

    def __repr__(self) -> str:
        runs = (*self.descents, *self.models)
        ends = [("GF", self.flow.outcome), *((run.run.name, run.trajectory.outcome) for run in runs)]
        words = "; ".join(f"{name} {outcome.words}" for name, outcome in ends)
        return encodable(f"Comparison({words})")


def compare_to_flow(
    flow: Trajectory, trajectory: Trajectory, run: Run, *, held_within: float | None = None
) -> ComparedRun:
    """Return a run that kept its weights, compared to the flow, which recorded at its times."""
    flow_times, times = np.asarray(flow.times), np.asarray(trajectory.times)
    # A time ηk may miss the end of the flow by rounding alone.
    index = np.minimum(np.searchsorted(flow_times, times), len(flow_times) - 1)
    distance = np.array(distances(split(trajectory.weights)[0], split(flow.weights)[0], index))
    rounding = 4 * np.finfo(times.dtype).eps
    beyond = times > flow_times[-1] * (1 + rounding)
    # Where a run ended at a time of its own, the flow has no record.
    distance[~beyond & (np.abs(flow_times[index] - times) > rounding * times)] = np.nan
    if not flow.outcome.stays:
        distance[beyond] = np.nan
    # The last record whose distance is finite: the end of the run, or the last record before the flow ended elsewhere
    # than at rest, or before the weights of a run that diverged left all bounds.
    comparable = np.flatnonzero(np.isfinite(distance))
    last = comparable[-1] if len(comparable) else None
    curvature = run.edge.curvature
    along = trajectory.sharpness if curvature == SHARPNESS else trajectory.diagnostics.get(curvature)
    threshold = trajectory.diagnostics.get(MovingEdge().label.name, run.edge.threshold)
    return ComparedRun(
        run=run,
        trajectory=trajectory,
        distance=distance,
        distance_to_flow=math.nan if last is None else float(distance[last]),
        distance_time=math.nan if last is None else float(times[last]),
        crossing_time=_first_crossing(times, along, threshold),
        held_within=held_within,
    )


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
