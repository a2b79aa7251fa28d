"""Panels c and d of Figures 1 and 4: one run of descent, step by step, with the flow beside it."""

import numpy as np
import xarray
from matplotlib.axes import Axes

from ...comparison import DescentBesideFlow
from ...dynamics import Trajectory
from ..style import FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS
from ..sweeps import runs
from ..sweeps.panels import LABELS, draw_thresholds, look, name_of
from ..sweeps.runs import Method
from .scale_panels import SHARPNESS_LIMITS, draw_bounds

_MARKS = 9


def draw_course(
    distance: Axes, sharpness: Axes, dataset: xarray.Dataset, flow: Trajectory, descent: DescentBesideFlow
) -> None:
    """Draw squared distance and sharpness against the steps k of `descent`, and the flow at the times t = ηk.

    The sharpness has the axis of panel b, and 2/η dashed.
    """
    method = _method(dataset, descent.learning_rate)
    run, last = descent.trajectory, int(np.asarray(descent.trajectory.times)[-1] / descent.learning_rate + 0.5)
    for axes, quantity in ((distance, "squared_distance"), (sharpness, "sharpness")):
        for course, name, curve in ((flow, "GF", FLOW_LOOK), (run, name_of(method), look(method))):
            steps = np.asarray(course.times) / descent.learning_rate
            shown = steps <= last * (1 + 1e-9)
            every = {} if course is flow else {"markevery": max(1, int(shown.sum()) // _MARKS)}
            axes.plot(steps[shown], np.asarray(getattr(course, quantity))[shown], label=name, **curve, **every)
        axes.set_yscale("log")
        axes.set_xlim(0, last)
        axes.set_xlabel(rf"steps $k$, for the flow $t/\eta$ ($\eta = {descent.learning_rate:.3g}$)")
        axes.set_ylabel(LABELS[quantity])
        axes.tick_params(which="major", **MAJOR_TICKS)
        axes.tick_params(which="minor", **MINOR_TICKS)
    draw_thresholds(sharpness, [method])
    draw_bounds(sharpness, dataset)
    sharpness.set_ylim(*SHARPNESS_LIMITS)


def _method(dataset: xarray.Dataset, rate: float) -> Method:
    """Return the learning rate as it is in the sweep, so that it looks the same, or alone if it is not."""
    known = (m for m in runs.descents(dataset) if m.learning_rate and np.isclose(m.learning_rate, rate, rtol=1e-9))
    return next(known, Method(float(rate)))
