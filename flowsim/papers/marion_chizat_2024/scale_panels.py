"""The panels of Figures 1, 3–7 that go over the scale of the initialization."""

import xarray
from matplotlib.axes import Axes

from ...report.panels import LABELS
from ...report.panels.sweep import positions
from ...report.render_sweep import (
    draw_bound,
    draw_divergence,
    draw_final,
    draw_initial,
    draw_thresholds,
    set_axis,
)
from ...report.sweeps import runs
from ...report.sweeps.intervals import median
from .measures import drawn_rates, upper_bound

# The sharpness has the same axis in all figures of the paper.
SHARPNESS_LIMITS = (0.1, 3e4)
_HIGHEST_DECADE = 8


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
    """Return a little more than the highest median, below which all curves are mostly to be seen."""
    medians = [median(dataset["initial_sharpness"])]
    medians += [median(runs.final(dataset, run, "sharpness")) for run in runs.runs_of(dataset)]
    highest = max((float(m.max()) for m in medians if m.notnull().any()), default=0.0)
    return min(2 * highest, 10.0**_HIGHEST_DECADE)


def draw_divergence_probability(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw Figures 3 and 5: the share of the runs that diverged, against the scale, for every learning rate."""
    draw_divergence(axes, dataset, runs.descents(dataset))
    set_axis(axes, dataset)
