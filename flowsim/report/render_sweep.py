"""Panels of a sweep drawn with Matplotlib, and their parts for the figures of papers."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from ..results.runs import Run
from .panels import FURTHEST, Axis, Curve, Panel
from .panels.sweep import axis_along
from .style import BOUND, FLOW as FLOW_LOOK, THRESHOLD, THRESHOLD_ID, run_look, set_ticks
from .sweeps.intervals import Interval


def draw_sweep_panel(axes: Axes, panel: Panel, *, whiskers: bool = False) -> None:
    """Draw a panel of a sweep, with `whiskers` in place of bands."""
    points = [curve for curve in panel.curves if not curve.line]
    lines = [curve for curve in panel.curves if curve.line]
    for curve in points:
        axes.plot(curve.x, curve.y, **curve.key.look)
    if whiskers:
        _draw_whiskers(axes, lines)
    else:
        for curve in lines:
            _draw_curve(axes, curve)
    for guide in panel.guides:
        if guide.key is None:
            axes.axhline(guide.value, **BOUND)
        else:
            axes.axhline(guide.value, color=guide.key.look["color"], gid=THRESHOLD_ID, **THRESHOLD)
    if panel.y.logarithmic:
        axes.set_yscale("log")
    axes.set_ylim(*panel.y.limits)
    axes.set_ylabel(panel.y.label)
    _set_axis(axes, panel.x)
    if not whiskers:  # which stand beside the points
        axes.set_xlim(*panel.x.limits)


def _draw_curve(axes: Axes, curve: Curve) -> None:
    label = curve.key.label if curve.named else None
    if curve.low is None or curve.high is None:
        axes.plot(curve.x, curve.y, label=label, **curve.key.look)
    else:
        draw_interval(axes, curve.x, Interval(curve.y, curve.low, curve.high), label, curve.key.look)


def _draw_whiskers(axes: Axes, curves: Sequence[Curve], spacing: float = 0.07) -> None:
    """Draw curves with whiskers, moved apart by the part `spacing` of the distance between points."""
    for number, curve in enumerate(curves):
        aside = spacing * (curve.x[-1] - curve.x[0]) / max(1, len(curve.x) - 1)
        places = curve.x + aside * (number - (len(curves) - 1) / 2)
        colour = curve.key.look["color"]
        axes.vlines(places, curve.low, curve.high, color=colour, linewidth=1.0, zorder=2.2)  # pyright: ignore[reportArgumentType]
        axes.plot(places, curve.y, label=curve.key.label, **curve.key.look)


def draw_interval(axes: Axes, x: np.ndarray, drawn: Interval, label: str | None, look: Any) -> None:
    """Draw a curve and, lighter, its band; a band of no width is left out."""
    lone = {"marker": "o"} if np.isfinite(drawn.estimate).sum() == 1 and "marker" not in look else {}
    axes.plot(x, drawn.estimate, label=label, **{**look, **lone})
    if np.any(drawn.high > drawn.low):
        alpha = 0.14 if look is FLOW_LOOK else 0.22
        order = {"zorder": look["zorder"] - 1, "linewidth": 0}
        axes.fill_between(x, drawn.low, drawn.high, color=look["color"], alpha=alpha, **order)


def draw_thresholds(axes: Axes, shown: Sequence[Run]) -> None:
    """Draw the edge of stability of every run, dashed and in its colour.

    That of a rate so small that a logarithmic axis would have no room above it is left out.
    """
    for run in shown:
        if run.threshold < FURTHEST:
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


def set_axis(axes: Axes, part: xarray.Dataset) -> None:
    """Set scale, ticks and name of the horizontal axis along the one dimension of `part`."""
    _set_axis(axes, axis_along(part))


def _set_axis(axes: Axes, x: Axis, most_ticks: int = 6) -> None:
    set_ticks(axes)
    axes.set_xlabel(x.label)
    if x.ticks is not None:
        axes.set_xticks(x.at, x.ticks)
    elif x.logarithmic:
        axes.set_xscale("log")
        if len(x.at) <= most_ticks:
            axes.set_xticks(x.at, [f"{value:g}" for value in x.at])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
