"""Figure 6b: whether sharper minima generalize worse."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patheffects import Normal, Stroke
from scipy.stats import linregress

from ..style import MAJOR_TICKS, MINOR_TICKS
from ..sweeps import runs
from ..sweeps.panels import look, name_of
from ..sweeps.runs import Method

_FLOW_MARKS = {"marker": "x", "color": "0.45", "linewidths": 0.5, "s": 8, "zorder": 2.3}
_LINE = {"color": "black", "linewidth": 1.4, "zorder": 3}
# A white rim, by which the line stands out from the points.
_RIM = [Stroke(linewidth=3, foreground="white"), Normal()]


@dataclass(frozen=True)
class Regression:
    """log₁₀ of the generalization gap regressed on log₁₀ of the sharpness, over `count` runs.

    `p_value` is that of the hypothesis that the slope is not positive. `left_out` counts runs without a positive gap,
    whose logarithm does not exist.
    """

    slope: float
    intercept: float
    r_squared: float
    p_value: float
    count: int
    left_out: int


Points = tuple[Float[np.ndarray, " runs"], Float[np.ndarray, " runs"]]


def gaps(dataset: xarray.Dataset, method: Method) -> Points:
    """Return the sharpness and the generalization gap, test risk − risk, at the end of every run of `method`."""
    names = ("sharpness", "test_risk", "risk")
    sharpness, test, train = (runs.final(dataset, method, name).values.ravel() for name in names)
    known = np.isfinite(sharpness) & np.isfinite(test - train)
    return sharpness[known], (test - train)[known]


def regress(points: Points) -> Regression | None:
    """Return the regression through `points`, or `None` where fewer than three, or one sharpness, are left."""
    sharpness, gap = points
    kept = (sharpness > 0) & (gap > 0)
    x, y = np.log10(sharpness[kept]), np.log10(gap[kept])
    if len(x) < 3 or np.ptp(x) == 0:
        return None
    slope, intercept, r, p, _ = map(float, linregress(x, y, alternative="greater"))
    return Regression(slope, intercept, r**2, p, len(x), int((~kept).sum()))


def regressed_method(dataset: xarray.Dataset) -> Method:
    """Return the descent that Figure 6b is about: that with the smallest learning rate, the paper's η = 0.001."""
    return runs.descents(dataset)[0]


def draw_generalization(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the gap against the sharpness after training with the smallest η and, as crosses, at the flow's limits."""
    method = regressed_method(dataset)
    points = gaps(dataset, method)
    dots = {"color": look(method)["color"], "marker": look(method)["marker"], "edgecolors": "none", "alpha": 0.7}
    if "flow_test_risk" in dataset:
        axes.scatter(*_positive(gaps(dataset, runs.FLOW)), label="limit of GF", **_FLOW_MARKS)
    axes.scatter(*_positive(points), label=f"GD, {name_of(method)}", s=6, zorder=2.4, **dots)
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
