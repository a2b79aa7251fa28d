"""Runs from one initialization as columns over (run, record)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ..dynamics import Trajectory
from ..dynamics.trajectory import is_batch
from ..probes import Label, columns_of
from ..theory import minimal_sharpness_bounds_of
from .columns import Column, Columns
from .runs import FLOW, Edge, Run, numbered, run_coordinates
from .schema import BOUNDS, CRITICAL, MEASURES, RECORD, RUN, attributes


@dataclass(frozen=True)
class ComparedRun:
    """One run of gradient descent, or of other dynamics, compared to the flow.

    `run` is how results name it. `distance` is ‖W_GD(k) − W_GF(ηk)‖ at the records of the trajectory, NaN where the
    flow did not get so far; `distance_to_flow` is the distance at the last time that both reached, `distance_time`;
    `crossing_time` is the time ηk at which the sharpness first reaches the `edge` of stability, interpolated between
    records, or `None` if it never does, or is not known; for gradient descent that is the sharpness 2/η, and for other
    descents the curvature and threshold that `edge` names. `held_within` is the part of 2/η within which a model of
    descent is measured to hold the sharpness there, `None` for dynamics that do not.
    """

    run: Run
    trajectory: Trajectory
    distance: Float[np.ndarray, " records"]
    distance_to_flow: float
    distance_time: float
    crossing_time: float | None
    held_within: float | None = None

    @property
    def learning_rate(self) -> float | None:
        """The learning rate, `None` for dynamics without one."""
        return self.run.learning_rate

    @property
    def dynamics(self) -> str:
        """The name under which YAML knows the dynamics."""
        return self.run.dynamics

    @property
    def edge(self) -> Edge:
        """The edge of stability."""
        return self.run.edge

    @property
    def models(self) -> str:
        """The dynamics that the run models, "" if it models none."""
        return self.run.models

    @property
    def branch(self) -> str:
        """What a fork goes on from, as "step 400 of η = 0.02"; "" for any other run."""
        return self.run.branch


def trajectories_of(
    flow: Trajectory,
    others: Sequence[ComparedRun],
    *,
    bounds: tuple[float, float] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Columns:
    """Return a flow and the `others` compared to it, and everything that tables and figures show of them.

    Along the path, over (run, record): time, risk, excess risk, squared distance, gradient norm, sharpness, distance to
    the flow, and what else the runs recorded, padded with NaN after the number of `records` of each. At the end, over
    run: outcome, steps, times, `final_*`, distance to the flow, crossing of the edge of stability, and what the run
    took. `attrs` become attributes of the whole, mappings as JSON, and so do the `bounds` of Theorem 2 and
    the critical learning rate where they apply. The sharpness at the final weights is computed here, where it is not
    known yet.
    """
    forks = numbered(other.run.branch for other in others)
    runs = [FLOW, *(replace(other.run, fork=fork) for other, fork in zip(others, forks, strict=True))]
    return _columns_of(runs, flow, others, bounds, attrs)


def trajectory_columns(run: Trajectory, attrs: Mapping[str, Any] | None = None) -> Columns:
    """Return one run alone in the form of `trajectories_of`, the bounds of Theorem 2 with it where they apply.

    The distances to the flow, and where the run first reaches its edge of stability, are NaN. Raises `ValueError` for a
    batch of runs and inside `jax.jit`.
    """
    if is_batch(run):
        raise ValueError(
            f"this is of one run outside of jax.jit, found {run!r}: take one out of a batch by "
            "jax.tree.map(lambda leaf: leaf[0], runs), or look at the arrays"
        )
    bounds = minimal_sharpness_bounds_of(run.network, run.problem)
    alone = Run(run.dynamics)
    if run.learning_rate is not None:
        rate = float(run.learning_rate)
        edge = Edge.of_gradient_descent(rate)
        threshold = math.nan if run.sharpness_threshold is None else float(run.sharpness_threshold)
        # In single precision, 2/η and η are each rounded.
        if not math.isclose(threshold, edge.threshold, rel_tol=4 * float(np.finfo(run.learning_rate.dtype).eps)):
            edge = Edge(threshold)
        alone = Run(run.dynamics, rate, edge=edge)
    return _columns_of([alone], run, (), bounds, attrs)


def _columns_of(
    runs: Sequence[Run],
    leading: Trajectory,
    others: Sequence[ComparedRun],
    bounds: tuple[float, float] | None,
    attrs: Mapping[str, Any] | None,
) -> Columns:
    """Return the columns of `runs`: a leading trajectory, and the others compared to it."""
    theory = {} if bounds is None else dict(zip(BOUNDS, map(float, bounds), strict=True))
    if bounds is not None and bounds[0] != 0:
        theory[CRITICAL] = 2 / float(bounds[0])
    # netCDF has no mappings.
    more = {name: json.dumps(value) if isinstance(value, Mapping) else value for name, value in (attrs or {}).items()}
    columns = _over_records(leading, others) | _over_runs(leading, others)
    return Columns(columns, run_coordinates(runs), theory | more)


def _over_records(leading: Trajectory, others: Sequence[ComparedRun]) -> dict[str, Column]:
    """Return the columns of all runs over (run, record, …), NaN where a run has no value."""
    paths: list[dict[str, np.ndarray]] = []
    labels: dict[str, Label] = {}
    for run, distance in ((leading, None), *((other.trajectory, other.distance) for other in others)):
        path = {"time": np.asarray(run.times)}
        unknown = np.full(len(path["time"]), np.nan)
        measures = {name: getattr(run, name) for name in MEASURES} | {"distance": distance}
        path |= {name: unknown if values is None else np.asarray(values) for name, values in measures.items()}
        probed = list(columns_of(run.diagnostics))
        paths.append(path | {column: np.asarray(values) for _, column, values in probed})
        # A probe that measures a dict has several columns.
        of_columns = {column: run.labels[name].of(column) for name, column, _ in probed if name in run.labels}
        labels = run.labels | of_columns | labels

    columns: dict[str, Column] = {}
    counts = np.array([len(path["time"]) for path in paths])
    for name in dict.fromkeys(name for path in paths for name in path):
        arrays = [path.get(name, np.empty(0)) for path in paths]
        inner = max(array.ndim for array in arrays) - 1
        sizes = np.zeros((len(arrays), 1 + inner), int)
        for size, array in zip(sizes, arrays, strict=True):
            size[1 : array.ndim] = array.shape[1:]
        shape = len(arrays), counts.max(), *sizes.max(axis=0)[1:]
        padded = np.full(shape, np.nan, np.result_type(np.float32, *(array.dtype for array in arrays if array.size)))
        for row, array in zip(padded, arrays, strict=True):
            row[tuple(slice(size) for size in array.shape)] = array if array.size else np.nan
        dims = (RUN, RECORD, *(f"{name}_{axis}" for axis in range(inner)))
        columns[name] = Column(dims, padded, attributes(name, labels.get(name)))
    return columns | {"records": Column((RUN,), counts, attributes("records"))}


def _over_runs(leading: Trajectory, others: Sequence[ComparedRun]) -> dict[str, Column]:
    """Return the columns of all runs over (run,): how each ended, where, and what it took."""
    ends: list[dict[str, Any]] = []
    for run, compared in ((leading, None), *((other.trajectory, other) for other in others)):
        try:
            sharpness = float(run.final_sharpness)
        except RuntimeError:  # not certified
            sharpness = math.nan
        crossing = None if compared is None else compared.crossing_time
        end = {
            "outcome": int(run.outcome),
            "steps": int(run.steps),
            "rejected_steps": int(run.rejected_steps),
            "end_time": float(run.time),
            **{f"final_{name}": getattr(run, f"final_{name}") for name in MEASURES if name != "sharpness"},
            "final_sharpness": sharpness,
            "distance_to_flow": math.nan if compared is None else float(compared.distance_to_flow),
            "distance_time": math.nan if compared is None else float(compared.distance_time),
            "crossing_time": math.nan if crossing is None else float(crossing),
            "solver": run.method,
            "gradients": math.nan if run.gradients is None else float(run.gradients),
            "products": int(run.products),
            "loosened": float(run.loosened),
            "order": float(run.order),
        }
        ends.append(end)
    columns = {name: Column((RUN,), np.array([end[name] for end in ends]), attributes(name)) for name in ends[0]}
    # In a sweep, which keeps no path, the same name is that of the distance of the ends.
    columns["distance_to_flow"] = columns["distance_to_flow"]._replace(attrs=attributes("distance_at_common_time"))
    held = np.array([math.nan, *(math.nan if other.held_within is None else other.held_within for other in others)])
    if not np.isnan(held).all():
        columns["held_within"] = Column((RUN,), held, attributes("held_within"))
    return columns
