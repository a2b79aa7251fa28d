"""The plots of the page from the descriptions of panels: which curves and points the browser gets."""

from collections.abc import Sequence

import numpy as np
import xarray

from ..panels import HEADINGS, Curve, Key, Panel, TrajectoryPanels
from ..panels.sweep import CRITICAL, DIVERGED, INK, SweepPanels
from ..panels.trajectories import columns
from ..probed import probe_names
from ..sweeps import runs
from .plot import (
    MOST_POINTS,
    MOST_POINTS_OF_CURVE,
    Curve as Drawn,
    Group,
    Key as DrawnKey,
    Level,
    Plot,
    Time,
    curve_of,
    key_of,
    points_of_each,
    subsample,
)

_ABOUT_RUNS = (
    "Every quantity that was recorded, of all runs, against one time. The slider moves through all plots at once; "
    "of an oscillation the band is its range and the line the middle of that; dashed lines are edges of stability, 2/η "
    "for gradient descent, dotted ones the bounds of Theorem 2 on S_min."
)
_ABOUT_SWEEP = (
    "Medians over the repetitions, of the flow at its limits or where it was to stop, with a band from the first "
    "quartile to the third and a faint point for each run; runs that diverged are left out. Dashed lines are edges of "
    "stability, 2/η for gradient descent, the dotted one is the lower bound of Theorem 2."
)


def plots_of_runs(dataset: xarray.Dataset, *, most_plots: int = 24) -> Group:
    """Return the plots of a data set of trajectories, of every quantity that was recorded along a run."""
    panels = TrajectoryPanels.of(dataset)
    known = [*HEADINGS, *probe_names(dataset)]
    names = [name for name in known if name in dataset and panels.is_followed(name)][:most_plots]
    most = points_of_each(len(panels.keys) * min(len(known), most_plots))
    plots = tuple(plot_of(panels.panel(name), most=most) for name in names)
    keys = tuple(map(drawn_key, panels.keys))
    time = panels.time
    first = time.linear[0] if time.log is None else time.log[0]
    shared = Time(time.linear[0], first, time.linear[1], time.logarithmic, time.last)
    series = {}
    for key, run in zip(keys, panels.shown.ordered, strict=True):
        along = {name: columns(run, name, 1)[0] for name in ("time", *names)}
        kept = np.array(subsample(range(len(along["time"])), most), int)
        series[key.name] = {name: column[kept] for name, column in along.items() if np.isfinite(column).any()}
    return Group("runs", "Along the runs", _ABOUT_RUNS, plots, keys, shared, series)


def plots_of_sweep(dataset: xarray.Dataset, *, facets: int = 6, others: int = 14) -> Group:
    """Return the plots of a sweep, one of each quantity for up to six combinations of the other dimensions.

    Where there are few runs, each is a point besides medians and quartiles.
    """
    panels = SweepPanels.of(dataset, facets=facets, others=others, points=MOST_POINTS // 4)
    diverged = any(bool(runs.diverged(dataset, run).any()) for run in runs.others(dataset))
    names = ["sharpness", runs.progress_measure(dataset), *([DIVERGED] if diverged else [])]
    if "critical_learning_rate_lower" in dataset:
        names = [CRITICAL, *names]
    plots = tuple(plot_of(panel) for name in names for panel in panels.panels(name))
    return Group("sweep", "Over the sweep", _ABOUT_SWEEP, plots, tuple(map(drawn_key, panels.keys)))


def plot_of(panel: Panel, *, most: int = MOST_POINTS_OF_CURVE) -> Plot:
    """Return the plot of a panel, with at most so many points of a curve.

    What a figure draws over the curves is left out: the page has plots of their own for it.
    """
    x, y = panel.x, panel.y
    curves = (_drawn(curve, x.places, most) for curve in panel.curves)
    return Plot(
        panel.name,
        panel.heading,
        panel.description,
        across=x.words,
        up=y.words,
        curves=tuple(curve for curve in curves if curve is not None),
        linear=y.linear,
        log=y.log,
        logarithmic=y.logarithmic,
        told=panel.told,
        x=x.limits,
        x_log=x.logarithmic,
        levels=tuple(
            Level(float(guide.value), None if guide.key is None else guide.key.name, dotted=guide.key is None)
            for guide in panel.guides
        ),
        ticks=x.ticks,
    )


def _drawn(curve: Curve, places: Sequence[str], most: int) -> Drawn | None:
    parts = {"x": curve.x, "y": curve.y} | ({} if curve.low is None else {"low": curve.low, "high": curve.high})
    if not curve.line:
        marks = range(len(curve.x))
        return Drawn(curve.key.name, parts, line=False, marks=marks, size=3.0, alpha=curve.alpha, told=False)
    if curve.key.name == INK:
        return Drawn(INK, parts, dash=(2, 3), told=False)
    if len(places) == len(curve.x):
        parts["place"] = list(places)
    marks = None if curve.marks is None else np.searchsorted(curve.x, curve.marks).tolist()
    return curve_of(drawn_key(curve.key), parts, marks=marks, most=most, alpha=curve.alpha)


def drawn_key(key: Key) -> DrawnKey:
    """Return what the page calls a run, and how it looks there."""
    return key_of(key.name, key.words, key.look, stays=key.stays)
