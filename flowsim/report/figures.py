"""Figures of runs beside a flow: how far from the optimum, how sharp, and how far they are from the flow."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..flow_limits import LIMIT
from ..recorded import Recorded, RecordedRun, recorded
from ..runs import Run
from .model_figures import model_figures
from .panel import add_legend, empty_figure, in_view, name_of
from .probe_figures import probe_figures
from .style import BOUND, CROSSING, FLOW, LIMITS, STYLE, THRESHOLD, run_look
from .thinning import thinned
from .view import Curve, TimeView, curve, is_calm, log_limits, sharpness_limits

_MARKS = 10
_LEGEND_ENTRIES = 9
_MARGIN_LABELS = 6
# The height of a line of text, in parts of the height of the axes.
_LABEL_SPACING = 0.075


def figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return all figures of a data set of trajectories by name.

    They are "squared_distance", "sharpness" where it was followed, with runs beside the flow "distance", one for each
    probe by its name, and one of the models of each descent.
    """
    made, shown = {"squared_distance": squared_distance_figure(dataset)}, recorded(dataset)
    if any(_follows_sharpness(run) for run in shown.runs):
        made["sharpness"] = sharpness_figure(dataset)
    if shown.others:
        made["distance"] = distance_figure(dataset)
    return probe_figures(dataset) | made | model_figures(dataset)


def squared_distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return ‖π − w*‖² against time, of the flow and of every other run.

    Networks without a regressor show the excess risk instead, or the risk where its minimum is unknown.
    """
    shown = recorded(dataset)
    quantity, label = _measure_of_progress(shown.flow)
    with matplotlib.rc_context(STYLE):
        figure, axes, view = empty_figure(shown, label)
        flow, others = curve(shown.flow, quantity), [curve(run, quantity) for run in shown.by_rate]
        _set_log_limits(axes, [flow, *others], view)
        _draw_flow(axes, flow, view)
        _draw_others(axes, shown.by_rate, others, view)
        add_legend(figure, axes)
    return figure


def sharpness_figure(dataset: xarray.Dataset) -> Figure:
    """Return the sharpness against time, with 2/η of every learning rate and the bounds of Theorem 2 on S_min.

    In place of 2/η stands the edge of stability of the descent where that is another, nothing where it is not known.
    Where it was asked for, thin black lines with the marks of the descents show how sharp the limit of the flow from
    their points is.
    """
    shown = recorded(dataset)
    thresholds = [run.run.threshold for run in shown.others]
    with matplotlib.rc_context(STYLE):
        figure, axes, view = empty_figure(shown, r"sharpness $S$")
        flow, *others = [curve(run, "sharpness").known() for run in (shown.flow, *shown.by_rate)]
        limits = {run.run: curve(run, LIMIT.name).known() for run in shown.by_rate if _has_limits(run)}
        drawn = [*others, *limits.values()]
        axes.set_ylim(*sharpness_limits(flow, drawn, shown.bounds or (), thresholds, view))
        _draw_flow(axes, flow, view)
        _draw_others(axes, shown.by_rate, others, view)
        _draw_limits(axes, limits, view)
        _draw_levels(axes, shown)
        add_legend(figure, axes)
    return figure


def distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return the distance ‖W_GD(t/η) − W_GF(t)‖ against time, and where the sharpness first reaches 2/η."""
    shown = recorded(dataset)
    with matplotlib.rc_context(STYLE):
        descents = all(other.run.is_descent for other in shown.others)
        theirs = r"W_\mathrm{GD}(t/\eta)" if descents else "W(t)"
        figure, axes, view = empty_figure(shown, rf"$\Vert {theirs} - W_\mathrm{{GF}}(t) \Vert$")
        curves = [curve(run, "distance") for run in shown.by_rate]
        _set_log_limits(axes, curves, view)
        _draw_others(axes, shown.by_rate, curves, view)
        label = r"$S$ reaches $2/\eta$" if shown.plain else "reaches its edge"
        _mark_crossings(axes, shown.by_rate, curves, view, label)
        add_legend(figure, axes)
    return figure


def _follows_sharpness(run: RecordedRun) -> bool:
    """Tell whether a run knows its sharpness anywhere but at its end."""
    known = np.isfinite(run.along("sharpness"))
    return bool(known[:-1].any() or (known.all() and len(known) == 1))


def _measure_of_progress(flow: RecordedRun) -> tuple[str, str]:
    if np.isfinite(flow.along("squared_distance")[0]):
        return "squared_distance", r"squared distance $\Vert \pi - w^\star \Vert^2$"
    if np.isfinite(flow.along("excess_risk")[0]):
        return "excess_risk", r"excess risk $R - R_\mathrm{min}$"
    return "risk", r"risk $R$"


def _set_log_limits(axes: Axes, curves: Sequence[Curve], view: TimeView) -> None:
    limits = log_limits(curves, view)
    if limits is not None:
        axes.set_yscale("log")
        axes.set_ylim(*limits)
    else:
        axes.set_ylim(-0.02, 1)


def _draw_flow(axes: Axes, flow: Curve, view: TimeView) -> None:
    times, values = in_view(axes, flow, view)
    lone_point = "o" if np.isfinite(values).sum() == 1 else None
    axes.plot(times, values, label="GF", marker=lone_point, **FLOW)


def _draw_others(axes: Axes, runs: Sequence[RecordedRun], curves: Sequence[Curve], view: TimeView) -> None:
    named = set(thinned(range(len(runs)), _LEGEND_ENTRIES))
    for index, (run, drawn) in enumerate(zip(runs, curves, strict=True)):
        times, values = in_view(axes, drawn, view)
        wanted = view.spread(_MARKS, (index + 0.5) / len(runs))
        marked = np.unique(np.minimum(np.searchsorted(times, wanted), len(times) - 1))
        look = run_look(run.run, calm=is_calm(run))
        label = name_of(run) if index in named else None
        axes.plot(times, values, label=label, markevery=marked.tolist(), **look)


def _has_limits(run: RecordedRun) -> bool:
    return bool(np.isfinite(run.along(LIMIT.name)).any())


def _draw_limits(axes: Axes, limits: Mapping[Run, Curve], view: TimeView) -> None:
    """Draw the sharpness of the flow's limit from points of each run: between its own sharpness and all levels."""
    label = "limit of GF from there"
    for run, drawn in limits.items():
        times, values = in_view(axes, drawn, view)
        axes.plot(times, values, label=label, **LIMITS | {"marker": run_look(run)["marker"]})
        label = None


def _draw_levels(axes: Axes, shown: Recorded) -> None:
    """Draw 2/η dashed, or the edge of stability in its place, and the bounds of Theorem 2 dotted.

    Their names stand in the right margin.
    """
    levels: list[tuple[float, str, Any]] = []
    edges: dict[tuple[float | None, float], Run] = {}
    for other in shown.by_rate:
        edges.setdefault((other.run.learning_rate, other.run.threshold), other.run)
    for (rate, level), run in edges.items():
        colour = run_look(run)["color"]
        if rate is not None and level <= axes.get_ylim()[1]:
            # White beneath keeps the dashes visible on a run that swings around its own 2/η.
            axes.axhline(level, color="white", linewidth=2 * THRESHOLD["linewidth"], zorder=THRESHOLD["zorder"])
            axes.axhline(level, color=colour, **THRESHOLD)
            name = r"$2/\eta,\ " if run.own_edge is None else r"edge, $"
            levels.append((level, rf"{name}\eta = {rate:.3g}$", colour))
    levels = thinned(sorted(levels, key=lambda level: level[0]), _MARGIN_LABELS)
    for bound, name in zip(shown.bounds or (), ("lower", "upper"), strict=False):
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

    Less the spacings below it, the sequence must not fall: this is isotonic regression.
    """
    if not (np.diff(heights) < spacing).any():
        return heights
    from scipy.optimize import isotonic_regression  # takes a moment to import, and is rarely needed

    stacked = spacing * np.arange(len(heights))
    return isotonic_regression(heights - stacked).x + stacked


def _mark_crossings(
    axes: Axes, runs: Sequence[RecordedRun], curves: Sequence[Curve], view: TimeView, label: str
) -> None:
    """Put a star on every curve where the run first reaches its edge, on its first point if it starts above."""
    places = []
    for run, drawn in zip(runs, curves, strict=True):
        times, values = in_view(axes, drawn, view)
        known, crossing = values > 0, run.number("crossing_time")
        if not crossing <= view.end or not known.any():
            continue
        times, values = times[known], values[known]
        if crossing <= times[-1]:
            time = max(crossing, times[0])
            places.append((time, np.exp(np.interp(time, times, np.log(values)))))
    if places:
        axes.plot(*zip(*places, strict=True), label=label, **CROSSING)
