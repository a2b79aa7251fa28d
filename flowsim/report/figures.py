"""Figures of runs beside a flow: how far from the optimum, how sharp, and how far they are from the flow."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..comparison.flow_limits import LIMIT
from ..results.recorded import Recorded, RecordedRun, recorded
from ..results.runs import Run
from .labels import LABELS
from .model_figures import model_figures
from .panel import add_legend, draw_curve, empty_figure, in_view, name_of
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
    if shown.others and shown.has_flow:
        made["distance"] = distance_figure(dataset)
    return probe_figures(dataset) | made | model_figures(dataset)


def squared_distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return ‖π − w*‖² against time, of the flow and of every other run.

    Networks without a regressor show the excess risk instead, or the risk where its minimum is unknown.
    """
    shown = recorded(dataset)
    quantity = _measure_of_progress(shown.leading)
    with matplotlib.rc_context(STYLE):
        figure, axes, view = empty_figure(shown, LABELS[quantity])
        draw_measure(axes, shown, view, quantity)
        add_legend(figure, axes)
    return figure


def draw_measure(axes: Axes, shown: Recorded, view: TimeView, quantity: str) -> None:
    """Draw a positive quantity along all runs, on a logarithmic axis."""
    curves = [curve(run, quantity) for run in shown.ordered]
    _set_log_limits(axes, curves, view)
    _draw_flow(axes, shown, quantity, view)
    _draw_others(axes, shown.by_rate, curves[-len(shown.by_rate) :] if shown.by_rate else [], view)


def sharpness_figure(dataset: xarray.Dataset) -> Figure:
    """Return the sharpness against time, with 2/η of every learning rate and the bounds of Theorem 2 on S_min.

    In place of 2/η stands the edge of stability of the descent where that is another, nothing where it is not known.
    Where it was asked for, thin black lines with the marks of the descents show how sharp the limit of the flow from
    their points is.
    """
    shown = recorded(dataset)
    with matplotlib.rc_context(STYLE):
        figure, axes, view = empty_figure(shown, LABELS["sharpness"])
        draw_sharpness(axes, shown, view)
        add_legend(figure, axes)
    return figure


def draw_sharpness(axes: Axes, shown: Recorded, view: TimeView) -> None:
    """Draw the sharpness along all runs with their edges, the bounds of Theorem 2, and the flow's limits if known."""
    thresholds = [run.run.threshold for run in shown.others]
    leading, others = curve(shown.leading, "sharpness").known(), shown.by_rate
    curves = [curve(run, "sharpness").known() for run in others]
    limits = {run.run: curve(run, LIMIT.name).known() for run in others if _has_limits(run)}
    axes.set_ylim(*sharpness_limits(leading, [*curves, *limits.values()], shown.bounds or (), thresholds, view))
    _draw_flow(axes, shown, "sharpness", view)
    _draw_others(axes, others, curves, view)
    _draw_limits(axes, limits, view)
    _draw_levels(axes, shown)


def distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return the distance ‖W_GD(t/η) − W_GF(t)‖ against time, and where the sharpness first reaches 2/η."""
    shown = recorded(dataset)
    with matplotlib.rc_context(STYLE):
        figure, axes, view = empty_figure(shown, label_of_distance(shown))
        draw_distance(axes, shown, view)
        add_legend(figure, axes)
    return figure


def label_of_distance(shown: Recorded) -> str:
    """Return what the axis of the distance to the flow is called."""
    descents = all(other.run.is_descent for other in shown.others)
    theirs = r"W_\mathrm{GD}(t/\eta)" if descents else "W(t)"
    return rf"$\Vert {theirs} - W_\mathrm{{GF}}(t) \Vert$"


def draw_distance(axes: Axes, shown: Recorded, view: TimeView) -> None:
    """Draw the distance of the other runs to the flow, and where each first reaches its edge."""
    curves = [curve(run, "distance") for run in shown.by_rate]
    _set_log_limits(axes, curves, view)
    _draw_others(axes, shown.by_rate, curves, view)
    label = r"$S$ reaches $2/\eta$" if shown.plain else "reaches its edge"
    _mark_crossings(axes, shown.by_rate, curves, view, label)


def _follows_sharpness(run: RecordedRun) -> bool:
    """Tell whether a run knows its sharpness anywhere but at its end."""
    known = np.isfinite(run.along("sharpness"))
    return bool(known[:-1].any() or (known.all() and len(known) == 1))


def _measure_of_progress(run: RecordedRun) -> str:
    known = (name for name in ("squared_distance", "excess_risk") if np.isfinite(run.along(name)[0]))
    return next(known, "risk")


def _set_log_limits(axes: Axes, curves: Sequence[Curve], view: TimeView) -> None:
    limits = log_limits(curves, view)
    if limits is not None:
        axes.set_yscale("log")
        axes.set_ylim(*limits)
    else:
        axes.set_ylim(-0.02, 1)


def _draw_flow(axes: Axes, shown: Recorded, quantity: str, view: TimeView) -> None:
    """Draw the gradient flow, where there is one."""
    if not shown.has_flow:
        return
    drawn = curve(shown.flow, quantity)
    times, values = in_view(axes, drawn.known() if quantity == "sharpness" else drawn, view)
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
        draw_curve(axes, times, values, look | {"label": label, "markevery": marked.tolist()})


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
            axes.axhline(level, color=colour, **THRESHOLD)
            name = r"$2/\eta,\ " if run.has_edge_of_descent else r"edge, $"
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
