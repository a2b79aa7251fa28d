"""Gradient flow and gradient descent from one initialization, on one time axis."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .compiling import compiled
from .curvature import sharpness_along
from .dynamics import Descent, GradientDescent, Stopping, Trajectory, default_record_steps, descend, integrate
from .networks import split
from .probes import Probe
from .problems import Problem
from .theory import minimal_sharpness_bounds_of
from .trajectories import RunBesideFlow as RunBesideFlow, trajectories_of

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_RECORDS = 250
_MOST_BYTES = 2 * 10**9


@dataclass(frozen=True)
class Comparison:
    """The flow, the descents, and what theory says of the minimum that they reach.

    `bounds` are those of Theorem 2 on the smallest sharpness S_min of all minimizers, and
    `critical_learning_rate` is 2 over the lower one; both are `None` where the theorem does not apply
    (nonlinear networks, several outputs). Printed, it is the table of the command line.
    """

    flow: Trajectory
    descents: tuple[RunBesideFlow, ...]
    bounds: tuple[float, float] | None
    critical_learning_rate: float | None

    def to_dataset(self, attrs: Mapping[str, Any] | None = None) -> "xarray.Dataset":
        """Return all runs as labelled arrays over (run, record), with `attrs` among the attributes."""
        theory = {"bounds": self.bounds, "critical_learning_rate": self.critical_learning_rate}
        return trajectories_of(self.flow, self.descents, attrs=attrs, **theory)

    # What draws, prints and writes stands on a floor above this one, and is asked for when it is wanted.

    def figures(self) -> "dict[str, Figure]":
        """Return the figures by name: "squared_distance", "sharpness", and beside descents "distance"."""
        from .report import figures

        return figures(self.to_dataset())

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the data set, the summary and the figures into `folder`, and return their paths.

        `flowsim.open_results` reads them back. Raises `StoreError` where the folder holds other results, which
        `overwrite` gives up, and where it cannot be written.
        """
        from .report import save

        return save(self.to_dataset(), Path(folder), overwrite=overwrite)

    def __str__(self) -> str:
        from .report import printed, tables

        return "\n\n".join(map(printed, tables(self.to_dataset(), "")))

    def _repr_html_(self) -> str:
        from .report import table_as_html, tables

        return "".join(map(table_as_html, tables(self.to_dataset(), "")))


def compare(
    network: PyTree,
    problem: Problem,
    learning_rates: Sequence[float],
    *,
    steps: int = 4000,
    optimizer: Callable[[float], Descent] = GradientDescent,
    probes: Sequence[Probe | Callable[[Any], Any]] = (),
    records: int | None = None,
    stopping: Stopping | None = None,
    progress: Callable[[str], None] = lambda stage: None,
    **flow_options: Any,
) -> Comparison:
    """Run gradient flow, and gradient descent with each of `learning_rates` for `steps` steps, from
    `network`. `optimizer` makes another descent of each learning rate, and `probes` are recorded along all runs.

    All runs share the criterion `stopping`, and record their weights and sharpness at about `records` times
    each; the flow records at all of these times together, so that every distance is taken at equal times.
    That keeps 2 × (number of rates) × `records` copies of the weights: by default 250 records, fewer for a
    network so large that they would take more than 4 GB. `flow_options` go to `integrate` (`rtol`, `solver`, …);
    `progress` is called with a few words before each run. Raises as `integrate` and `descend` do.
    """
    learning_rates = _rates(learning_rates)
    records = _affordable_records(network, len(learning_rates)) if records is None else records
    if not (isinstance(records, int) and records >= 2):
        raise ValueError(f"records must be a whole number, two or more, got {records!r}")
    marks = default_record_steps(steps, records)
    runs = []
    for eta in learning_rates:
        progress(f"descent with η = {eta:g}")
        options = {"record_steps": marks, "stopping": stopping, "probes": probes, "weights": True}
        runs.append(descend(network, problem, optimizer=optimizer(eta), steps=steps, **options))
    progress("gradient flow")
    flow_options |= {"stopping": stopping, "probes": probes}
    if runs:
        times = _common_times([np.asarray(run.times) for run in runs], len(marks))
        flow = integrate(network, problem, ts=times, between=True, weights=True, **flow_options)
        progress("sharpness along the way")
        flow, *runs = [_with_sharpness(run) for run in (flow, *runs)]
    else:
        flow = integrate(network, problem, sharpness=True, **flow_options)
    bounds = minimal_sharpness_bounds_of(network, problem)
    return Comparison(
        flow=flow,
        descents=tuple(_beside(flow, run, eta) for run, eta in zip(runs, learning_rates, strict=True)),
        bounds=bounds,
        critical_learning_rate=None if bounds is None or bounds[0] == 0 else 2 / bounds[0],
    )


def _rates(given: Sequence[float]) -> tuple[float, ...]:
    """Return the learning rates; `ValueError` for what is no list of numbers."""
    rates = np.asarray(given)
    if rates.ndim != 1 or (rates.size and rates.dtype.kind not in "iuf"):
        raise ValueError(f"learning_rates must be a list of numbers, as [0.02, 0.1], got {given!r}")
    return tuple(rates.tolist())


def _common_times(times: list[np.ndarray], records: int) -> np.ndarray:
    """Return the times of all descents together, filled up to a fixed number with times that never come.

    A fixed number means that another comparison with the same settings does not compile again.
    """
    wanted = np.unique(np.concatenate(times))
    wanted = wanted[np.isfinite(wanted)]  # a descent that diverged at once may have none
    return np.append(wanted, np.full(len(times) * (records + 1) - len(wanted), np.inf))


def _affordable_records(network: PyTree, rates: int) -> int:
    """Return 250, or as many as let the descents keep their weights in 2 GB, but two at least."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(_weights(network)))
    return int(np.clip(_MOST_BYTES // (max(rates, 1) * max(size, 1)), 2, _RECORDS))


def _with_sharpness(run: Trajectory) -> Trajectory:
    """Return the run with the sharpness of the weights that it recorded."""
    assert run.path is not None  # every run of a comparison keeps its weights
    values = jax.device_put(sharpness_along(run.path, run.problem))
    return eqx.tree_at(lambda r: r.sharpness, run, values, is_leaf=lambda leaf: leaf is None)


def _beside(flow: Trajectory, run: Trajectory, learning_rate: float) -> RunBesideFlow:
    flow_times, times = np.asarray(flow.times), np.asarray(run.times)
    index = np.minimum(np.searchsorted(flow_times, times), len(flow_times) - 1)
    distance = np.array(_distances(_weights(run.path), _weights(flow.path), index))
    if not flow.converged:
        distance[times > flow_times[-1]] = np.nan
    ends = _distances(_with_axis(run.network), _with_axis(flow.network), np.array([0]))
    return RunBesideFlow(
        learning_rate=float(learning_rate),
        trajectory=run,
        distance=distance,
        distance_to_flow=float(ends[0]),
        crossing_time=_first_crossing(times, np.asarray(run.sharpness), 2 / learning_rate),
        dynamics=run.dynamics,
    )


@compiled
def _distances(ours: PyTree, theirs: PyTree, index: Int[Array | np.ndarray, " records"]) -> Float[Array, " records"]:
    squares = [
        jnp.sum((a - b[index]) ** 2, axis=tuple(range(1, a.ndim)))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    ]
    return jnp.sqrt(sum(squares))


def _weights(network: PyTree) -> PyTree:
    return None if network is None else split(network)[0]


def _with_axis(network: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[None], _weights(network))


def _first_crossing(times: np.ndarray, sharpness: np.ndarray, threshold: float) -> float | None:
    above = np.flatnonzero(sharpness >= threshold)
    if len(above) == 0:
        return None
    first = above[0]
    if first == 0:
        return float(times[0])
    t, s = times[first - 1 : first + 1], sharpness[first - 1 : first + 1]
    return float(np.interp(threshold, s, t))
