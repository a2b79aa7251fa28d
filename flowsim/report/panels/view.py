"""Which part of the runs a panel against time shows: the time axis, and limits that a diverged run cannot stretch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...columns import Recorded
from .panel import FURTHEST, Limits


@dataclass(frozen=True)
class TimeView:
    """The time axis from 0 to `end`, linear, or linear up to `linear_until` and logarithmic from there."""

    end: float
    linear_until: float | None


def time_view(*found: Recorded, shortest: float = 1 / 300, beyond: float = 1.5, furthest: float = 3.0) -> TimeView:
    """Choose the time axis of runs beside a flow, one for all data sets that are given.

    It ends at `beyond` times the time of the flow's limit, up to `furthest` times where others converge later, for the
    last flow of several; runs that go on are cut. Where a flow did not get to a limit, everything is shown, and where
    learning rates change, as what is to be seen may come at any time. It is linear unless the first half of the risk's
    fall takes less than the part `shortest` of it, which would be a vertical line.
    """
    ends, halves = [], []
    for shown in found:
        flow, longest = shown.leading, max(run.end_time for run in shown.runs)
        limit = flow.end_time
        if longest == 0:
            ends.append(1.0)
        elif not flow.outcome.converged or limit == 0 or any(run.is_scheduled for run in shown.runs):
            ends.append(1.02 * longest)
        else:
            converged = 1.05 * max(run.end_time for run in shown.runs if run.outcome.converged)
            ends.append(min(max(beyond * limit, converged), furthest * limit, 1.02 * longest))
        times, risk = flow.along("time"), flow.along("risk")
        fallen = times[risk <= (risk[0] + risk[-1]) / 2]
        if len(fallen) and fallen[0] > 0:
            halves.append(float(fallen[0]))
    end = max(ends)
    if not halves or min(halves) > shortest * end:
        return TimeView(end, None)
    return TimeView(end, float(10 ** np.floor(np.log10(min(halves)))))


@dataclass(frozen=True)
class Series:
    """Values along one run; `bounded` says that the run did not diverge."""

    times: Float[np.ndarray, " records"]
    values: Float[np.ndarray, " records"]
    bounded: bool


def linear_limits(series: Sequence[Series], view: TimeView, *, margin: float = 0.05) -> Limits:
    """Return limits that hold all values in view of the runs that did not diverge, with a margin."""
    values = np.clip(_in_view((one for one in series if one.bounded), view), -FURTHEST, FURTHEST)
    if len(values) == 0:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    room = margin * ((high - low) or abs(low) or 1.0)
    return low - room, high + room


def log_limits(
    series: Sequence[Series], view: TimeView, *, diverged: float = 10.0, decades: float = 20.0, least: float = 20.0
) -> Limits | None:
    """Return limits for a logarithmic axis, or `None` if nothing in view is positive.

    A run that diverged raises the upper one by the factor `diverged` at most. The lower one is at most so many
    `decades` down: sixteen digits of the weights are twenty of their square. The ratio is `least` at least, more than
    a decade, so that a power of ten stands on the axis.
    """
    bounded, every = _in_view((one for one in series if one.bounded), view), _in_view(series, view)
    bounded, every = bounded[bounded > 0], every[every > 0]
    if len(every) == 0:
        return None
    reach = diverged * (bounded.max() if len(bounded) else every[0])
    top = max(every[every <= reach])
    bottom = max(every.min(), top * 10.0**-decades)
    margin = max(1.5, (top / bottom) ** 0.05, (least * bottom / top) ** 0.5)
    return float(bottom / margin), float(top * margin)


def sharpness_limits(
    flow: Series,
    others: Sequence[Series],
    bounds: Sequence[float],
    thresholds: Sequence[float],
    view: TimeView,
    *,
    transient: float = 3.0,
    reach: float = 1.5,
) -> Limits:
    """Return limits for the sharpness, on a linear axis.

    In view are the flow, the bounds, others up to `transient` times as high, and thresholds 2/η up to `reach` times.
    """
    values = np.append(_in_view([flow], view), bounds)
    seen = _in_view((one for one in others if one.bounded), view)
    top = max(values, default=0.0)
    top = max([top, *seen[seen <= transient * top]]) or 1.0
    top = max([top, *(t for t in thresholds if t <= reach * top)])
    return max(float(min([0.0, *values, *seen])), -FURTHEST), min(1.06 * float(top), FURTHEST)


def _in_view(series: Iterable[Series], view: TimeView) -> np.ndarray:
    values = np.concatenate([np.empty(0), *(one.values[one.times <= view.end] for one in series)])
    return values[np.isfinite(values)]
