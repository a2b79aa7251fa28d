"""Panels c and d of Figures 1 and 4: one run of descent, step by step, with the flow beside it."""

import numpy as np
import xarray
from matplotlib.axes import Axes

from ...report.panels import LABELS, oscillates
from ...report.render_paper import draw_curve
from ...report.render_sweep import draw_thresholds
from ...report.style import FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS, run_look
from ...report.sweeps import runs
from ...results.recorded import RecordedRun
from ...results.runs import GRADIENT_DESCENT, Run
from .scale_panels import SHARPNESS_LIMITS, draw_bounds

_MARKS = 9


def draw_single_run(
    distance: Axes, sharpness: Axes, dataset: xarray.Dataset, flow: RecordedRun, descent: RecordedRun
) -> None:
    """Draw squared distance and sharpness against the steps k of `descent`, and the flow at the times t = ηk.

    The sharpness has the axis of panel b, and 2/η dashed.
    """
    rate = descent.run.learning_rate or np.nan
    shown, steps = _as_in_sweep(dataset, rate), descent.along("time") / rate
    curve = run_look(shown, calm=not oscillates(descent.along("sharpness")))
    marks = {"markevery": list(range(0, len(steps), max(1, len(steps) // _MARKS))), "label": shown.label}
    for axes, quantity in ((distance, "squared_distance"), (sharpness, "sharpness")):
        axes.plot(*_flow_until(flow, quantity, rate, steps[-1]), label="GF", **FLOW_LOOK)
        draw_curve(axes, steps, descent.along(quantity), curve | marks)
        axes.set_yscale("log")
        axes.set_xlim(0, steps[-1])
        axes.set_xlabel(rf"steps $k$, for the flow $t/\eta$ ($\eta = {rate:.3g}$)")
        axes.set_ylabel(LABELS[quantity])
        axes.tick_params(which="major", **MAJOR_TICKS)
        axes.tick_params(which="minor", **MINOR_TICKS)
    draw_thresholds(sharpness, [shown])
    draw_bounds(sharpness, dataset)
    sharpness.set_ylim(*SHARPNESS_LIMITS)


def _flow_until(flow: RecordedRun, quantity: str, rate: float, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the flow until `last`; at its limit the sharpness stays, while the distance is rounding."""
    steps, values = flow.along("time") / rate, flow.along(quantity)
    shown = steps <= last * (1 + 1e-9)
    steps, values = steps[shown], values[shown]
    if quantity == "sharpness" and flow.outcome.arrived and steps[-1] < last:
        steps, values = np.append(steps, last), np.append(values, values[-1])
    return steps, values


def _as_in_sweep(dataset: xarray.Dataset, rate: float) -> Run:
    """Return the learning rate as it is in the sweep, so that it looks the same, or alone if it is not."""
    known = (run for run in runs.descents(dataset) if np.isclose(run.threshold, 2 / rate, rtol=1e-9))
    return next(known, Run(GRADIENT_DESCENT, float(rate)))
