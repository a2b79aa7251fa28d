"""The panel: risk against time on logarithmic axes, all runs together."""

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report.render_paper import legend_above
from ...report.style import BOUND, MAJOR_TICKS, MINOR_TICKS, STYLE, run_look
from ...results.recorded import recorded
from .claims import margin_of, risk_curves_of


def risk_over_time(trajectories: xarray.Dataset) -> Figure:
    """Return the figure of the flow and the descents, and of 1/(γ²t)."""
    shown = recorded(trajectories)
    flow, descents = risk_curves_of(trajectories)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 2.7), layout="constrained")
        axes = figure.add_subplot()
        for run in (shown.flow, *(run for run in shown.by_rate if run.run.is_descent)):
            times, risk = run.along("time").astype(float), run.along("risk").astype(float)
            look = run_look(run.run)
            marks = {"markevery": _evenly_marked(times)} if "marker" in look else {}
            axes.plot(times[1:], risk[1:], label=run.run.label, **{**look, **marks})
        last = max(curve.times[-1] for curve in (flow, *descents))
        _draw_rate(axes, margin_of([flow, *descents]), last)
        _set_axes(axes, last, min(curve.risk[-1] for curve in (flow, *descents[:1])))
        legend_above(figure)
    return figure


def _evenly_marked(times: np.ndarray, count: int = 8) -> list[int]:
    """Return some `count` records that stand evenly on a logarithmic axis, counted without the first one, at t = 0."""
    places = np.geomspace(times[1], times[-1], count)
    return np.unique(np.searchsorted(times[1:], places)).clip(max=len(times) - 2).tolist()


def _draw_rate(axes: Axes, margin: float, last: float) -> None:
    times = np.array([1 / margin**2, last])
    axes.plot(times, 1 / (margin**2 * times), label=r"$1/(\gamma^2 t)$", **BOUND)


def _set_axes(axes: Axes, last: float, least: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.2, 3 * last)
    axes.set_ylim(bottom=least / 30)
    axes.set_xlabel(r"time $t = \eta k$")
    axes.set_ylabel(r"risk $R$")
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
