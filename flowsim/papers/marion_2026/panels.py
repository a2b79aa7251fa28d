"""The two panels, one above the other: the sharpness at the centre of descent's oscillation, and its amplitude."""

import itertools
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report.render_paper import legend_above
from ...report.style import FLOW, MAJOR_TICKS, MINOR_TICKS, STYLE, THRESHOLD
from ...results.recorded import RecordedRun, recorded
from .claims import Descent, descents_of

# Wide and pale, in the shade of its learning rate, below the curves of the models.
_DESCENT: dict[str, Any] = {"linewidth": 3.6, "solid_capstyle": "round", "alpha": 0.55, "zorder": 2.1}
_GRADIENT_FLOW = FLOW | {"linewidth": 1.2, "label": "GF"}
_MODELS = (("#b2182b", (0, (4, 1))), ("#08306b", (0, (1, 1))), ("#7a3b9c", (0, (5, 1, 1, 1))))


def at_the_edge(trajectories: xarray.Dataset) -> Figure:
    """Return the figure of the descents, of the gradient flow and of the models."""
    descents = descents_of(trajectories)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 4.2), layout="constrained")
        sharpness, amplitude = figure.subplots(2, 1, sharex=True)
        _draw_flow(sharpness, recorded(trajectories).flow)
        for number, one in enumerate(descents):
            _draw(sharpness, amplitude, one, matplotlib.colormaps["viridis"](0.2 + 0.65 * number / len(descents)))
        sharpness.set_ylabel("sharpness at the centre")
        amplitude.set_ylabel("amplitude of the oscillation")
        amplitude.set_xlabel(r"time $t = \eta k$")
        highest = max((float(one.amplitude.max()) for one in descents), default=1.0)
        amplitude.set_ylim(1e-4, max(3 * highest, 1e-3))
        for axes in (sharpness, amplitude):
            axes.set_yscale("log")
            axes.set_xlim(0, max((float(one.times[-1]) for one in descents), default=1.0))
            axes.tick_params(which="major", **MAJOR_TICKS)
            axes.tick_params(which="minor", **MINOR_TICKS)
        legend_above(figure)
    return figure


def _draw_flow(axes: Axes, flow: RecordedRun) -> None:
    axes.plot(flow.along("time"), flow.along("sharpness"), **_GRADIENT_FLOW)


def _draw(sharpness: Axes, amplitude: Axes, one: Descent, colour: Any) -> None:
    """Draw one descent, its edge 2/η, and its models, which look the same at every learning rate."""
    label = rf"GD, $\eta = {one.learning_rate:.3g}$"
    for axes, values in ((sharpness, one.sharpness), (amplitude, one.amplitude)):
        axes.plot(one.times, values, color=colour, label=label, **_DESCENT)
    threshold = 2 / one.learning_rate
    sharpness.axhline(threshold, color=colour, **THRESHOLD)
    sharpness.annotate(
        r"$2/\eta$",
        xy=(1.0, threshold),
        xycoords=sharpness.get_yaxis_transform(),
        xytext=(2, 0),
        textcoords="offset points",
        va="center",
        fontsize=6.5,
        annotation_clip=False,
    )
    for (shade, dashes), model in zip(itertools.cycle(_MODELS), one.models, strict=False):
        look = {"color": shade, "linestyle": dashes, "linewidth": 1.3, "zorder": 3.0, "label": f"{model.name} flow"}
        sharpness.plot(one.times, model.sharpness, **look)
        amplitude.plot(one.times, np.where(model.amplitude > 0, model.amplitude, np.nan), **look)
