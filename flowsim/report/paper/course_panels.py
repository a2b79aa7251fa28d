"""Panels c and d of Figures 1 and 4: one run of descent, step by step, with the flow beside it."""

import numpy as np
import xarray
from matplotlib.axes import Axes

from ...comparison import DescentBesideFlow
from ...dynamics import Trajectory
from ..style import FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS, descent_look
from ..sweeps import runs
from ..sweeps.panels import LABELS, draw_thresholds, name_of
from ..sweeps.runs import Method
from .scale_panels import SHARPNESS_LIMITS, draw_bounds

_MARKS = 9
_SWING = 0.01


def draw_course(
    distance: Axes, sharpness: Axes, dataset: xarray.Dataset, flow: Trajectory, descent: DescentBesideFlow
) -> None:
    """Draw squared distance and sharpness against the steps k of `descent`, and the flow at the times t = ηk.

    The sharpness has the axis of panel b, and 2/η dashed.
    """
    method, rate, run = _method(dataset, descent.learning_rate), descent.learning_rate, descent.trajectory
    steps = np.asarray(run.times) / rate
    swings = _swings(np.asarray(run.sharpness))
    curve = descent_look(method.index, method.count, settled=not swings)
    marks = {"markevery": max(1, len(steps) // _MARKS), "label": name_of(method)}
    for axes, quantity in ((distance, "squared_distance"), (sharpness, "sharpness")):
        axes.plot(*_flow_course(flow, quantity, rate, steps[-1]), label="GF", **FLOW_LOOK)
        axes.plot(steps, np.asarray(getattr(run, quantity)), **curve, **marks)
        axes.set_yscale("log")
        axes.set_xlim(0, steps[-1])
        axes.set_xlabel(rf"steps $k$, for the flow $t/\eta$ ($\eta = {rate:.3g}$)")
        axes.set_ylabel(LABELS[quantity])
        axes.tick_params(which="major", **MAJOR_TICKS)
        axes.tick_params(which="minor", **MINOR_TICKS)
    draw_thresholds(sharpness, [method], on_white=True)  # a run may swing around its own 2/η
    draw_bounds(sharpness, dataset)
    sharpness.set_ylim(*SHARPNESS_LIMITS)


def _flow_course(flow: Trajectory, quantity: str, rate: float, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the flow until `last`; at its limit the sharpness stays, while the distance is rounding."""
    steps, values = np.asarray(flow.times) / rate, np.asarray(getattr(flow, quantity))
    shown = steps <= last * (1 + 1e-9)
    steps, values = steps[shown], values[shown]
    if quantity == "sharpness" and flow.converged and steps[-1] < last:
        steps, values = np.append(steps, last), np.append(values, values[-1])
    return steps, values


def _swings(sharpness: np.ndarray) -> bool:
    """Tell whether the sharpness goes up and down so often that its curve fills an area."""
    changes = np.diff(sharpness)
    turns = (changes[1:] * changes[:-1] < 0) & (np.abs(changes[1:]) > _SWING * np.abs(sharpness[2:]))
    return bool(turns.mean() > 0.25) if len(turns) else False


def _method(dataset: xarray.Dataset, rate: float) -> Method:
    """Return the learning rate as it is in the sweep, so that it looks the same, or alone if it is not."""
    known = (m for m in runs.descents(dataset) if m.learning_rate and np.isclose(m.learning_rate, rate, rtol=1e-9))
    return next(known, Method(float(rate)))
