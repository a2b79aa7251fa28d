"""The panels of the paths of all runs in a plane of the weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ...columns import RecordedRun
from ...dynamics import Outcome
from ..style import CROSSING
from .panel import Axis, Curve, Key, Panel, data_limits
from .trajectories import TrajectoryPanels

PATH, SHARPEST = "path_weights", "path_sharpest"
_START = Key("start", "start", "start", CROSSING)
_END: dict[str, Any] = {"markersize": 5.0, "markeredgecolor": "black", "zorder": 5}


def plane_panels(panels: TrajectoryPanels) -> list[Panel]:
    """Return the panels of the paths: "plane", and "sharpest_plane" where the top eigenvector is known.

    There are none where no path is known. A second line of the names of the axes says if the weights are projected.
    """
    runs = [run for run in panels.shown.ordered if _has_path(run).any()]
    if not runs:
        return []
    points = [run.along(PATH).astype(float)[_has_path(run)] for run in runs]
    calm = [path for run, path in zip(runs, points, strict=True) if run.outcome is not Outcome.DIVERGED] or points
    heading, said = "Paths of the weights", "paths of the weights"
    if calm[0].shape[1] == 2 and not _projected(panels):
        axes, words = np.eye(2), ["change of the first weight", "change of the second weight"]
    else:
        axes, shares = _components(np.concatenate(calm), 2)
        axes = _turned(axes, points[0])
        words = [f"component {number} ({share:.0%} of the variance)" for number, share in enumerate(shares, 1)]
        said += " in the plane of their two principal components"
    made = [_panel("plane", heading, said, panels, points, calm, axes, words)]
    sharpest = _sharpest(runs)
    if sharpest is not None:
        flat = np.concatenate(calm)
        across, _ = _components(flat - np.outer(flat @ sharpest, sharpest), 1)
        both = _turned(np.stack([across[0], sharpest]), points[0])
        words = ["first component across", "along the sharpest direction"]
        heading, said = (
            "Paths along the sharpest direction",
            "paths along the sharpest direction where the first run last knows it",
        )
        made.append(_panel("sharpest_plane", heading, f"{said}, and across", panels, points, calm, both, words))
    return made


def _projected(panels: TrajectoryPanels) -> str:
    """Return what axes say of weights that are projected, nothing of others."""
    said = str(panels.dataset[PATH].attrs.get("symbol", ""))
    return said if said.startswith("of ") else ""


def _has_path(run: RecordedRun) -> np.ndarray:
    """Return at which records the place of the weights is known."""
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


def _turned(axes: Float[np.ndarray, "2 p"], path: Float[np.ndarray, "records p"]) -> Float[np.ndarray, "2 p"]:
    """Return vectors, whose signs are free, with those by which a path goes to the right and up."""
    return np.where(axes @ (path[-1] - path[0]) < 0, -1, 1)[:, None] * axes


def _panel(
    name: str,
    heading: str,
    said: str,
    panels: TrajectoryPanels,
    points: Sequence[np.ndarray],
    seen: Sequence[np.ndarray],
    axes: Float[np.ndarray, "2 p"],
    words: Sequence[str],
) -> Panel:
    """Return the panel of the paths in the plane of two vectors, in view what is `seen`."""
    keyed = [(key, run) for key, run in panels.keyed_runs if _has_path(run).any()]
    curves, overlays = [], []
    for (key, run), path in zip(keyed, points, strict=True):
        x, y = axes @ path.T
        curves.append(Curve(key, x, y, look={"marker": "none"}, times=run.along("time")[_has_path(run)]))
        if run.outcome is not Outcome.DIVERGED:
            look = _END | {"marker": key.look.get("marker", "o")}
            overlays.append(Curve(key, x[-1:], y[-1:], line=False, named=False, look=look))
    overlays.append(Curve(_START, *(axes @ points[0][:1].T), line=False))
    limits = [data_limits(values) or (0.0, 1.0) for values in axes @ np.concatenate(seen).T]
    beside = _projected(panels)
    named = [f"{word}\n{beside}".strip() for word in words]
    x, y = (Axis(one, one, limit) for one, limit in zip(named, limits, strict=True))
    description = f"{said}, {beside}" if beside else said
    told = (("t", "t"), (words[0].partition(" (")[0], "x"), (words[1].partition(" (")[0], "y"))
    return Panel(name, heading, description, x, y, curves, overlays=overlays, told=told)
