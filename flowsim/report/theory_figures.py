"""Figures of the theory: both sides of the statements along the flow, and the sharpness against conditioning."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from ..results import CheckedFlow, TheoryResults
from ..theory import Statement
from .style import BOUND, MAJOR_TICKS, MINOR_TICKS, STYLE

# Sides that agree lie on one another: the smaller one is drawn inside the larger.
_LARGER: dict[str, Any] = {"color": "0.72", "linewidth": 2.6, "zorder": 2.2}
_SMALLER: dict[str, Any] = {"color": "black", "linewidth": 0.9, "zorder": 2.4}


def theory_figures(results: TheoryResults) -> dict[str, Figure]:
    """Return the figures by name: "theory", where statements depend on time, and "conditioning", for several Λ/λ."""
    made = {}
    columns = first_at_each_depth(results.flows)
    if any(series(checked) for checked in columns):
        made["theory"] = sides_figure(columns)
    if len({checked.condition for checked in results.flows}) > 1 and ratios(results.flows):
        made["conditioning"] = conditioning_figure(results.flows)
    return made


def sides_figure(columns: Sequence[CheckedFlow]) -> Figure:
    """Return both sides of every time-dependent statement, a row for each, with a column for each flow.

    Time counts from the escape from the initial plateau; where that lasted long, it is logarithmic either way.
    """
    names = list(dict.fromkeys(name for checked in columns for name in series(checked)))
    with matplotlib.rc_context(STYLE):
        size = (0.9 + 1.7 * len(columns), 0.5 + 1.15 * len(names))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(names), len(columns), squeeze=False, sharex="col")
        for column, checked in zip(panels.T, columns, strict=True):
            column[0].set_title(f"$L = {checked.depth}$", fontsize=8)
            column[-1].set_xlabel("time since the escape")
            for axes, name in zip(column, names, strict=True):
                _draw_sides(axes, series(checked).get(name))
        for row, name in zip(panels, names, strict=True):
            row[0].set_ylabel(name.replace(", ", ",\n"), fontsize=7)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


def conditioning_figure(flows: Sequence[CheckedFlow]) -> Figure:
    """Return S over the lower bound on S_min against Λ/λ, with the bound 4Λ/λ of Corollary 2 where it applies."""
    found = ratios(flows)
    with matplotlib.rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes = figure.add_subplot()
        _set_ticks(axes)
        depths = sorted({depth for depth, _, _ in found})
        for index, depth in enumerate(depths):
            points = [(condition, ratio) for d, condition, ratio in found if d == depth]
            colour = matplotlib.colormaps["viridis"](0.2 + 0.6 * index / max(1, len(depths) - 1))
            axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=2.5, label=f"$L = {depth}$")
        conditions = np.array(sorted({condition for _, condition, _ in found}))
        if any(statement.name == "Corollary 2" and statement.smaller is not None for statement in flows[0].statements):
            axes.plot(conditions, 4 * conditions, label=r"$4\Lambda/\lambda$", **{**BOUND, "linestyle": "--"})
        axes.axhline(1, **BOUND)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(r"$\Lambda/\lambda$")
        axes.set_ylabel(r"$S$ / lower bound on $S_\mathrm{min}$")
        axes.legend(loc="upper left")
    return figure


def first_at_each_depth(flows: Sequence[CheckedFlow]) -> list[CheckedFlow]:
    """Return the first flow of each depth."""
    first: dict[int, CheckedFlow] = {}
    for checked in flows:
        first.setdefault(checked.depth, checked)
    return list(first.values())


def series(checked: CheckedFlow) -> dict[str, Statement]:
    """Return the statements about a flow whose sides go along time, by name."""
    return {statement.name: statement for statement in checked.statements if statement.times is not None}


def ratios(flows: Sequence[CheckedFlow]) -> list[tuple[int, float, float]]:
    """Return depth, Λ/λ, and sharpness over the lower bound of Theorem 2, of the flows that converged."""
    found = []
    for checked in flows:
        for statement in checked.statements:
            if statement.name == "Theorem 1" and checked.outcome.converged and statement.smaller is not None:
                smaller, larger = statement.sides
                if smaller and larger and np.isfinite(checked.condition):
                    found.append((checked.depth, checked.condition, larger / smaller))
    return found


def _draw_sides(axes: Axes, statement: Statement | None) -> None:
    _set_ticks(axes)
    if statement is None or statement.times is None:
        axes.set_axis_off()
        return
    times = statement.times
    for side, label, look in (
        (statement.larger, "larger side", _LARGER),
        (statement.smaller, "smaller side", _SMALLER),
    ):
        if side is not None:
            axes.plot(times, np.where(np.isfinite(side) & (side > 0), side, np.nan), label=label, **look)
    _set_vertical_limits(axes, statement)
    _set_time_axis(axes, times)


def _set_vertical_limits(axes: Axes, statement: Statement, *, above: float = 1e8, decades: float = 24.0) -> None:
    """Show both sides, the larger one up to `above` times all of the smaller one, over at most so many decades."""
    smaller, larger = (
        np.zeros(0) if side is None else side[np.isfinite(side) & (side > 0)]
        for side in (statement.smaller, statement.larger)
    )
    values = np.concatenate([smaller, larger])
    axes.set_yscale("log")
    if len(values):
        top = min(values.max(), above * smaller.max()) if len(smaller) else values.max()
        bottom = max(values.min(), top * 10.0**-decades)
        axes.set_ylim(bottom / 3, top * 3)
    axes.yaxis.set_major_locator(LogLocator(numticks=4))
    axes.yaxis.set_minor_formatter(NullFormatter())


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
    axes.xaxis.set_major_locator(FixedLocator([-far, *([-middle] if middle < far / 80 else []), 0, _round_down(after)]))
    axes.xaxis.set_major_formatter(FuncFormatter(_time_label))
    axes.xaxis.set_minor_locator(NullLocator())


def _round_down(number: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten up to a number."""
    power = 10.0 ** np.floor(np.log10(number))
    return power * max(digit for digit in (1, 2, 5) if digit * power <= number)


def _time_label(time: float, position: int | None = None) -> str:
    """Write times of thousands and more, which are powers of ten, as such."""
    return f"{time:g}" if abs(time) < 1000 else f"${'-' if time < 0 else ''}10^{{{np.log10(abs(time)):.0f}}}$"


def _set_ticks(axes: Axes) -> None:
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
