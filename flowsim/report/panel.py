"""What figures of runs against time have in common: the axes, what of a run is in view, its name, the legend."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..dynamics import Outcome
from ..results.recorded import Recorded, RecordedRun
from .style import MAJOR_TICKS, MINOR_TICKS
from .view import Curve, TimeView, envelope_of, time_view

_LEGEND_COLUMNS = 5
_BAND_ALPHA = 0.3


def empty_figure(shown: Recorded, label: str) -> tuple[Figure, Axes, TimeView]:
    """Return a figure with the time axis of these runs, its axes, and the part of the runs that it shows."""
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
    return figure, axes, set_time(axes, shown, label)


def set_time(axes: Axes, shown: Recorded, label: str) -> TimeView:
    """Set the time axis of these runs, and what the other one is called; return the part of the runs that it shows."""
    view = time_view(shown)
    view.apply(axes)
    axes.set_xlabel(r"time $t = \eta k$" if shown.others and shown.plain else r"time $t$")
    axes.set_ylabel(label)
    return view


def in_view(axes: Axes, drawn: Curve, view: TimeView) -> tuple[np.ndarray, np.ndarray]:
    """Return the records to draw, with gaps where the axis has no place for a value."""
    shown = view.shown(drawn.times)
    times, values = drawn.times[shown], drawn.values[shown]
    possible = np.isfinite(values) & ((values > 0) | (axes.get_yscale() == "linear"))
    return times, np.where(possible, values, np.nan)


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
    band = {"color": look["color"], "linewidth": 0, "zorder": look["zorder"] - 0.5}
    alpha = _BAND_ALPHA * look.get("alpha", 1.0)
    axes.fill_between(times[known], envelope.low[known], envelope.high[known], alpha=alpha, **band)


def name_of(run: RecordedRun) -> str:
    """Return what a legend calls a run."""
    return run.run.label + (", diverged" if run.outcome == Outcome.DIVERGED else "")


def add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend above the axes, in as many columns as the figure is wide."""
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(len(labels), _LEGEND_COLUMNS), 0, -1):
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
