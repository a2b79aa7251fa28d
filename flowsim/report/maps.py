"""Maps over time: what is measured of each layer, and the spectrum of the Hessian, as colours beside each other."""

import json
from collections.abc import Sequence

import matplotlib
import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ..results.runs import RecordedRun
from ..results.schema import SHARPNESS
from .panels import NODES, Spectra, TrajectoryPanels, subsample
from .panels.panel import label_of
from .panels.view import TimeView
from .probes_table import ROWS
from .style import FLOW, STYLE, THRESHOLD, Drawing, run_look, set_ticks

MOST = 4
"""How many runs stand beside each other: the flow, and of the others those that are spread over all."""


def layer_figure(dataset: xarray.Dataset, name: str, *, most_names: int = 12) -> Figure | None:
    """Return the map of a quantity of each layer over time, one for each run, in one scale of colours.

    Layers are called by their names where there are at most so many. `None` where none of it is finite.
    """
    panels = TrajectoryPanels.of(dataset)
    names = json.loads(dataset[name].attrs.get("rows", "[]"))
    runs = _chosen(panels, name)
    if not runs:
        return None
    values = [run.along(name).astype(float).reshape(len(run.along("time")), -1) for run in runs]
    scale = _scale(values, logarithmic=bool(dataset[name].attrs.get("logarithmic", 1)))
    with matplotlib.rc_context(STYLE):
        figure, (row,) = _grid(1, runs)
        maps = []
        for axes, run, entries in zip(row, runs, values, strict=True):
            edges = np.arange(entries.shape[1] + 1) + 0.5
            maps.append(_draw_map(axes, run, edges, entries, scale, panels.view))
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set_title(run.run.label, fontsize=8)
            axes.set_xlabel(panels.time.label)
        if 0 < len(names) <= most_names:
            row[0].set_yticks(range(1, len(names) + 1), names)
        row[0].set_ylabel(ROWS[dataset[name].attrs["drawn"]])
        figure.colorbar(maps[-1], ax=list(row), label=label_of(name, dataset[name].attrs), pad=0.02)
    return figure


def spectrum_figure(dataset: xarray.Dataset) -> Figure | None:
    """Return the density of the eigenvalues of the Hessian along each run, and where it begins and ends.

    `None` where none of them is finite.

    Eigenvalues stand on an axis that is linear about zero and logarithmic beyond. The colour is the share of all of
    them in a bin, and lines are the sharpness and its edge. Where random vectors estimate it, what a node stands for is
    spread over the distance to an eigenvalue that its residual leaves open, and below stands the error of the mean.
    """
    panels = TrajectoryPanels.of(dataset)
    runs = _chosen(panels, NODES)
    if not runs:
        return None
    spectra = Spectra.of(runs)
    edges, linear, bottom = spectra.edges, spectra.linear, spectra.bottom
    means = spectra.means
    scale = _scale(means, logarithmic=True)
    with matplotlib.rc_context(STYLE):
        figure, (above, below) = _grid(2, runs)
        maps = []
        for axes, low, run, found, mean in zip(above, below, runs, spectra.shares, means, strict=True):
            maps.append(_draw_map(axes, run, edges, mean, scale, panels.view))
            _draw_sharpness(axes, run)
            axes.set_yscale("symlog", linthresh=linear, linscale=0.5)
            axes.set_ylim(edges[0], edges[-1])
            axes.set_title(run.run.label, fontsize=8)
            axes.set_xlabel(panels.time.label)
            _draw_ends(low, edges, found, bottom)
            low.set_xscale("symlog", linthresh=linear, linscale=0.5)
            low.set_xlim(edges[0], edges[-1])
            low.set_yscale("log")
            low.set_ylim(bottom=bottom)
            low.set_xlabel(r"eigenvalue $\lambda$")
        for axes in (*above, *below):
            _space_ticks(axes, spectra.ticks(step=1 if axes in set(above) else 2), upright=axes in set(above))
        above[0].set_ylabel(r"eigenvalue $\lambda$")
        below[0].set_ylabel("share in a bin")
        below[0].legend(loc="upper right")
        figure.colorbar(maps[-1], ax=list(above), label="share in a bin", pad=0.02)
    return figure


def _chosen(panels: TrajectoryPanels, name: str) -> list[RecordedRun]:
    """Return the flow, if it recorded the quantity, and of the other runs that did those that are spread over all."""
    known = [run for run in panels.shown.ordered if np.isfinite(run.along(name)).any()]
    flow = [run for run in known[:1] if run.run.is_flow]
    return [*flow, *subsample(known[len(flow) :], MOST - len(flow))]


def _grid(rows: int, runs: Sequence[RecordedRun]) -> tuple[Figure, np.ndarray]:
    """Return a figure with a column for each run, as wide as one or two columns of a paper."""
    width = 3.3 if len(runs) == 1 else 6.6
    figure = Drawing(figsize=(width, 2.0 * rows + 0.2), layout="constrained")
    drawn = figure.subplots(rows, len(runs), squeeze=False, sharey="row", sharex="row")
    for axes in drawn.ravel():
        set_ticks(axes)
    return figure, drawn


def _draw_map(
    axes: Axes,
    run: RecordedRun,
    edges: Float[np.ndarray, " entries+1"],
    values: Float[np.ndarray, "records entries"],
    scale: Normalize,
    view: TimeView,
) -> QuadMesh:
    """Draw values between the edges over the times of the records, each from halfway to the one before."""
    times = run.along("time")
    between = (times[1:] + times[:-1]) / 2
    sides = np.concatenate([times[:1], between, times[-1:] if len(times) > 1 else times[-1:] + 1])
    drawn = axes.pcolormesh(sides, edges, values.T, norm=scale, cmap="viridis", rasterized=True)
    if view.linear_until is not None:
        axes.set_xscale("symlog", linthresh=view.linear_until, linscale=0.4)
    axes.set_xlim(0, view.end)
    return drawn


def _scale(values: Sequence[np.ndarray], *, logarithmic: bool) -> Normalize:
    """Return the colours of all finite values: logarithmic where that is asked for and all of them are positive."""
    known = np.concatenate([one[np.isfinite(one)] for one in values])
    if not len(known):
        return Normalize(0, 1)
    if logarithmic and known.min() > 0:
        return LogNorm(known.min(), max(known.max(), 1.001 * known.min()))
    return Normalize(known.min(), known.max())


def _draw_sharpness(axes: Axes, run: RecordedRun) -> None:
    """Draw the sharpness over the map, and its edge of stability."""
    look = run_look(run.run)
    axes.plot(run.along("time"), run.along(SHARPNESS), color=FLOW["color"], linewidth=0.8)
    edge = run.edge_along(SHARPNESS)
    if np.isfinite(edge).any():
        axes.plot(run.along("time"), edge, **{**THRESHOLD, "color": look["color"]})


def _draw_ends(axes: Axes, edges: np.ndarray, shares: np.ndarray, bottom: float) -> None:
    """Draw the shares at the first and the last record that is known, with the error of an estimate."""
    known = np.flatnonzero(shares.sum(axis=(1, 2)) > 0)
    start = {"color": "0.75", "fill": True, "label": "start"}
    ends = ((known[0], start), (known[-1], {"color": "black", "linewidth": 0.8, "label": "end"}))
    for record, look in ends:
        mean, count = shares[record].mean(axis=0), shares.shape[1]
        axes.stairs(np.maximum(mean, bottom), edges, baseline=bottom, **look)
        if count > 1:
            error = shares[record].std(axis=0, ddof=1) / count**0.5
            low, high = np.maximum(mean - error, bottom), np.maximum(mean + error, bottom)
            sides = np.repeat(edges, 2)[1:-1]
            axes.fill_between(
                sides, np.repeat(low, 2), np.repeat(high, 2), color=look["color"], alpha=0.25, linewidth=0
            )


def _space_ticks(axes: Axes, ticks: Sequence[float], *, upright: bool) -> None:
    """Put ticks at few eigenvalues alone."""
    axis = axes.yaxis if upright else axes.xaxis
    axis.set_ticks(ticks)
    axis.set_minor_locator(NullLocator())
