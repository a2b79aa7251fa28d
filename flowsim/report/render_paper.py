"""Panels drawn with Matplotlib, for the figures of a paper."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from .panels import Axis, Curve, Guide, Panel, envelope_of, subsample
from .style import BOUND, FLOW, STYLE, THRESHOLD, THRESHOLD_ID, Drawing, set_ticks


def figure_of(panel: Panel, size: tuple[float, float] = STYLE["figure.figsize"]) -> Figure:
    """Return the figure of one panel of runs against time, with a legend above it, of a size in inches."""
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        set_ticks(axes)
        draw_panel(axes, panel)
        handles, labels = axes.get_legend_handles_labels()
        _put_above(figure, handles, labels, range(min(len(labels), 5), 0, -1))
    return figure


def figure_of_facets(panels: Sequence[Panel]) -> Figure:
    """Return the figure of panels of a sweep, two in a row, of which each is as wide as a column of a paper."""
    columns, rows = min(len(panels), 2), (len(panels) + 1) // 2
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(3.3 * columns, 2.25 * rows + 0.4), layout="constrained")
        drawn = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes in drawn[len(panels) :]:
            axes.remove()
        for axes, panel in zip(drawn, panels, strict=False):
            draw_sweep_panel(axes, panel)
            axes.set_title(panel.title, fontsize=8)
            axes.label_outer()
        for axes in drawn[max(0, len(panels) - columns) : len(panels)]:  # nothing stands below these
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(panels[0].x.label)
        name_statistic(figure, panels[0].statistic)
        legend_above(figure, edge=panels[0].edge, bounds=panels[0].bounds)
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
        _draw(axes, curve, panel.strength)
    _draw_guides(axes, panel.guides, highest=axes.get_ylim()[1])
    _label_in_margin(axes, [guide for guide in panel.guides if guide.label is not None])


def _draw_guides(axes: Axes, guides: Sequence[Guide], *, highest: float = math.inf) -> None:
    """Draw bounds, dotted, and edges of stability up to the `highest`, dashed, in the colour of their runs."""
    for guide in guides:
        if guide.dotted:
            axes.axhline(guide.value, **BOUND | {"color": _colour(guide)})
        elif guide.value <= highest:
            axes.axhline(guide.value, color=_colour(guide), gid=THRESHOLD_ID, **THRESHOLD)


def _colour(guide: Guide) -> Any:
    return BOUND["color"] if guide.key is None else guide.key.look["color"]


def _draw(axes: Axes, curve: Curve, strength: float) -> None:
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
        fill(axes, x, curve.low[seen], curve.high[seen], look, strength)


def fill(
    axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: Mapping[str, Any], strength: float = 0.3
) -> None:
    """Draw the range of an oscillation, behind its curve, which has the given look."""
    band = {"color": look["color"], "linewidth": 0, "zorder": look["zorder"] - 0.5}
    axes.fill_between(x, low, high, alpha=strength * look.get("alpha", 1.0), **band)


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
        axes.annotate(
            guide.label or "",
            xy=(1.0, guide.value),
            xycoords=axes.get_yaxis_transform(),
            xytext=(1.06, height),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": _colour(guide), "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0},
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


def draw_sweep_panel(axes: Axes, panel: Panel) -> None:
    """Draw a panel of a sweep, or of the theory, into axes of a user or of a figure."""
    lines = [curve for curve in panel.curves if curve.line]
    for curve in panel.curves:
        if not curve.line and len(curve.x):
            label = curve.key.label if curve.named else None
            axes.plot(curve.x, curve.y, label=label, **{**curve.key.look, **curve.look})
    if panel.whiskers:
        _draw_whiskers(axes, lines)
    else:
        for curve in lines:
            draw_interval(axes, curve)
    _draw_guides(axes, panel.guides)
    if panel.y.logarithmic:
        axes.set_yscale("log")
    axes.set_ylim(*panel.y.limits)
    axes.set_ylabel(panel.y.label)
    set_sweep_axis(axes, panel.x)
    if not panel.whiskers:  # which stand beside the points
        axes.set_xlim(*panel.x.limits)


def draw_interval(axes: Axes, curve: Curve) -> None:
    """Draw a curve over a sweep and, lighter, its band; a band of no width is left out."""
    look, label = curve.key.look, curve.key.label if curve.named else None
    if curve.low is None or curve.high is None:
        axes.plot(curve.x, curve.y, label=label, **look)
        return
    lone = {"marker": "o"} if np.isfinite(curve.y).sum() == 1 and "marker" not in look else {}
    axes.plot(curve.x, curve.y, label=label, **{**look, **lone})
    if np.any(curve.high > curve.low):
        band = {"color": look["color"], "linewidth": 0, "zorder": look["zorder"] - 1}
        axes.fill_between(curve.x, curve.low, curve.high, alpha=0.14 if look is FLOW else 0.22, **band)


def _draw_whiskers(axes: Axes, curves: Sequence[Curve], spacing: float = 0.07) -> None:
    """Draw curves with whiskers, moved apart by the part `spacing` of the distance between points."""
    for number, curve in enumerate(curves):
        aside = spacing * (curve.x[-1] - curve.x[0]) / max(1, len(curve.x) - 1)
        places = curve.x + aside * (number - (len(curves) - 1) / 2)
        colour = curve.key.look["color"]
        axes.vlines(places, curve.low, curve.high, color=colour, linewidth=1.0, zorder=2.2)  # pyright: ignore[reportArgumentType]
        axes.plot(places, curve.y, label=curve.key.label, **curve.key.look)


def set_sweep_axis(axes: Axes, x: Axis, *, most_ticks: int = 6) -> None:
    """Set scale, ticks and name of a horizontal axis, with ticks at the points that the curves share, if they do."""
    set_ticks(axes)
    axes.set_xlabel(x.label)
    if x.ticks is not None:
        axes.set_xticks(x.at, x.ticks)
    elif x.logarithmic:
        axes.set_xscale("log")
        if 0 < len(x.at) <= most_ticks:
            axes.set_xticks(x.at, [f"{value:g}" for value in x.at])
            axes.xaxis.set_minor_locator(NullLocator())
        if x.at:
            axes.xaxis.set_minor_formatter(NullFormatter())


def name_statistic(figure: Figure, statistic: str) -> None:
    """Write below the panels what the curves and bands are, in as many lines as it takes."""
    text = figure.supxlabel(statistic, fontsize=6)
    for lines in range(1, len(statistic.split()) + 1):
        text.set_text(textwrap.fill(statistic, math.ceil(len(statistic) / lines)))
        if text.get_window_extent().width <= figure.bbox.width:
            break


def legend_above(
    figure: Figure, *, edge: str = "", bounds: bool = False, most_columns: int = 7, most_dashes: int = 3
) -> None:
    """Put one legend of all panels above them, in as few rows as the figure is wide; not of panels that have their own.

    `edge` is what it calls the dashed lines, where there are some, in up to `most_dashes` of their colours; `bounds`
    adds an entry for the dotted bounds on the sharpness.
    """
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is not None:
            continue
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    dashed = (line for axes in figure.axes for line in axes.lines if line.get_gid() == THRESHOLD_ID)
    colours = dict.fromkeys(line.get_color() for line in dashed)
    if edge and colours:
        chosen = subsample([*colours], most_dashes)
        entries[edge] = tuple(Line2D([], [], color=colour, **THRESHOLD) for colour in chosen)
    if bounds:
        entries["bounds"] = Line2D([], [], **BOUND)
    rows = range(math.ceil(len(entries) / most_columns), len(entries) + 1)
    in_columns = (math.ceil(len(entries) / count) for count in rows)
    _put_above(figure, list(entries.values()), list(entries), in_columns, share=0.97)


def _put_above(
    figure: Figure, handles: Sequence[Any], labels: Sequence[str], columns: Iterable[int], *, share: float = 1.0
) -> None:
    """Put a legend above all axes, in the first number of columns for which this `share` of the width is enough."""
    beside = {tuple: HandlerTuple(ndivide=None)}
    for count in columns:
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=count, handler_map=beside)
        if count == 1 or legend.get_window_extent().width <= share * figure.bbox.width:
            break
        legend.remove()
