"""Figures of the theory: both sides of the statements along the flow, and the sharpness against conditioning."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from ..results import TheoryResults
from .panels import Panel
from .panels.theory import TheoryPanels
from .render_paper import draw_sweep_panel
from .style import STYLE, Drawing, set_ticks

# Sides that agree lie on one another: the one claimed smaller is drawn inside the other.
_SIDES: dict[str, dict[str, Any]] = {
    "claimed larger": {"color": "0.72", "linewidth": 2.6, "zorder": 2.2},
    "claimed smaller": {"color": "black", "linewidth": 0.9, "zorder": 2.4},
}


def theory_figures(results: TheoryResults) -> dict[str, Figure]:
    """Return the figures by name: "theory", where statements depend on time, and "conditioning", for several Λ/λ."""
    panels, made = TheoryPanels.of(results.flows), {}
    if panels.names:
        made["theory"] = _sides_figure(panels)
    if (conditioning := panels.conditioning()) is not None:
        made["conditioning"] = _conditioning_figure(conditioning)
    return made


def _sides_figure(panels: TheoryPanels) -> Figure:
    """Return both sides of every time-dependent statement, a row for each, with a column for each depth."""
    names, keys = panels.names, panels.keys
    with matplotlib.rc_context(STYLE):
        size = (0.9 + 1.7 * len(keys), 0.5 + 1.15 * len(names))
        figure = Drawing(figsize=size, layout="constrained")
        drawn = figure.subplots(len(names), len(keys), squeeze=False, sharex="col")
        for place, (column, key) in enumerate(zip(drawn.T, keys, strict=True)):
            column[0].set_title(key.label, fontsize=8)
            column[-1].set_xlabel("time since the escape")
            for axes, name in zip(column, names, strict=True):
                _draw_sides(axes, panels.sides(name, [place]))
        for row, name in zip(drawn, names, strict=True):
            row[0].set_ylabel(name.replace(", ", ",\n"), fontsize=7)
        handles, labels = drawn[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


def _draw_sides(axes: Axes, panel: Panel | None) -> None:
    set_ticks(axes)
    if panel is None:
        axes.set_axis_off()
        return
    for side, look in _SIDES.items():
        for curve in panel.curves:
            if curve.side == side:
                y = np.where(np.isfinite(curve.y) & (curve.y > 0), curve.y, np.nan)
                axes.plot(curve.x, y, label=f"side {side}", **look)
    axes.set_yscale("log")
    if panel.y.log is not None:
        axes.set_ylim(*panel.y.log)
    axes.yaxis.set_major_locator(LogLocator(numticks=4))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if panel.curves:
        _set_time_axis(axes, panel.curves[0].x)


def _set_time_axis(axes: Axes, times: np.ndarray, *, longest: float = 10.0) -> None:
    """Show all times; the time before the escape is linear up to `longest` times that after it."""
    before, after = -times[0], times[-1]
    if before <= longest * after:
        if after > min(times[0], 0):  # a flow that ended where it began has no extent
            axes.set_xlim(min(times[0], 0), after)
        return
    # Logarithmic on half of the width, then linear, with the time since the escape on a quarter.
    axes.set_xscale("symlog", linthresh=after, linscale=np.log10(before / after) / 2)
    axes.set_xlim(times[0], after)
    far = 10.0 ** np.floor(np.log10(before))
    middle = 10.0 ** np.round(np.log10(far * after) / 2)
    power = 10.0 ** np.floor(np.log10(after))
    rounded = power * max(digit for digit in (1, 2, 5) if digit * power <= after)
    axes.xaxis.set_major_locator(FixedLocator([-far, *([-middle] if middle < far / 80 else []), 0, rounded]))
    axes.xaxis.set_major_formatter(FuncFormatter(_time_label))
    axes.xaxis.set_minor_locator(NullLocator())


def _time_label(time: float, position: int | None = None) -> str:
    """Write times of thousands and more, which are powers of ten, as such."""
    return f"{time:g}" if abs(time) < 1000 else f"${'-' if time < 0 else ''}10^{{{np.log10(abs(time)):.0f}}}$"


def _conditioning_figure(panel: Panel) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Drawing(layout="constrained")
        axes = figure.add_subplot()
        draw_sweep_panel(axes, panel)
        axes.legend(loc="upper left")
    return figure
