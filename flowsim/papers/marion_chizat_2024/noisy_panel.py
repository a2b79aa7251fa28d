"""The panel that Appendix C does not show: the sharpness after training on noisy data, in parts of 2/η."""

import numpy as np
import xarray
from matplotlib.axes import Axes

from ...report.panels.sweep import positions
from ...report.render_sweep import set_axis
from ...report.style import THRESHOLD, run_look
from ...report.sweeps import runs
from ...report.sweeps.intervals import median
from .noisy_claims import over_edge

_HIGHEST = 1.65
# Between the points of neighbouring learning rates, in parts of the distance between scales.
_ASIDE = 0.13


def draw_over_edge(axes: Axes, dataset: xarray.Dataset) -> None:
    """Draw S·η/2 after training against the scale: every run as a point, and the median for each learning rate."""
    x, shown = positions(dataset), runs.descents(dataset)
    spacing = _ASIDE * (x[-1] - x[0]) / max(1, len(x) - 1)
    for number, run in enumerate(shown):
        values = over_edge(dataset, run).transpose(..., runs.REPETITION)
        places = np.broadcast_to((x + spacing * (number - (len(shown) - 1) / 2))[:, None], values.shape)
        look = run_look(run)
        dots = {"marker": look["marker"], "markersize": 1.8, "markeredgewidth": 0, "linestyle": "none", "alpha": 0.45}
        axes.plot(places.ravel(), np.minimum(values.values.ravel(), _HIGHEST), color=look["color"], **dots)
        axes.plot(x, median(values).values, label=run.label, **look)
    axes.axhline(1.0, color="0.4", **THRESHOLD)
    axes.set_ylim(0, _HIGHEST)
    axes.set_ylabel(r"sharpness over $2/\eta$, $S\eta/2$")
    set_axis(axes, dataset)
