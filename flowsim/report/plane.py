"""The paths of all runs in one plane of the weights."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.figure import Figure

from ..results.runs import RecordedRun
from .panels import TrajectoryPanels
from .panels.panel import data_limits
from .render_paper import legend_above
from .style import CROSSING, STYLE, set_ticks

PATH, SHARPEST = "path_weights", "path_sharpest"


def plane_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return the figures of the paths by name: "plane", and "sharpest_plane" where the top eigenvector is known."""
    panels = TrajectoryPanels.of(dataset)
    runs = [run for run in panels.shown.ordered if _known(run).any()]
    if not runs:
        return {}
    points = [run.along(PATH).astype(float)[_known(run)] for run in runs]
    calm = [path for run, path in zip(runs, points, strict=True) if run.outcome.name != "DIVERGED"] or points
    axes, shares = _components(np.concatenate(calm), 2)
    words = [f"component {number} ({share:.0%} of the variance)" for number, share in enumerate(shares, 1)]
    made = {"plane": _drawn(panels, runs, points, calm, axes, words)}
    sharpest = _sharpest(runs)
    if sharpest is not None:
        flat = np.concatenate(calm)
        across, _ = _components(flat - np.outer(flat @ sharpest, sharpest), 1)
        both = np.stack([across[0], sharpest])
        words = ["first component across", "along the sharpest direction"]
        made["sharpest_plane"] = _drawn(panels, runs, points, calm, both, words)
    return made


def _known(run: RecordedRun) -> np.ndarray:
    return np.asarray(np.isfinite(run.along(PATH).reshape(len(run.along("time")), -1)).all(axis=1))


def _components(points: np.ndarray, count: int) -> tuple[Float[np.ndarray, "count p"], Float[np.ndarray, " count"]]:
    """Return the first principal components of points about their mean, and the shares of the variance along them."""
    _, sizes, rows = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    shares = sizes**2 / max(float(np.sum(sizes**2)), np.finfo(float).tiny)
    missing = max(0, count - len(rows))
    return np.pad(rows, ((0, missing), (0, 0)))[:count], np.pad(shares, (0, missing))[:count]


def _sharpest(runs: Sequence[RecordedRun]) -> Float[np.ndarray, " p"] | None:
    """Return the last top eigenvector that is known of the first run that knows one, of length one."""
    for run in runs:
        found = run.along(SHARPEST).reshape(len(run.along("time")), -1).astype(float)
        known = np.flatnonzero(np.isfinite(found).all(axis=1))
        if known.size and found.shape[1] > 1:
            return found[known[-1]] / np.linalg.norm(found[known[-1]])
    return None


def _drawn(
    panels: TrajectoryPanels,
    runs: Sequence[RecordedRun],
    points: Sequence[np.ndarray],
    seen: Sequence[np.ndarray],
    axes: Float[np.ndarray, "2 p"],
    words: Sequence[str],
) -> Figure:
    """Return the figure of the paths in the plane of two vectors, with the common start and the ends marked.

    The sign of a vector is free: the first run goes to the right and up.
    """
    axes = np.where(axes @ (points[0][-1] - points[0][0]) < 0, -1, 1)[:, None] * axes
    keys = [key for key, run in panels.keyed_runs if _known(run).any()]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 3.0), layout="constrained")
        drawn = figure.add_subplot()
        set_ticks(drawn)
        for key, run, path in zip(keys, runs, points, strict=True):
            x, y = axes @ path.T
            look = {**key.look, "marker": "none"}
            drawn.plot(x, y, label=key.label, **look)
            if run.outcome.name != "DIVERGED":
                mark = {"marker": key.look.get("marker", "o"), "color": key.look["color"], "markeredgecolor": "black"}
                drawn.plot(x[-1:], y[-1:], linestyle="none", zorder=5, markersize=5, **mark)
        drawn.plot(*(axes @ points[0][:1].T), **{**CROSSING, "label": "start"})
        limits = axes @ np.concatenate(seen).T
        for values, limit in zip(limits, (drawn.set_xlim, drawn.set_ylim), strict=True):
            limit(data_limits(values))
        drawn.set_xlabel(words[0])
        drawn.set_ylabel(words[1])
        legend_above(figure)
    return figure
