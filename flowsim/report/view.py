"""Which part of the runs a figure shows: the time axis, and limits that a diverged run cannot stretch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from ..dynamics import Outcome
from ..results.recorded import Recorded, RecordedRun

# Beyond the flow's limit little happens; descents that converge later are followed up to three times as far.
_BEYOND_LIMIT, _FURTHEST = 1.5, 3.0
# A first half of the fall shorter than this part of the axis would be a vertical line on it.
_SHORTEST_ON_LINEAR_AXIS = 1 / 300
# Sixteen digits of the weights are twenty decades and more of their square: below is rounding.
_DECADES = 20
# More than a decade, so that a power of ten stands on the axis.
_LEAST_SPAN = 20.0
_DIVERGED_RISE = 10.0
_TRANSIENT_RISE = 3.0
_THRESHOLD_REACH = 1.5
# The least swing that shows, in parts of the value.
_SWING = 0.01
# Periods of up to five records are within two on either side; a gap of twice the usual one lacks a step.
_NEIGHBOURS, _CONSECUTIVE = 2, 1.5


@dataclass(frozen=True)
class TimeView:
    """The time axis from 0 to `end`, linear, or linear up to `linear_until` and logarithmic from there."""

    end: float
    linear_until: float | None

    def apply(self, axes: Axes) -> None:
        """Set scale and limits of the horizontal axis."""
        if self.linear_until is not None:
            axes.set_xscale("symlog", linthresh=self.linear_until, linscale=0.4)
        axes.set_xlim(0 if self.linear_until is not None else -0.02 * self.end, self.end)

    def shown(self, times: np.ndarray) -> slice:
        """Return the records to draw: those in view, and a few more, so that lines and bands are cut at the edge."""
        return slice(0, int(np.searchsorted(times, self.end, side="right")) + _NEIGHBOURS + 1)

    def spread(self, count: int, shift: float) -> np.ndarray:
        """Return `count` times that stand evenly on the axis, moved by the part `shift` of their spacing."""
        parts = (np.arange(count) + shift) / count
        if self.linear_until is None:
            return self.end * parts
        return self.linear_until * (self.end / self.linear_until) ** parts


def time_view(shown: Recorded) -> TimeView:
    """Choose the time axis of runs beside a flow.

    It ends a little after the flow reached its limit; runs that go on are cut. Where the flow did not get to a
    limit, everything is shown. It is linear unless the fast phase would be too narrow to see.
    """
    end, until = _last_time(shown), _time_of_half_fall(shown.leading)
    if until is None or until > _SHORTEST_ON_LINEAR_AXIS * end:
        return TimeView(end, None)
    return TimeView(end, float(10 ** np.floor(np.log10(until))))


def _last_time(shown: Recorded) -> float:
    longest, limit = max(run.end_time for run in shown.runs), shown.leading.end_time
    if longest == 0:
        return 1.0
    if not shown.leading.outcome.arrived or limit == 0:
        return 1.02 * longest
    arrivals = 1.05 * max(run.end_time for run in shown.runs if run.outcome.arrived)
    return min(max(_BEYOND_LIMIT * limit, arrivals), _FURTHEST * limit, 1.02 * longest)


def _time_of_half_fall(flow: RecordedRun) -> float | None:
    times, risk = flow.along("time"), flow.along("risk")
    fallen = np.flatnonzero(risk <= (risk[0] + risk[-1]) / 2)
    if len(fallen) == 0 or not times[fallen[0]] > 0:
        return None
    return float(times[fallen[0]])


@dataclass(frozen=True)
class Curve:
    """Values along one run; `bounded` says that the run did not diverge."""

    times: Float[np.ndarray, " records"]
    values: Float[np.ndarray, " records"]
    bounded: bool

    def known(self) -> "Curve":
        """Return the curve without the records at which nothing was measured, or as it is where none was."""
        there = ~np.isnan(self.values)
        return self if not there.any() else Curve(self.times[there], self.values[there], self.bounded)


def curve(run: RecordedRun, quantity: str) -> Curve:
    """Return the curve of `quantity` along `run`."""
    return Curve(run.along("time"), run.along(quantity).astype(float), run.outcome != Outcome.DIVERGED)


def swings(values: Float[np.ndarray, " records"]) -> bool:
    """Tell whether values, the sharpness of a run, go up and down so often that their curve fills an area."""
    changes = np.diff(values)
    turns = (np.sign(changes[1:]) * np.sign(changes[:-1]) < 0) & (np.abs(changes[1:]) > _SWING * np.abs(values[2:]))
    return bool(turns.mean() > 0.25) if len(turns) else False


@dataclass(frozen=True)
class Envelope:
    """The range of an oscillation around each record, from the least value to the largest, and the middle of it.

    The arrays are NaN at a record without neighbours: nothing is known of the oscillation there.
    """

    low: Float[np.ndarray, " records"]
    high: Float[np.ndarray, " records"]

    @property
    def middle(self) -> Float[np.ndarray, " records"]:
        """The middle of the range."""
        return (self.low + self.high) / 2


def envelope_of(times: Float[np.ndarray, " records"], values: Float[np.ndarray, " records"]) -> Envelope | None:
    """Return the range of values that go up and down, `None` for others, whose records a line may join.

    Late in a run records thin out to a few consecutive steps at a time. What a line from one such group to the next
    would show never happened, and its slope is that of chance; the range within the groups changes slowly. It is taken
    over up to two records on either side that are no further apart than consecutive ones.
    """
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < 3:  # nothing turns
        return None
    gaps = np.diff(times[known])
    group = np.append(0, np.cumsum(gaps > _CONSECUTIVE * np.median(gaps)))
    if not swings(values[known]) and not _swings_in_groups(values[known], group):  # it may have begun late
        return None
    places = np.arange(len(known))[:, None] + np.arange(-_NEIGHBOURS, _NEIGHBOURS + 1)
    inside = np.clip(places, 0, len(known) - 1)
    together = (inside == places) & (group[inside] == group[:, None])
    around = np.where(together, values[known][inside], np.nan)
    alone = together.sum(axis=1) == 1
    low, high = np.full((2, len(values)), np.nan)
    low[known] = np.where(alone, np.nan, np.nanmin(around, axis=1))
    high[known] = np.where(alone, np.nan, np.nanmax(around, axis=1))
    return Envelope(low, high)


def _swings_in_groups(values: np.ndarray, group: np.ndarray) -> bool:
    """Tell whether values go up and down in the groups after the first, of a few consecutive records each.

    From one group to the next, steps of the run are left out: a smooth curve changes less inside of them than between.
    """
    values = values / (np.abs(values).max() or 1.0)
    means = np.bincount(group, values) / np.bincount(group)
    inside = (np.diff(group) == 0) & (group[1:] > 0)
    if len(means) < 3 or not inside.any():
        return False
    steps = np.abs(np.diff(values)[inside])
    return bool(np.median(steps) > max(np.median(np.abs(np.diff(means[1:]))), _SWING * np.median(np.abs(means[1:]))))


def is_calm(run: RecordedRun) -> bool:
    """Tell whether the curves of a run may lie before the flow: it arrived, or does not swing."""
    drawn = curve(run, "sharpness").known()
    return run.outcome.arrived or (drawn.bounded and not swings(drawn.values))


def log_limits(curves: Sequence[Curve], view: TimeView) -> tuple[float, float] | None:
    """Return limits for a logarithmic axis, or `None` if nothing in view is positive.

    A run that diverged raises the upper one tenfold at most; the lower one is at most 20 decades down.
    """
    bounded = _in_view((c for c in curves if c.bounded), view)
    every = _in_view(curves, view)
    bounded, every = bounded[bounded > 0], every[every > 0]
    if len(every) == 0:
        return None
    reach = _DIVERGED_RISE * (bounded.max() if len(bounded) else every[0])
    top = max(every[every <= reach])
    bottom = max(every.min(), top * 10.0**-_DECADES)
    margin = max(1.5, (top / bottom) ** 0.05, (_LEAST_SPAN * bottom / top) ** 0.5)
    return float(bottom / margin), float(top * margin)


def sharpness_limits(
    flow: Curve, descents: Sequence[Curve], bounds: Sequence[float], thresholds: Sequence[float], view: TimeView
) -> tuple[float, float]:
    """Return limits for the sharpness, on a linear axis.

    In view are the flow, the bounds, descents up to three times as high, and thresholds 2/η that are not far above.
    """
    values = np.append(_in_view([flow], view), bounds)
    others = _in_view((c for c in descents if c.bounded), view)
    top = max(values, default=0.0)
    top = max([top, *others[others <= _TRANSIENT_RISE * top]]) or 1.0
    top = max([top, *(t for t in thresholds if t <= _THRESHOLD_REACH * top)])
    return float(min([0.0, *values, *others])), 1.06 * float(top)


def _in_view(curves: Iterable[Curve], view: TimeView) -> np.ndarray:
    values = np.concatenate([np.empty(0), *(c.values[c.times <= view.end] for c in curves)])
    return values[np.isfinite(values)]
