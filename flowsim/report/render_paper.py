"""Panels drawn with Matplotlib, for the figures of a paper."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from .panels import Curve, Guide, Panel, envelope_of, subsample
from .style import BOUND, STYLE, THRESHOLD, THRESHOLD_ID, set_ticks


def figure_of(panel: Panel) -> Figure:
    """Return the figure of one panel, with a legend above it."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes = figure.add_subplot()
        set_ticks(axes)
        draw_panel(axes, panel)
        add_legend(figure, axes)
    return figure


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw a panel of runs against time into axes of a user or of a figure."""
    x, y = panel.x, panel.y
    if x.logarithmic and x.linear_until is not None:
        axes.set_xscale("symlog", linthresh=x.linear_until, linscale=0.4)
        axes.set_xlim(0, x.linear[1])
    else:
        axes.set_xlim(*x.limits)
    axes.set_xlabel(x.label)
    axes.set_ylabel(y.label)
    if y.logarithmic:
        axes.set_yscale("log")
    axes.set_ylim(*y.limits)
    for curve in (*panel.curves, *panel.overlays):
        _draw(axes, curve)
    for guide in panel.guides:
        if guide.key is None:
            axes.axhline(guide.value, **BOUND)
        elif guide.value <= axes.get_ylim()[1]:
            axes.axhline(guide.value, color=guide.key.look["color"], **THRESHOLD)
    _label_in_margin(axes, [guide for guide in panel.guides if guide.label is not None])


def _draw(axes: Axes, curve: Curve) -> None:
    """Draw what is in view of a curve with its band, and a few points more, so that they are cut at the edge."""
    seen = slice(0, int(np.searchsorted(curve.x, axes.get_xlim()[1], side="right")) + 3)
    x, y = curve.x[seen], curve.y[seen]
    y = np.where(np.isfinite(y) & ((y > 0) | (axes.get_yscale() == "linear")), y, np.nan)
    label = curve.key.label if curve.named else None
    look: dict[str, Any] = {**curve.key.look, "label": label, "alpha": curve.alpha}
    if "marker" not in look and np.isfinite(y).sum() == 1:
        look["marker"] = "o"
    elif curve.marks is not None:
        look["markevery"] = np.unique(np.minimum(np.searchsorted(x, curve.marks), len(x) - 1)).tolist()
    axes.plot(x, y, **look)
    if curve.low is not None and curve.high is not None:
        fill(axes, x, curve.low[seen], curve.high[seen], look)


def fill(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Mapping[str, Any]) -> None:
    """Draw the range of an oscillation, behind its curve, which has the given look."""
    band = {"color": look["color"], "linewidth": 0, "zorder": look["zorder"] - 0.5}
    axes.fill_between(x, low, high, alpha=0.3 * look.get("alpha", 1.0), **band)


def draw_curve(axes: Axes, times: np.ndarray, values: np.ndarray, look: Mapping[str, Any]) -> None:
    """Draw values along a run as a line; of an oscillation its range, filled, and the middle of that."""
    envelope = envelope_of(times, values)
    if envelope is None:
        axes.plot(times, values, **look)
        return
    known = np.isfinite(envelope.low)  # what is between two groups of records is their range, not a line
    places = np.cumsum(known) - 1
    marked = np.unique(places[look.get("markevery", [])].clip(0)).tolist()
    axes.plot(times[known], envelope.middle[known], **{**look, "markevery": marked})
    fill(axes, times[known], envelope.low[known], envelope.high[known], look)


def _label_in_margin(axes: Axes, guides: Sequence[Guide]) -> None:
    """Write the name of each guide beside it, moved up or down where names would overlap."""
    guides = sorted(guides, key=lambda guide: guide.value)
    bottom, top = axes.get_ylim()
    heights = _apart(np.array([(guide.value - bottom) / (top - bottom) for guide in guides]))
    for guide, height in zip(guides, heights, strict=True):
        colour = BOUND["color"] if guide.key is None else guide.key.look["color"]
        axes.annotate(
            guide.label or "",
            xy=(1.0, guide.value),
            xycoords=axes.get_yaxis_transform(),
            xytext=(1.06, height),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0},
            annotation_clip=False,
        )


def _apart(heights: np.ndarray, spacing: float = 0.075) -> np.ndarray:
    """Return sorted heights moved as little as possible to stand `spacing` apart, in the sense of least squares.

    By default that is a line of text, in parts of the height of the axes. Less the spacings below it, the sequence must
    not fall: this is isotonic regression.
    """
    if not (np.diff(heights) < spacing).any():
        return heights
    from scipy.optimize import isotonic_regression  # takes a moment to import, and is rarely needed

    stacked = spacing * np.arange(len(heights))
    return isotonic_regression(heights - stacked).x + stacked


def add_legend(figure: Figure, axes: Axes, *, most_columns: int = 5) -> None:
    """Put the legend above the axes, in as many columns as the figure is wide."""
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(len(labels), most_columns), 0, -1):
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def legend_above(
    figure: Figure,
    *,
    thresholds: bool = False,
    bounds: bool = False,
    edge: str = r"$2/\eta$",
    most_columns: int = 7,
    most_dashes: int = 3,
) -> None:
    """Put one legend of all panels above them, in as few rows as the figure is wide; not of panels that have their own.

    `thresholds` and `bounds` add an entry for the dashed lines, in up to `most_dashes` of their colours, which are
    called `edge`, and for the dotted bounds on the sharpness.
    """
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is not None:
            continue
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if thresholds:
        drawn = (line for axes in figure.axes for line in axes.lines if line.get_gid() == THRESHOLD_ID)
        colours = {line.get_color(): None for line in drawn}
        dashes = tuple(Line2D([], [], color=colour, **THRESHOLD) for colour in subsample([*colours], most_dashes))
        entries[edge] = dashes or Line2D([], [], color="0.4", **THRESHOLD)
    if bounds:
        entries["bounds"] = Line2D([], [], **BOUND)
    beside = {tuple: HandlerTuple(ndivide=None)}
    for rows in range(math.ceil(len(entries) / most_columns), len(entries) + 1):
        columns = math.ceil(len(entries) / rows)
        legend = figure.legend(
            list(entries.values()), list(entries), loc="outside upper center", ncols=columns, handler_map=beside
        )
        if columns == 1 or legend.get_window_extent().width <= 0.97 * figure.bbox.width:
            break
        legend.remove()
