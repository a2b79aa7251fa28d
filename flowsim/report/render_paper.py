"""Panels drawn with Matplotlib, for the figures of a paper."""

import math
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from .panels import INK, Curve, Guide, Panel, subsample
from .style import BOUND, STYLE, THRESHOLD, THRESHOLD_ID, Drawing, set_ticks

_MOST_TICKS = 6  # with numbers of their own, on a logarithmic axis
_Sharing = Literal["row", "col", "all", "none"]


def figure_of(
    panels: Sequence[Panel | None],
    size: tuple[float, float] = STYLE["figure.figsize"],
    *,
    columns: int = 1,
    sharex: _Sharing = "none",
    sharey: _Sharing = "none",
    balanced: bool = True,
) -> Figure:
    """Return the figure of panels, of a size in inches, with one legend above them.

    Args:
        panels: The panels, row by row; `None` leaves a place empty.
        size: Width and height in inches.
        columns: How many panels stand in a row.
        sharex: Which panels have one horizontal axis, as in `matplotlib.figure.Figure.subplots`.
        sharey: Which panels have one vertical axis.
        balanced: Whether the rows of the legend have as many entries as each other.

    Returns:
        The figure. A colour scale at the right of a row is that of all its meshes.
    """
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=size, layout="constrained")
        rows = math.ceil(len(panels) / columns)
        grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
        for place, (axes, panel) in enumerate(zip_longest(grid.ravel(), panels)):
            if panel is None:
                axes.remove()
                continue
            set_ticks(axes)
            draw_panel(axes, panel)
            if sharex in ("col", "all"):
                if any(panels[place + columns :: columns]):
                    axes.set_xlabel("")
                else:  # the lowest of its column, though not in the last row
                    axes.tick_params(labelbottom=True)
            if sharey in ("row", "all") and place % columns:
                axes.set_ylabel("")
        for row in range(rows):
            shown = [panel for panel in panels[row * columns : (row + 1) * columns] if panel is not None]
            if shown and (mesh := shown[-1].mesh) is not None:
                drawn = list(grid[row, : len(shown)])
                figure.colorbar(drawn[-1].collections[0], ax=drawn, label=mesh.label, pad=0.02)
        described = [panel for panel in panels if panel is not None]
        if statistic := described[0].statistic:
            text = figure.supxlabel(statistic, fontsize=6)
            for lines in range(1, len(statistic.split()) + 1):  # as few as the figure is wide enough for
                text.set_text(textwrap.fill(statistic, math.ceil(len(statistic) / lines)))
                if text.get_window_extent().width <= figure.bbox.width:
                    break
        edge = next((panel.edge for panel in described if panel.edge), "")
        legend_above(figure, edge=edge, bounds=any(panel.bounds for panel in described), balanced=balanced)
    return figure


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw a panel into axes of a user or of a figure."""
    axes.set_xlabel(panel.x.label)
    axes.set_ylabel(panel.y.label)
    for axis, described, set_scale, set_limits in (
        (axes.xaxis, panel.x, axes.set_xscale, axes.set_xlim),
        (axes.yaxis, panel.y, axes.set_yscale, axes.set_ylim),
    ):
        if (symlog := described.symlog) is not None:
            set_scale("symlog", linthresh=symlog.until, linscale=symlog.decades)
        elif described.logit or described.logarithmic:
            set_scale("logit" if described.logit else "log")
        nonlinear = symlog is not None or described.logarithmic
        if described.ticks is not None or (symlog is not None and described.at):
            axis.set_ticks(described.at, described.ticks)
            axis.set_minor_locator(NullLocator())
        elif nonlinear and 0 < len(described.at) <= _MOST_TICKS:
            axis.set_ticks(described.at, [f"{value:g}" for value in described.at])
            axis.set_minor_locator(NullLocator())
        elif described.integers:
            axis.set_major_locator(MaxNLocator(described.most_ticks or "auto", integer=True))
        elif nonlinear and described.most_ticks is not None:
            axis.set_major_locator(LogLocator(numticks=described.most_ticks))
        if nonlinear and (described.at or described.most_ticks):
            axis.set_minor_formatter(NullFormatter())
        if described.label_size is not None:
            axis.label.set_fontsize(described.label_size)
        if axis is axes.yaxis or not panel.whiskers:  # which stand beside the points
            set_limits(*(described.limits if symlog is None else symlog.limits))
    if (mesh := panel.mesh) is not None:
        scale = (LogNorm if mesh.logarithmic else Normalize)(*mesh.limits)
        axes.pcolormesh(mesh.sides, mesh.edges, mesh.values, norm=scale, cmap="viridis", rasterized=True)
    lines = [curve for curve in panel.curves if curve.line] if panel.whiskers else []
    for number, curve in enumerate(lines):  # moved apart by a part of the distance between points
        aside = 0.07 * (curve.x[-1] - curve.x[0]) / max(1, len(curve.x) - 1)
        places, colour = curve.x + aside * (number - (len(lines) - 1) / 2), curve.key.look["color"]
        axes.vlines(places, curve.low, curve.high, color=colour, linewidth=1.0, zorder=2.2)  # pyright: ignore[reportArgumentType]
        axes.plot(places, curve.y, label=curve.key.label, **curve.key.look)
    for curve in (*panel.curves, *panel.overlays):
        if not (panel.whiskers and curve.line):
            _draw_curve(axes, curve, positive=panel.y.logarithmic)
    for guide in panel.guides:
        look = (BOUND if guide.dotted else THRESHOLD) | {"color": _colour(guide), **guide.look}
        look |= {} if guide.dotted else {"gid": THRESHOLD_ID}
        if guide.upright:
            axes.axvline(guide.value, **look)
        elif guide.dotted or guide.value <= axes.get_ylim()[1]:
            axes.axhline(guide.value, **look)
    _name_guides(axes, panel)
    if panel.title:
        title = axes.set_title(panel.title)
        if panel.letter:  # which leaves less room
            title.set_fontsize(7.0)
    if panel.letter:
        axes.set_title(f"({panel.letter})", loc="left")
    if panel.legend and axes.get_legend_handles_labels()[1]:
        axes.legend(**panel.legend)


def _colour(guide: Guide) -> Any:
    return BOUND["color"] if guide.key is None else guide.key.look["color"]


def _draw_curve(axes: Axes, curve: Curve, *, positive: bool) -> None:
    """Draw a curve and its band; on a logarithmic axis only what is `positive`."""
    seen = slice(None)
    if np.all(np.diff(curve.x) >= 0):  # what is in view, and a few points more, so that lines are cut at the edge
        seen = slice(0, int(np.searchsorted(curve.x, axes.get_xlim()[1], side="right")) + 3)
    x, y = curve.x[seen], curve.y[seen]
    y = np.where(np.isfinite(y) & ((y > 0) | (not positive)), y, np.nan)
    label = curve.key.label if curve.named else None
    look: dict[str, Any] = {"alpha": curve.alpha, **curve.key.look, **curve.look}
    look |= {} if curve.line else {"linestyle": "none"}
    band = None if curve.low is None or curve.high is None else (x, curve.low[seen], curve.high[seen])
    if band is not None and not curve.line:
        axes.fill_between(*band, color=look["color"], linewidth=0, label=label, **curve.band)
        return
    if "marker" not in look and np.isfinite(y).sum() == 1 and curve.key.name != INK:
        look["marker"] = "o"
    elif curve.marks is not None:
        look["markevery"] = np.unique(np.minimum(np.searchsorted(x, curve.marks), len(x) - 1)).tolist()
    axes.plot(x, y, label=label, **look)
    if band is not None:
        behind = {"alpha": 0.3 * curve.alpha, "zorder": look.get("zorder", 2.0) - 0.5, **curve.band}
        axes.fill_between(*band, color=look["color"], linewidth=0, **behind)


def _name_guides(axes: Axes, panel: Panel) -> None:
    """Write the names of guides, and of lines that belong to no run, beside them in the margin."""
    names = [(guide.value, guide.label, _colour(guide)) for guide in panel.guides if guide.label]
    for curve in panel.curves:
        if curve.key.name == INK and curve.key.label and not curve.named:
            names.append((float(curve.y[-1]), curve.key.label, curve.key.look["color"]))
    place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "va": "center", "annotation_clip": False}
    if not panel.leaders:
        for value, name, _ in names:
            axes.annotate(name, (1.0, value), xytext=(2, 0), textcoords="offset points", fontsize=6.5, **place)
        return
    names.sort(key=lambda one: one[0])
    bottom, top = axes.get_ylim()
    heights = _apart(np.array([(value - bottom) / (top - bottom) for value, _, _ in names]))
    for (value, name, colour), height in zip(names, heights, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
        axes.annotate(name, (1.0, value), xytext=(1.06, height), textcoords="axes fraction", arrowprops=leader, **place)


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


def legend_above(
    figure: Figure,
    *,
    edge: str = "",
    bounds: bool = False,
    balanced: bool = True,
    most_columns: int = 7,
    most_dashes: int = 3,
) -> None:
    """Put one legend of all panels above them, in as few rows as the figure is wide; not of panels that have their own.

    `edge` is what it calls the dashed lines, where there are some, in up to `most_dashes` of their colours; `bounds`
    adds an entry for the dotted bounds on the sharpness. Its rows are as long as each other if they are `balanced`.
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
    if not entries:
        return
    columns = range(min(len(entries), 5), 0, -1)
    if balanced:
        rows = range(math.ceil(len(entries) / most_columns), len(entries) + 1)
        columns = [math.ceil(len(entries) / count) for count in rows]
    beside = {tuple: HandlerTuple(ndivide=None)}
    for count in columns:
        legend = figure.legend(entries.values(), entries, loc="outside upper center", ncols=count, handler_map=beside)
        if count == 1 or legend.get_window_extent().width <= (0.97 if balanced else 1.0) * figure.bbox.width:
            break
        legend.remove()
