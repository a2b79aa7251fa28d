"""The three panels, one above the other: the sharpness, its rate, and how far it rises over scale and depth."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from ...report.style import BOUND, MAJOR_TICKS, MINOR_TICKS, STYLE
from .claims import SharpnessCurve, cell_medians

_MARKERS = "os^Dv<P"


def sharpening(curves: list[SharpnessCurve]) -> Figure:
    """Return the figure: above, the first flow from each scale at a middle depth; below, all of them."""
    depths = sorted({one.depth for one in curves})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 5.4), layout="constrained")
        sharpness, rate, rise = figure.subplots(3, 1)
        if depths:
            shown = depths[len(depths) // 2]
            _draw_curves(sharpness, rate, [one for one in curves if one.depth == shown])
            sharpness.set_title(f"L = {shown}", loc="right", fontsize=7)
            _draw_rises(rise, curves, depths)
        _set_axes(sharpness, rate, rise)
    return figure


def _draw_curves(sharpness: Axes, rate: Axes, curves: list[SharpnessCurve]) -> None:
    """Draw the first curve of each scale, the larger the lighter, against the fraction of risk reduction."""
    scales = sorted({one.scale for one in curves})
    for number, scale in enumerate(scales):
        one = next(curve for curve in curves if curve.scale == scale)
        look = {"color": _shade(number, len(scales)), "linewidth": 1.2}
        inside = (one.fallen > 0) & (one.fallen < 1)
        fallen = one.fallen[inside]
        sharpness.plot(fallen, (one.sharpness / one.sharpness[-1])[inside], label=f"{scale:g}", **look)
        rate.plot(fallen, (one.rate / np.nanmax(np.abs(one.rate)))[inside], **look)
    rate.axhline(0, **BOUND)
    sharpness.legend(ncols=2, loc="lower right", handlelength=1.2, title="scale", title_fontsize=7)


def _draw_rises(axes: Axes, curves: list[SharpnessCurve], depths: list[int]) -> None:
    """Draw every flow as a point, and the median of each cell as a line, a look for each depth."""
    medians = cell_medians(curves, lambda one: one.rise)
    for number, depth in enumerate(depths):
        look: dict[str, Any] = {"color": _shade(number, len(depths)), "marker": _MARKERS[number % len(_MARKERS)]}
        runs = [one for one in curves if one.depth == depth]
        aside = 1 + 0.012 * (number - (len(depths) - 1) / 2)
        places = [one.scale * aside for one in runs]
        axes.plot(places, [one.rise for one in runs], linestyle="none", alpha=0.35, **{**look, "markersize": 1.8})
        axes.plot(list(medians[depth]), list(medians[depth].values()), label=f"L = {depth}", **look)
    axes.axhline(1, **BOUND)
    axes.legend(loc="upper right")


def _set_axes(sharpness: Axes, rate: Axes, rise: Axes) -> None:
    ticks = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    for axes in (sharpness, rate):
        axes.set_xscale("logit")
        axes.set_xlim(ticks[0], ticks[-1])
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    sharpness.set_yscale("log")
    sharpness.set_ylabel(r"sharpness $S/S(\infty)$")
    rate.set_ylabel(r"rate $\dot S/\max|\dot S|$")
    rate.set_xlabel("fraction of risk reduction")
    rise.set_yscale("log")
    rise.set_xlabel("scale of the initialization")
    rise.set_ylabel(r"rise $\max S/S(0)$")
    for axes in (sharpness, rate, rise):
        axes.tick_params(which="major", **MAJOR_TICKS)
        axes.tick_params(which="minor", **MINOR_TICKS)


def _shade(number: int, count: int) -> Any:
    return matplotlib.colormaps["viridis"](0.1 + 0.78 * number / max(1, count - 1))
