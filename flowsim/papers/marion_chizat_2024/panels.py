"""The panels that show a sweep: against the scale of the initialization, the learning rate, or the sharpness."""

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.patheffects import Normal, Stroke

from ...report.panels import LABELS
from ...report.panels.sweep import positions
from ...report.render_sweep import (
    draw_bound,
    draw_divergence,
    draw_final,
    draw_initial,
    draw_interval,
    draw_thresholds,
    set_axis,
)
from ...report.style import FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS, THRESHOLD, THRESHOLD_ID, run_look
from ...report.sweeps import runs
from ...report.sweeps.intervals import median, quartiles
from ...results.runs import FLOW
from .measures import (
    Points,
    Regression,
    drawn_rates,
    gaps,
    has_test_risk,
    over_edge,
    regress,
    regressed_run,
    upper_bound,
)

# The sharpness has the same axis in all figures of the paper.
SHARPNESS_LIMITS = (0.1, 3e4)


def draw_squared_distance(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw panel a of Figures 1 and 4: squared distance after training against the scale, for every run."""
    draw_initial(axes, dataset, "squared_distance")
    draw_final(axes, dataset, runs.runs_of(dataset), "squared_distance")
    axes.set_yscale("log")
    axes.set_ylabel(LABELS["squared_distance"])
    set_axis(axes, dataset)


def draw_sharpness(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw panel b of Figures 1, 4 and 6 and Figure 7: sharpness at initialization and after training, and bounds.

    The lower bound is that of Theorem 2, which is 2La for ‖w*‖ = 1; perceptrons of overdetermined data have the upper
    one 8LΛ of Corollary 2, too. For a nonlinear network these are the bounds of the linear one on the same data.
    """
    shown = drawn_rates(dataset)
    draw_initial(axes, dataset, "sharpness")
    draw_final(axes, dataset, runs.flows(dataset) + shown, "sharpness")
    draw_thresholds(axes, shown)
    draw_bounds(axes, dataset)
    axes.set_yscale("log")
    bottom, top = SHARPNESS_LIMITS
    axes.set_ylim(bottom, max(top, _highest_median(dataset)))
    axes.set_ylabel(LABELS["sharpness"])
    set_axis(axes, dataset)


def draw_bounds(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the dotted bounds: 2La, and 8LΛ where Corollary 2 applies."""
    x = positions(dataset)
    draw_bound(axes, x, dataset["sharpness_lower_bound"].values, r"$2La$")
    upper = upper_bound(dataset)
    if upper is not None:
        draw_bound(axes, x, upper, r"$8L\Lambda$")


def _highest_median(dataset: xarray.Dataset) -> float:
    """Return twice the highest median, 1e8 at most, below which curves and most of their quartiles are to be seen."""
    medians = [median(dataset["initial_sharpness"])]
    medians += [median(runs.final(dataset, run, "sharpness")) for run in runs.runs_of(dataset)]
    highest = max((float(m.max()) for m in medians if m.notnull().any()), default=0.0)
    return min(2 * highest, 1e8)


def draw_divergence_probability(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw Figures 3 and 5: the share of the runs that diverged, against the scale, for every learning rate."""
    draw_divergence(axes, dataset, runs.descents(dataset))
    set_axis(axes, dataset)


def draw_critical_rates(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the squared distance after training against η, a curve for each depth, and 1/(La) dashed.

    Medians are over the runs that did not diverge; where all did, the curve ends.
    """
    depths, rates = dataset["depth"].values, np.array([run.learning_rate for run in runs.descents(dataset)])
    for index, depth in enumerate(depths):
        part = dataset.isel(depth=index)
        values = np.stack([runs.final(part, m, "squared_distance").values for m in runs.descents(dataset)])
        colour = matplotlib.colormaps["plasma"](0.8 * index / max(1, len(depths) - 1))
        look = {"color": colour, "marker": "os^DvP"[index % 6], "markeredgecolor": "black", "zorder": 3.0}
        draw_interval(axes, rates, quartiles(values), rf"$L = {depth}$", look)
        axes.axvline(2 / part["sharpness_lower_bound"].item(), color=colour, gid=THRESHOLD_ID, **THRESHOLD)
    _draw_flow(axes, dataset, rates[0])
    axes.set_xscale("log")
    # The zero network is at ‖w*‖² = 1; the paper draws −0.01 to 0.21 of the squared distance divided by d = 5.
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel(r"learning rate $\eta$")
    axes.set_ylabel(LABELS["squared_distance"])
    axes.tick_params(which="major", **MAJOR_TICKS)
    axes.tick_params(which="minor", **MINOR_TICKS)


def _draw_flow(axes: Axes, dataset: xarray.Dataset, smallest_rate: float) -> None:
    """Draw the limit of the flow, η → 0, over all depths, to the left of the smallest learning rate."""
    if runs.flows(dataset):
        distance = float(
            quartiles(runs.final(dataset, runs.FLOW, "squared_distance").values.reshape(1, -1)).estimate[0]
        )
        ends = [smallest_rate / 1.25, smallest_rate]
        axes.plot(ends, [distance] * 2, label=r"GF ($\eta \to 0$)", **FLOW_LOOK)


def draw_generalization(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the gap against the sharpness after training with the smallest η and, as crosses, at the flow's limits."""
    run = regressed_run(dataset)
    points = gaps(dataset, run)
    dots = {"color": run_look(run)["color"], "marker": run_look(run)["marker"], "edgecolors": "none", "alpha": 0.7}
    limits = [_positive(gaps(dataset, FLOW))] if has_test_risk(dataset) else []
    for limit in limits:
        look = {"marker": "x", "color": "0.45", "linewidths": 0.5, "s": 8, "zorder": 2.3}
        axes.scatter(*limit, label="limit of GF", **look)
    axes.scatter(*_positive(points), label=f"GD, {run.label}", s=6, zorder=2.4, **dots)
    if any(len(shown[0]) for shown in (*limits, _positive(points))):  # a logarithmic axis of no points has no ends
        axes.set_xscale("log")
        axes.set_yscale("log")
    found = regress(points)
    if found is not None:
        x = np.array([np.min(_positive(points)[0]), np.max(_positive(points)[0])])
        line = 10**found.intercept * x**found.slope
        rim = [Stroke(linewidth=3, foreground="white"), Normal()]  # by which the line stands out from the points
        look = {"color": "black", "linewidth": 1.4, "zorder": 3}
        axes.plot(x, line, label="regression of GD", path_effects=rim, **look)
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


def draw_over_edge(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw S·η/2 after training against the scale: every run as a point, and the median for each learning rate."""
    x, shown, top = positions(dataset), runs.descents(dataset), 1.65
    spacing = 0.13 * (x[-1] - x[0]) / max(1, len(x) - 1)  # between the points of neighbouring learning rates
    for number, run in enumerate(shown):
        values = over_edge(dataset, run).transpose(..., runs.REPETITION)
        places = np.broadcast_to((x + spacing * (number - (len(shown) - 1) / 2))[:, None], values.shape)
        look = run_look(run)
        dots = {"marker": look["marker"], "markersize": 1.8, "markeredgewidth": 0, "linestyle": "none", "alpha": 0.45}
        axes.plot(places.ravel(), np.minimum(values.values.ravel(), top), color=look["color"], **dots)
        axes.plot(x, median(values).values, label=run.label, **look)
    axes.axhline(1.0, color="0.4", **THRESHOLD)
    axes.set_ylim(0, top)
    axes.set_ylabel(r"sharpness over $2/\eta$, $S\eta/2$")
    set_axis(axes, dataset)
