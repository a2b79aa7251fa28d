"""The plots of runs beside a flow: every quantity against one time, through which the page's slider goes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray

from ...comparison.flow_limits import LIMIT
from ...comparison.models import SHARPNESS as CENTRE_SHARPNESS
from ...dynamics import Outcome
from ...results.recorded import Recorded, RecordedRun, recorded
from ..probed import probe_names
from ..style import run_look
from ..thinning import thinned
from ..view import Curve as Seen, TimeView, envelope_of, is_calm, log_limits, sharpness_limits, time_view
from .plot import (
    MARKS,
    Curve,
    Group,
    Key,
    Level,
    Limits,
    Plot,
    Time,
    curve_of,
    key_of,
    points_of_each,
    span,
    within_reach,
)

_MOST_LINES, _FAINTEST = 8, 0.35
_MOST_PLOTS = 24
# A linear axis of time begins so far before zero, in parts of its length.
_BEFORE = 0.02
_ABOUT = (
    "Every quantity that was recorded, of all runs, against one time. The slider moves through all plots at once; "
    "of an oscillation the band is its range and the line the middle of that; dashed lines are edges of stability, 2/η "
    "for gradient descent, dotted ones the bounds of Theorem 2 on S_min."
)
_HEADINGS = {
    "squared_distance": ("Squared distance to the optimum", "‖π − w*‖²"),
    "excess_risk": ("Excess risk", "R − R_min"),
    "risk": ("Risk", "R"),
    "sharpness": ("Sharpness", "sharpness S"),
    "distance": ("Distance from the gradient flow", "‖W − W_GF‖"),
    "gradient_norm": ("Gradient norm", "‖∇R‖"),
    LIMIT.name: ("Sharpness of the flow's limit from there", "sharpness of the limit"),
}
_LINEAR = ("sharpness", CENTRE_SHARPNESS.name, LIMIT.name)


@dataclass(frozen=True)
class _Run:
    """A run with its key, where its marks stand in the order of its records, and how many points a curve may have."""

    recorded: RecordedRun
    key: Key
    marks: np.ndarray
    most: int

    def columns(self, name: str) -> Iterator[np.ndarray]:
        """Yield the numbers of a quantity along the run, of an array some of many."""
        values = self.recorded.along(name).astype(float)
        values = values.reshape(len(values), -1)
        for number in thinned(range(values.shape[1]), _MOST_LINES):
            yield values[:, number]


def course_plots(dataset: xarray.Dataset) -> Group:
    """Return the plots of a data set of trajectories."""
    shown = recorded(dataset)
    view = time_view(shown)
    runs = list(_runs(shown, view, len(probe_names(dataset)) + len(_HEADINGS)))
    names = [name for name in (*_HEADINGS, *probe_names(dataset)) if name in dataset and any(map(_knows(name), runs))]
    plots = tuple(_plot(dataset, shown, name, runs, view) for name in names[:_MOST_PLOTS])
    last = max(float(run.recorded.along("time")[-1]) for run in runs)
    time = Time(-_BEFORE * view.end, _first_time(runs, view.end), view.end, view.linear_until is not None, last)
    courses = {run.key.name: _course(run, [plot.name for plot in plots]) for run in runs}
    return Group("course", "Along the runs", _ABOUT, plots, tuple(run.key for run in runs), time, courses)


def _runs(shown: Recorded, view: TimeView, quantities: int) -> Iterator[_Run]:
    every = shown.ordered
    most = points_of_each(len(every) * min(quantities, _MOST_PLOTS))
    for index, run in enumerate(every):
        ended = ", diverged" if run.outcome == Outcome.DIVERGED else ""
        look = run_look(run.run, calm=is_calm(run))
        key = key_of(f"course-{index}", run.run.name + ended, look, stays=run.outcome.stays)
        marks = np.searchsorted(run.along("time"), view.spread(MARKS, (index + 0.5) / len(every)))
        yield _Run(run, key, marks, most)


def _knows(name: str) -> Callable[[_Run], bool]:
    """Return what tells whether a run knows a quantity at more than its last record."""

    def known(run: _Run) -> bool:
        there = np.isfinite(next(run.columns(name)))
        return bool(there[:-1].any() or (len(there) == 1 and there.all()))

    return known


def _course(run: _Run, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return what the slider reads: the times of a run, and a column for each quantity."""
    kept = np.array(thinned(range(len(run.recorded.along("time"))), run.most), int)
    columns = {"time": run.recorded.along("time").astype(float)} | {name: next(run.columns(name)) for name in names}
    return {name: column[kept] for name, column in columns.items() if np.isfinite(column).any()}


def _first_time(runs: Sequence[_Run], end: float) -> float:
    times = np.concatenate([run.recorded.along("time") for run in runs])
    positive = times[(times > 0) & (times < end)]
    return float(positive.min()) if len(positive) else end / 1000


def _plot(dataset: xarray.Dataset, shown: Recorded, name: str, runs: Sequence[_Run], view: TimeView) -> Plot:
    words = name.replace("_", " ")
    heading, label = _HEADINGS.get(name, (words.capitalize(), words))
    linear, log = _limits(shown, name, runs, view)
    logarithmic = log is not None and name not in _LINEAR and bool(dataset[name].attrs.get("logarithmic", 1))
    return Plot(
        name,
        heading,
        str(dataset[name].attrs.get("long_name", words)),
        across="time t = ηk" if shown.others and shown.plain else "time t",
        up=label,
        curves=tuple(curve for run in runs for curve in _curves(run, name)),
        linear=linear,
        log=log,
        logarithmic=logarithmic,
        told=(("t", "x"), (label, "y")),
        levels=tuple(_levels(shown, name, runs)),
    )


def _curves(run: _Run, name: str) -> Iterator[Curve]:
    """Yield the curve of a quantity, and of an array one for each number, the last of them faint."""
    columns = list(run.columns(name))
    for values, strength in zip(columns, np.linspace(1.0, _FAINTEST, max(len(columns), 2)), strict=False):
        points, marks = {"x": run.recorded.along("time"), "y": values}, run.marks.tolist()
        envelope = None if run.recorded.run.is_flow else envelope_of(points["x"], values)
        if envelope is not None:
            points |= {"y": envelope.middle, "low": envelope.low, "high": envelope.high}
        found = curve_of(run.key, points, marks=marks, most=run.most, alpha=float(strength))
        if found is not None:
            yield found


def _limits(shown: Recorded, name: str, runs: Sequence[_Run], view: TimeView) -> tuple[Limits, Limits | None]:
    """Return what the vertical axis shows, on a linear scale, and on a logarithmic one."""
    flow, *others = [list(_seen(run, name)) for run in runs]
    lines = [line for several in (flow, *others) for line in several]
    log = log_limits(lines, view)
    if name == "sharpness":
        thresholds = [run.run.threshold for run in shown.others]
        ends = sharpness_limits(flow[0], [several[0] for several in others], shown.bounds or (), thresholds, view)
        low, high = within_reach(np.array(ends)).tolist()
        return (low, high), log
    bounded = [line.values[line.times <= view.end] for line in lines if line.bounded]
    return span(np.concatenate(bounded or [np.zeros(0)]))[0], log


def _seen(run: _Run, name: str) -> Iterator[Seen]:
    for values in run.columns(name):
        bounded = run.recorded.outcome != Outcome.DIVERGED
        yield Seen(run.recorded.along("time"), values, bounded).known()


def _levels(shown: Recorded, name: str, runs: Sequence[_Run]) -> Iterator[Level]:
    """Yield the edges of stability of what is their curvature, and the bounds of Theorem 2 on the sharpness."""
    curvature = "sharpness" if name == CENTRE_SHARPNESS.name else name
    found: dict[float, str] = {}
    for run in runs:
        found.setdefault(run.recorded.run.threshold_of(curvature), run.key.name)
    for value, key in found.items():
        if np.isfinite(value):
            yield Level(float(value), key)
    if name == "sharpness":
        for bound in shown.bounds or ():
            yield Level(bound, dotted=True)
