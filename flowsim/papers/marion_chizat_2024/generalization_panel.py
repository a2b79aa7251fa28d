"""Figure 6b: the generalization gap against the sharpness."""

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.patheffects import Normal, Stroke

from ...report.style import MAJOR_TICKS, MINOR_TICKS, run_look
from ...results.runs import FLOW
from .generalization import Points, Regression, gaps, regress, regressed_run, with_test_risk

_FLOW_MARKS = {"marker": "x", "color": "0.45", "linewidths": 0.5, "s": 8, "zorder": 2.3}
_LINE = {"color": "black", "linewidth": 1.4, "zorder": 3}
# A white rim, by which the line stands out from the points.
_RIM = [Stroke(linewidth=3, foreground="white"), Normal()]


def draw_generalization(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the gap against the sharpness after training with the smallest η and, as crosses, at the flow's limits."""
    run = regressed_run(dataset)
    points = gaps(dataset, run)
    dots = {"color": run_look(run)["color"], "marker": run_look(run)["marker"], "edgecolors": "none", "alpha": 0.7}
    limits = [_positive(gaps(dataset, FLOW))] if with_test_risk(dataset) else []
    for limit in limits:
        axes.scatter(*limit, label="limit of GF", **_FLOW_MARKS)
    axes.scatter(*_positive(points), label=f"GD, {run.label}", s=6, zorder=2.4, **dots)
    if any(len(shown[0]) for shown in (*limits, _positive(points))):  # a logarithmic axis of no points has no ends
        axes.set_xscale("log")
        axes.set_yscale("log")
    found = regress(points)
    if found is not None:
        x = np.array([np.min(_positive(points)[0]), np.max(_positive(points)[0])])
        line = 10**found.intercept * x**found.slope
        axes.plot(x, line, label="regression of GD", path_effects=_RIM, **_LINE)
        axes.set_title(_description(found), fontsize=7)
    axes.set_xlabel(r"sharpness $S$ after training")
    axes.set_ylabel("test risk − training risk")
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)
    axes.legend(loc="upper left", handletextpad=0.4)


def _positive(points: Points) -> Points:
    kept = (points[0] > 0) & (points[1] > 0)
    return points[0][kept], points[1][kept]


def _description(found: Regression) -> str:
    p = f"= {found.p_value:.1g}" if found.p_value >= 1e-16 else "< 1e-16"
    return rf"slope {found.slope:.3g}, $R^2 = {found.r_squared:.2f}$, one-sided $p$ {p}"
