"""Figure 2: the learning rate at which training begins to fail, for several depths."""

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes

from ...report.panels import LABELS
from ...report.render_sweep import draw_interval
from ...report.style import FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS, THRESHOLD, THRESHOLD_ID
from ...report.sweeps import runs
from ...report.sweeps.intervals import quartiles

_MARKERS = "os^DvP"
# The zero network is at squared distance ‖w*‖² = 1; the authors draw −0.01 to 0.21 of this divided by d = 5.
_LIMITS = (-0.05, 1.05)
_FLOW_REACH = 1.25


def draw_critical_rates(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw the squared distance after training against η, a curve for each depth, and 1/(La) dashed.

    Medians are over the runs that did not diverge; where all did, the curve ends.
    """
    depths, rates = dataset["depth"].values, np.array([run.learning_rate for run in runs.descents(dataset)])
    for index, depth in enumerate(depths):
        part = dataset.isel(depth=index)
        values = np.stack([runs.final(part, m, "squared_distance").values for m in runs.descents(dataset)])
        colour = matplotlib.colormaps["plasma"](0.8 * index / max(1, len(depths) - 1))
        look = {"color": colour, "marker": _MARKERS[index % len(_MARKERS)], "markeredgecolor": "black", "zorder": 3.0}
        draw_interval(axes, rates, quartiles(values), rf"$L = {depth}$", look)
        axes.axvline(2 / part["sharpness_lower_bound"].item(), color=colour, gid=THRESHOLD_ID, **THRESHOLD)
    _draw_flow(axes, dataset, rates[0])
    axes.set_xscale("log")
    axes.set_ylim(*_LIMITS)
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
        ends = [smallest_rate / _FLOW_REACH, smallest_rate]
        axes.plot(ends, [distance] * 2, label=r"GF ($\eta \to 0$)", **FLOW_LOOK)
