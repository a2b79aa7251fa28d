"""Panels that show something against one dimension of a sweep, a curve for each run."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from ...results.runs import Run
from ..panels import LABELS as LABELS
from ..style import BOUND, FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS, THRESHOLD, THRESHOLD_ID, run_look
from . import runs
from .intervals import Interval, quartiles, share_interval

AXIS_NAMES = {
    "scale": "scale of the initialization",
    "depth": r"depth $L$",
    "condition": r"condition number $\Lambda/\lambda$",
    "samples": r"samples $n$",
    "features": r"features $d$",
}
INITIAL: dict[str, Any] = {"color": "0.45", "linewidth": 1.0, "linestyle": (0, (6, 1.5, 1, 1.5)), "zorder": 2.6}
_BAND_ALPHA, _FLOW_BAND_ALPHA = 0.22, 0.14
_MOST_TICKS = 6
MEDIANS = "medians of runs that did not diverge, of GF at its limits or where it was to stop; bands: quartiles"
SHARES = "shares of all runs; whiskers: 95 % intervals (Wilson)"
# Between neighbouring learning rates, in parts of the distance between points.
_WHISKER_SPACING = 0.07
_HIGHEST_THRESHOLD = 1e150


def draw_final(axes: Axes, part: xarray.Dataset, shown: Sequence[Run], quantity: str) -> None:
    """Draw median and quartiles of `quantity` at the end of each run, over those that did not diverge.

    `part` has one dimension besides those of repetitions and learning rates. Descents that all diverged, and flows
    that all missed their limit, leave a gap.
    """
    for run in shown:
        values = runs.final(part, run, quantity).transpose(..., runs.REPETITION).values
        draw_interval(axes, positions(part), quartiles(values), run.label, run_look(run))


def draw_initial(axes: Axes, part: xarray.Dataset, quantity: str) -> None:
    """Draw median and quartiles of `quantity` at initialization."""
    values = part[f"initial_{quantity}"].transpose(..., runs.REPETITION).values
    draw_interval(axes, positions(part), quartiles(values), "initialization", INITIAL)


def draw_divergence(axes: Axes, part: xarray.Dataset, shown: Sequence[Run]) -> None:
    """Draw the share of each run that diverged, with whiskers moved aside where they would overlap."""
    x = positions(part)
    aside = _WHISKER_SPACING * (x[-1] - x[0]) / max(1, len(x) - 1)
    for number, run in enumerate(shown):
        events = runs.diverged(part, run).sum(runs.REPETITION).values
        trials = runs.asked(part, run).sum(runs.REPETITION).values
        found, curve = share_interval(events, trials), run_look(run)
        places = x + aside * (number - (len(shown) - 1) / 2)
        axes.vlines(places, found.low, found.high, color=curve["color"], linewidth=1.0, zorder=2.2)
        axes.plot(places, found.estimate, label=run.label, **curve)
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("probability of divergence")


def draw_interval(axes: Axes, x: np.ndarray, drawn: Interval, label: str, curve: dict[str, Any]) -> None:
    """Draw a curve and, lighter, its band; a band of no width is left out."""
    alpha = _FLOW_BAND_ALPHA if curve is FLOW_LOOK else _BAND_ALPHA
    lone = {"marker": "o"} if np.isfinite(drawn.estimate).sum() == 1 and "marker" not in curve else {}
    axes.plot(x, drawn.estimate, label=label, **{**curve, **lone})
    if np.any(drawn.high > drawn.low):
        order = {"zorder": curve["zorder"] - 1, "linewidth": 0}
        axes.fill_between(x, drawn.low, drawn.high, color=curve["color"], alpha=alpha, **order)


def draw_thresholds(axes: Axes, shown: Sequence[Run]) -> None:
    """Draw 2/η of every learning rate, dashed and in its colour.

    That of a rate so small that a logarithmic axis would have no room above it is left out.
    """
    for run in shown:
        if run.threshold < _HIGHEST_THRESHOLD:
            axes.axhline(run.threshold, color=run_look(run)["color"], gid=THRESHOLD_ID, **THRESHOLD)


def draw_bound(axes: Axes, x: np.ndarray, bound: np.ndarray, name: str) -> None:
    """Draw a bound, dotted, across the panel where it is the same everywhere, with its name beside it."""
    bound = np.broadcast_to(bound, x.shape)
    if not np.isfinite(bound).any():
        return
    if np.allclose(bound, bound[0], rtol=1e-9):
        axes.axhline(bound[0], **BOUND)
    else:
        axes.plot(x, bound, **BOUND)
    place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
    axes.annotate(name, xy=(1.0, bound[-1]), xytext=(2, 0), va="center", fontsize=6.5, **place)


def name_statistic(figure: Figure, statistic: str) -> None:
    """Write below the panels what the curves and bands are, in as many lines as it takes."""
    text = figure.supxlabel(statistic, fontsize=6)
    for lines in range(1, len(statistic.split()) + 1):
        text.set_text(textwrap.fill(statistic, math.ceil(len(statistic) / lines)))
        if text.get_window_extent().width <= figure.bbox.width:
            break


def axis_name(part: xarray.Dataset) -> str:
    """Return the one dimension of `part` along which a panel goes."""
    return runs.grid(part)[0]


def label_of_axis(part: xarray.Dataset) -> str:
    """Return how the horizontal axis is called."""
    name = axis_name(part)
    return AXIS_NAMES.get(name, name.replace("_", " "))


def positions(part: xarray.Dataset) -> np.ndarray:
    """Return where the points stand: at the values of the dimension, or evenly where those are no numbers."""
    values = part[axis_name(part)].values
    return values.astype(float) if values.dtype.kind in "iuf" else np.arange(len(values), dtype=float)


def set_axis(axes: Axes, part: xarray.Dataset) -> None:
    """Set scale, ticks and name of the horizontal axis; the scale is logarithmic where values are spaced so."""
    name, x = axis_name(part), positions(part)
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
    axes.set_xlabel(label_of_axis(part))
    values = part[name].values
    if values.dtype.kind not in "iuf":
        axes.set_xticks(x, [str(value) for value in values])
    elif spaced_logarithmically(x):
        axes.set_xscale("log")
        if len(x) <= _MOST_TICKS:
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())


def spaced_logarithmically(x: np.ndarray) -> bool:
    """Tell whether the ratios of neighbouring points are more alike than their distances."""
    if len(x) < 3 or not np.all(x > 0):
        return False
    steps, ratios = np.diff(x), np.diff(np.log(x))
    return float(np.ptp(ratios) / np.abs(ratios).mean()) < float(np.ptp(steps) / np.abs(steps).mean())
