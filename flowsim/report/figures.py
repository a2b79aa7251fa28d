"""Figures of a comparison: how far from the optimum, how sharp, and how far descent is from the flow."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..comparison import Comparison, DescentBesideFlow
from ..dynamics import Outcome, Trajectory
from .style import BOUND, CROSSING, FLOW, MAJOR_TICKS, MINOR_TICKS, STYLE, THRESHOLD, descent_look
from .view import Curve, TimeView, curve, log_limits, sharpness_limits, time_view

_MARKS = 10
_LEGEND_ENTRIES, _LEGEND_COLUMNS = 9, 5
_MARGIN_LABELS = 6
# The height of a line of text, in parts of the height of the axes.
_LABEL_SPACING = 0.075


def figures(comparison: Comparison) -> dict[str, Figure]:
    """Return all figures of a comparison by name: "squared_distance", "sharpness", and with descents "distance"."""
    made = {"squared_distance": squared_distance_figure(comparison), "sharpness": sharpness_figure(comparison)}
    if comparison.descents:
        made["distance"] = distance_figure(comparison)
    return made


def squared_distance_figure(comparison: Comparison) -> Figure:
    """Return ‖π − w*‖² against time, of the flow and of every descent.

    Networks without a regressor show the excess risk instead, or the risk where its minimum is unknown.
    """
    quantity, label = _measure_of_progress(comparison.flow)
    with matplotlib.rc_context(STYLE):
        figure, axes, view = _empty_figure(comparison, label)
        flow = curve(comparison.flow, getattr(comparison.flow, quantity))
        descents = [curve(d.trajectory, getattr(d.trajectory, quantity)) for d in _by_rate(comparison)]
        _set_log_limits(axes, [flow, *descents], view)
        _draw_flow(axes, flow, view)
        _draw_descents(axes, _by_rate(comparison), descents, view)
        _add_legend(figure, axes)
    return figure


def sharpness_figure(comparison: Comparison) -> Figure:
    """Return the sharpness against time, with 2/η of every learning rate and the bounds of Theorem 2 on S_min."""
    thresholds = [2 / d.learning_rate for d in comparison.descents]
    bounds = comparison.bounds or ()
    with matplotlib.rc_context(STYLE):
        figure, axes, view = _empty_figure(comparison, r"sharpness $S$")
        flow = curve(comparison.flow, comparison.flow.sharpness)
        descents = [curve(d.trajectory, d.trajectory.sharpness) for d in _by_rate(comparison)]
        axes.set_ylim(*sharpness_limits(flow, descents, bounds, thresholds, view))
        _draw_flow(axes, flow, view)
        _draw_descents(axes, _by_rate(comparison), descents, view)
        _draw_levels(axes, comparison)
        _add_legend(figure, axes)
    return figure


def distance_figure(comparison: Comparison) -> Figure:
    """Return the distance ‖W_GD(t/η) − W_GF(t)‖ against time, and where the sharpness first reaches 2/η."""
    with matplotlib.rc_context(STYLE):
        figure, axes, view = _empty_figure(comparison, r"$\Vert W_\mathrm{GD}(t/\eta) - W_\mathrm{GF}(t) \Vert$")
        curves = [curve(d.trajectory, d.distance) for d in _by_rate(comparison)]
        _set_log_limits(axes, curves, view)
        _draw_descents(axes, _by_rate(comparison), curves, view)
        _mark_crossings(axes, _by_rate(comparison), curves, view)
        _add_legend(figure, axes)
    return figure


def _by_rate(comparison: Comparison) -> list[DescentBesideFlow]:
    """Return the descents from the smallest learning rate, the darkest curve, to the largest."""
    return sorted(comparison.descents, key=lambda descent: descent.learning_rate)


def _measure_of_progress(flow: Trajectory) -> tuple[str, str]:
    if np.isfinite(flow.squared_distance[0]):
        return "squared_distance", r"squared distance $\Vert \pi - w^\star \Vert^2$"
    if np.isfinite(flow.excess_risk[0]):
        return "excess_risk", r"excess risk $R - R_\mathrm{min}$"
    return "risk", r"risk $R$"


def _empty_figure(comparison: Comparison, label: str) -> tuple[Figure, Axes, TimeView]:
    figure = Figure(layout="constrained")
    axes, view = figure.add_subplot(), time_view(comparison)
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
    view.apply(axes)
    axes.set_xlabel(r"time $t = \eta k$" if comparison.descents else r"time $t$")
    axes.set_ylabel(label)
    return figure, axes, view


def _set_log_limits(axes: Axes, curves: Sequence[Curve], view: TimeView) -> None:
    limits = log_limits(curves, view)
    if limits is not None:
        axes.set_yscale("log")
        axes.set_ylim(*limits)
    else:
        axes.set_ylim(-0.02, 1)


def _draw_flow(axes: Axes, flow: Curve, view: TimeView) -> None:
    times, values = _drawn(axes, flow, view)
    lone_point = "o" if np.isfinite(values).sum() == 1 else None
    axes.plot(times, values, label="GF", marker=lone_point, **FLOW)


def _draw_descents(axes: Axes, descents: Sequence[DescentBesideFlow], curves: Sequence[Curve], view: TimeView) -> None:
    named = set(_thinned(range(len(descents)), _LEGEND_ENTRIES))
    for index, (descent, drawn) in enumerate(zip(descents, curves, strict=True)):
        times, values = _drawn(axes, drawn, view)
        wanted = view.spread(_MARKS, (index + 0.5) / len(descents))
        marked = np.unique(np.minimum(np.searchsorted(times, wanted), len(times) - 1))
        look = descent_look(index, len(descents), settled=bool(descent.trajectory.converged))
        label = _name(descent) if index in named else None
        axes.plot(times, values, label=label, markevery=marked.tolist(), **look)


def _drawn(axes: Axes, drawn: Curve, view: TimeView) -> tuple[np.ndarray, np.ndarray]:
    """Return the records to draw, with gaps where the axis has no place for a value."""
    shown = view.shown(drawn.times)
    times, values = drawn.times[shown], drawn.values[shown]
    possible = np.isfinite(values) & ((values > 0) | (axes.get_yscale() == "linear"))
    return times, np.where(possible, values, np.nan)


def _name(descent: DescentBesideFlow) -> str:
    diverged = descent.trajectory.outcome == Outcome.DIVERGED
    return rf"$\eta = {descent.learning_rate:.3g}$" + (", diverged" if diverged else "")


def _draw_levels(axes: Axes, comparison: Comparison) -> None:
    """Draw 2/η dashed and the bounds of Theorem 2 dotted, with their names in the right margin."""
    levels: list[tuple[float, str, Any]] = []
    for index, descent in enumerate(_by_rate(comparison)):
        level, colour = 2 / descent.learning_rate, descent_look(index, len(comparison.descents))["color"]
        if level <= axes.get_ylim()[1]:
            # White beneath keeps the dashes visible on a run that swings around its own 2/η.
            axes.axhline(level, color="white", linewidth=2 * THRESHOLD["linewidth"], zorder=THRESHOLD["zorder"])
            axes.axhline(level, color=colour, **THRESHOLD)
            levels.append((level, rf"$2/\eta,\ \eta = {descent.learning_rate:.3g}$", colour))
    levels = _thinned(sorted(levels, key=lambda level: level[0]), _MARGIN_LABELS)
    for bound, name in zip(comparison.bounds or (), ("lower", "upper"), strict=False):
        axes.axhline(bound, **BOUND)
        levels.append((bound, f"Theorem 2, {name}", BOUND["color"]))
    _label_in_margin(axes, levels)


def _label_in_margin(axes: Axes, levels: Sequence[tuple[float, str, Any]]) -> None:
    """Write each name beside its level, moved up or down where names would overlap."""
    levels = sorted(levels, key=lambda level: level[0])
    bottom, top = axes.get_ylim()
    heights = _apart(np.array([(level - bottom) / (top - bottom) for level, _, _ in levels]), _LABEL_SPACING)
    for (level, name, colour), height in zip(levels, heights, strict=True):
        axes.annotate(
            name,
            xy=(1.0, level),
            xycoords=axes.get_yaxis_transform(),
            xytext=(1.06, height),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0},
            annotation_clip=False,
        )


def _apart(heights: np.ndarray, spacing: float) -> np.ndarray:
    """Return sorted heights moved as little as possible to stand `spacing` apart, in the sense of least squares.

    Less the spacings below it, the sequence must not fall: this is isotonic regression, by its min–max formula.
    """
    stacked = spacing * np.arange(len(heights))
    free = heights - stacked
    means = [[free[i : j + 1].mean() if j >= i else np.inf for j in range(len(free))] for i in range(len(free))]
    fitted = [max(min(means[i][k:]) for i in range(k + 1)) for k in range(len(free))]
    return np.array(fitted) + stacked


def _mark_crossings(axes: Axes, descents: Sequence[DescentBesideFlow], curves: Sequence[Curve], view: TimeView) -> None:
    """Put a star on every curve where the sharpness first reaches 2/η, on its first point if it starts above."""
    places = []
    for descent, drawn in zip(descents, curves, strict=True):
        times, values = _drawn(axes, drawn, view)
        known = values > 0
        if descent.crossing_time is None or descent.crossing_time > view.end or not known.any():
            continue
        times, values = times[known], values[known]
        if descent.crossing_time <= times[-1]:
            time = max(descent.crossing_time, times[0])
            places.append((time, np.exp(np.interp(time, times, np.log(values)))))
    if places:
        axes.plot(*zip(*places, strict=True), label=r"$S$ reaches $2/\eta$", **CROSSING)


def _thinned(entries: Sequence, most: int) -> list:
    """Return at most `most` of the entries, evenly taken, first and last among them."""
    if len(entries) <= most:
        return list(entries)
    return [entries[i] for i in np.unique(np.linspace(0, len(entries) - 1, most).round().astype(int))]


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend above the axes, in as many columns as the figure is wide."""
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(len(labels), _LEGEND_COLUMNS), 0, -1):
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
