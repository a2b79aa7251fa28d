"""The two panels of the phase diagram, one above the other: the sharpness at the end, and the risk on the way."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report.render_paper import legend_above
from ...report.style import MAJOR_TICKS, MINOR_TICKS, STYLE, THRESHOLD
from .claims import DIVERGENT_BEGINS, LAZY_ENDS, Descents, Single

_RIGHT, _HIGHEST_PEAK = 4.5, 1e6  # the ends of the axes of ηS(0) and of the risk
_EXACT: dict[str, Any] = {"color": "0.35", "linewidth": 0.7, "zorder": 2.3}
_OF_SINGLE: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "black", "markersize": 3.2, "zorder": 3.2}


def phase_diagram(descents: Descents, single: Single | None) -> Figure:
    """Return the figure: points are descents, the line is the exact recursion from the start of the single runs."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 3.9), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        _draw_sharpness(upper, descents)
        if single is not None:
            _draw_single(upper, lower, single)
        upper.set_ylabel("sharpness at the end, $S/S(0)$")
        lower.set_ylabel("largest risk, $R/R(0)$")
        lower.set_xlabel(r"$\eta S(0)$")
        for axes in (upper, lower):
            _set_axis(axes)
        upper.set_ylim(1e-3, 3.0)
        lower.set_ylim(0.3, _HIGHEST_PEAK)
        for name, place in {"lazy": 1.0, "catapult": 3.0, "divergent": 4.25}.items():
            upper.text(place, 1.35, name, ha="center", va="bottom", fontsize=7)
        legend_above(figure)
    return figure


def _draw_sharpness(axes: Axes, descents: Descents) -> None:
    """Draw every descent of the sweep that did not diverge, a look for each width."""
    widths = np.unique(descents.width)
    for number, width in enumerate(widths):
        part = descents.select((descents.width == width) & ~descents.diverged)
        colour = matplotlib.colormaps["viridis"](0.25 + 0.6 * number / max(1, len(widths) - 1))
        look = {"linestyle": "none", "marker": "s^Dv"[number % 4], "markersize": 2.2, "color": colour}
        axes.plot(part.product, part.kept, label=rf"$n = {width:g}$", zorder=2.6, markeredgewidth=0, **look)


def _draw_single(upper: Axes, lower: Axes, single: Single) -> None:
    """Draw the descents from one start, and the recursion from there; an arrow at the top stands for divergence."""
    products = np.linspace(0.02, _RIGHT, 1200)
    exact = single.recursion_ends(products, steps=4000)
    upper.plot(products, exact.kernel, label="exact recursion", **_EXACT)
    lower.plot(products, np.where(exact.diverged, np.nan, exact.peak), **_EXACT)
    label = rf"one start, $n = {single.width}$"
    upper.plot(single.product, single.kept, label=label, **_OF_SINGLE)
    lost = np.isnan(single.kept)
    lower.plot(single.product[~lost], single.peak[~lost], **_OF_SINGLE)
    lower.plot(single.product[lost], np.full(lost.sum(), _HIGHEST_PEAK / 2), **{**_OF_SINGLE, "marker": "^"})


def _set_axis(axes: Axes) -> None:
    for boundary in (LAZY_ENDS, DIVERGENT_BEGINS):
        axes.axvline(boundary, color="0.4", **THRESHOLD)
    axes.set_yscale("log")
    axes.set_xlim(0, _RIGHT)
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
