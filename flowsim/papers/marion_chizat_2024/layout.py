"""The panels of a figure, put together as the paper has them, with a row for each single run."""

from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report.panels import LABELS, oscillates
from ...report.panels.sweep import MEDIANS
from ...report.render_paper import draw_curve, legend_above
from ...report.render_sweep import draw_thresholds, name_statistic
from ...report.style import FLOW as FLOW_LOOK, MAJOR_TICKS, MINOR_TICKS, STYLE, run_look
from ...report.sweeps import runs
from ...results.recorded import RecordedRun, recorded
from ...results.runs import GRADIENT_DESCENT, Run
from .panels import SHARPNESS_LIMITS, draw_bounds

Panel = Callable[[Axes, xarray.Dataset], None]


def draw_figure(
    sweep: xarray.Dataset,
    panels: Sequence[Panel],
    *,
    single_runs: xarray.Dataset | None = None,
    bounds: bool = False,
    edge: str = "",
    statistic: str = MEDIANS,
) -> Figure:
    """Return the figure of some panels of a sweep, with the gradient flow in them.

    Curves are medians over the runs that did not diverge with their quartiles, as in the table, where the paper has
    means with bootstrapped confidence intervals; the probability of divergence has Wilson's interval. The trajectories
    `single_runs` give a row of two more panels for each of their learning rates. With `bounds` the legend names the
    bounds. It calls the dashed lines `edge`, where there are some. `statistic` stands below the panels.
    """
    shown = None if single_runs is None else recorded(single_runs)
    descents = () if shown is None else tuple(run for run in shown.others if run.run.is_descent)
    count = len(panels) + 2 * len(descents)
    with matplotlib.rc_context(STYLE):
        columns, rows = min(count, 2), (count + 1) // 2
        figure = Figure(figsize=(3.3 * columns, 2.25 * rows + 0.35), layout="constrained")  # 0.35 for the legend
        axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
        for panel, ax in zip(panels, axes, strict=False):
            panel(ax, sweep)
        if shown is not None:
            for row, descent in enumerate(descents, start=1):
                draw_single_run(axes[2 * row], axes[2 * row + 1], sweep, shown.flow, descent)
        if count > 1:
            _letter(axes, len(panels))
        name_statistic(figure, statistic)
        legend_above(figure, thresholds=bool(edge), bounds=bounds, edge=edge)
    return figure


def _letter(axes: list[Axes], panels: int) -> None:
    """Write the paper's letter of each panel at its top left, c1 and c2 where the paper has a row in one."""
    for index, ax in enumerate(axes):
        row, column = divmod(index - panels, 2)
        letter = chr(ord("a") + index) if index < panels else f"{chr(ord('a') + panels + row)}{column + 1}"
        ax.set_title(f"({letter})", loc="left", fontsize=8)


def draw_single_run(
    distance: Axes, sharpness: Axes, dataset: xarray.Dataset, flow: RecordedRun, descent: RecordedRun
) -> None:
    """Draw squared distance and sharpness against the steps k of `descent`, and the flow at the times t = ηk.

    The sharpness has the axis of panel b, and 2/η dashed.
    """
    rate = descent.run.learning_rate or np.nan
    shown, steps = _as_in_sweep(dataset, rate), descent.along("time") / rate
    curve = run_look(shown, calm=not oscillates(descent.along("sharpness")))
    marks = {"markevery": list(range(0, len(steps), max(1, len(steps) // 9))), "label": shown.label}  # some nine marks
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
    """Return the flow until `last`; its sharpness is continued beyond its limit, where the distance is rounding."""
    steps, values = flow.along("time") / rate, flow.along(quantity)
    shown = steps <= last * (1 + 1e-9)
    steps, values = steps[shown], values[shown]
    if quantity == "sharpness" and flow.outcome.converged and steps[-1] < last:
        steps, values = np.append(steps, last), np.append(values, values[-1])
    return steps, values


def _as_in_sweep(dataset: xarray.Dataset, rate: float) -> Run:
    """Return the learning rate as it is in the sweep, so that it looks the same, or alone if it is not."""
    known = (run for run in runs.descents(dataset) if np.isclose(run.threshold, 2 / rate, rtol=1e-9))
    return next(known, Run(GRADIENT_DESCENT, float(rate)))
