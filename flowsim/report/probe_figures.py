"""Figures of what the probes of a scenario recorded along the runs, one for each probe."""

import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..dynamics import Outcome
from ..results.recorded import Recorded, RecordedRun, recorded
from ..results.runs import Run
from .labels import label_of
from .panel import add_legend, draw_curve, empty_figure, in_view, name_of
from .probed import own_probes
from .style import STYLE, THRESHOLD, run_look
from .thinning import thinned
from .view import Curve, TimeView, is_calm, log_limits

# Of one run in one figure; more would hide each other.
_MOST_LINES = 8
_FAINTEST = 0.35
_MARGIN = 0.05
_MARKS = 10


def probe_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return the figure of each probe against time by name, for all runs of a data set of trajectories.

    Of an array of numbers each is a line of its own, the first in full colour and the last faint; of many, some are
    drawn. The vertical axis is logarithmic where the probe says so and all its numbers are positive.
    """
    shown = recorded(dataset)
    return {_file_name(name): _probe_figure(shown, dataset, name) for name in own_probes(dataset)}


def _file_name(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def _probe_figure(shown: Recorded, dataset: xarray.Dataset, name: str) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure, axes, view = empty_figure(shown, label_of(name, dataset[name].attrs))
        draw_probe(axes, shown, view, dataset, name)
        add_legend(figure, axes)
    return figure


def draw_probe(axes: Axes, shown: Recorded, view: TimeView, dataset: xarray.Dataset, name: str) -> None:
    """Draw what a probe measured along all runs, with the edge of stability of each where it is one of that."""
    runs = shown.ordered
    lines = [_lines(run, name) for run in runs]
    logarithmic = bool(dataset[name].attrs.get("logarithmic", 1))
    _set_limits(axes, [line for several in lines for line in several], view, logarithmic)
    for number, (run, several) in enumerate(zip(runs, lines, strict=True)):
        _draw(axes, run, several, view, view.spread(_MARKS, (number - 0.5) / len(runs)))
        _draw_threshold(axes, run.run, name)


def _lines(run: RecordedRun, name: str) -> list[Curve]:
    """Return what a probe measured along a run, a curve for each number, or for some of many."""
    values = run.along(name).astype(float)
    values = values.reshape(len(values), -1)
    times, bounded = run.along("time"), run.outcome != Outcome.DIVERGED
    return [Curve(times, values[:, number], bounded).known() for number in thinned(range(values.shape[1]), _MOST_LINES)]


def _set_limits(axes: Axes, lines: Sequence[Curve], view: TimeView, logarithmic: bool) -> None:
    positive = all((line.values[np.isfinite(line.values)] > 0).all() for line in lines)
    limits = log_limits(lines, view) if logarithmic and positive else None
    if limits is not None:
        axes.set_yscale("log")
        axes.set_ylim(*limits)
        return
    shown = [line.values[line.times <= view.end] for line in lines if line.bounded]
    numbers = np.concatenate([np.zeros(0), *shown])
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers):
        margin = _MARGIN * (np.ptp(numbers) or abs(numbers[0]) or 1.0)
        axes.set_ylim(numbers.min() - margin, numbers.max() + margin)


def _draw_threshold(axes: Axes, run: Run, name: str) -> None:
    """Draw the edge of stability of a run, dashed, where it is one of what the probe measures and in sight."""
    level = run.threshold_of(name)
    if np.isfinite(level) and level <= axes.get_ylim()[1]:
        axes.axhline(level, color=run_look(run)["color"], **THRESHOLD)


def _draw(axes: Axes, run: RecordedRun, lines: Sequence[Curve], view: TimeView, marks: np.ndarray) -> None:
    look = run_look(run.run, calm=is_calm(run))
    for line, strength in zip(lines, np.linspace(1.0, _FAINTEST, max(len(lines), 2)), strict=False):
        times, values = in_view(axes, line, view)
        marked = np.unique(np.minimum(np.searchsorted(times, marks), len(times) - 1)).tolist()
        shown: dict[str, Any] = look | ({"marker": "o"} if np.isfinite(values).sum() == 1 else {})
        label = name_of(run) if strength == 1.0 else None
        draw_curve(axes, times, values, shown | {"label": label, "markevery": marked, "alpha": float(strength)})
