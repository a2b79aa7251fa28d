"""Whether values along a run oscillate, and the range of the oscillation."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


def oscillates(values: Float[np.ndarray, " records"], *, smallest: float = 0.01) -> bool:
    """Tell whether values, the sharpness of a run, go up and down so often that their curve fills an area.

    A change is seen from the part `smallest` of the value on.
    """
    changes = np.diff(values)
    turns = (np.sign(changes[1:]) * np.sign(changes[:-1]) < 0) & (np.abs(changes[1:]) > smallest * np.abs(values[2:]))
    return bool(turns.mean() > 0.25) if len(turns) else False


@dataclass(frozen=True)
class Envelope:
    """The range of an oscillation around each record, from the least value to the largest.

    The arrays are NaN at a record without neighbours: nothing is known of the oscillation there.
    """

    low: Float[np.ndarray, " records"]
    high: Float[np.ndarray, " records"]


def envelope_of(
    times: Float[np.ndarray, " records"],
    values: Float[np.ndarray, " records"],
    *,
    neighbours: int = 2,
    consecutive: float = 1.5,
    smallest: float = 0.01,
) -> Envelope | None:
    """Return the range of values that oscillate, `None` for others, whose records a line may join.

    Late in a run only a few consecutive steps at a time are recorded. What a line from one such group to the next
    would show never happened, and its slope is that of chance; the range within the groups changes slowly. It is taken
    over up to `neighbours` records on either side, two of them for periods of up to five, that are no further apart
    than consecutive ones. A gap of `consecutive` times the median gap lacks a step; `smallest` is as in `oscillates`.
    """
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < 3:  # nothing turns
        return None
    gaps = np.diff(times[known])
    group = np.append(0, np.cumsum(gaps > consecutive * np.median(gaps)))
    seen = values[known]
    if not oscillates(seen, smallest=smallest) and not _oscillates_in_groups(seen, group, smallest):
        return None
    places = np.arange(len(known))[:, None] + np.arange(-neighbours, neighbours + 1)
    inside = np.clip(places, 0, len(known) - 1)
    together = (inside == places) & (group[inside] == group[:, None])
    around = np.where(together, values[known][inside], np.nan)
    alone = together.sum(axis=1) == 1
    low, high = np.full((2, len(values)), np.nan)
    low[known] = np.where(alone, np.nan, np.nanmin(around, axis=1))
    high[known] = np.where(alone, np.nan, np.nanmax(around, axis=1))
    return Envelope(low, high)


def middle_and_range(
    times: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return times, middle, and lower and upper end of the range of values that oscillate.

    Values that do not oscillate are their own middle, without a range. A record without neighbours is left out of an
    oscillation: between two groups of records only their range is known.
    """
    envelope = envelope_of(times, values)
    if envelope is None:
        return times, values, None, None
    known = np.isfinite(envelope.low)
    low, high = envelope.low[known], envelope.high[known]
    return times[known], (low + high) / 2, low, high


def _oscillates_in_groups(values: np.ndarray, group: np.ndarray, smallest: float) -> bool:
    """Tell whether values go up and down in the groups after the first, of a few consecutive records each.

    The oscillation may have begun after the last record of every step.
    From one group to the next, steps of the run are left out: a smooth curve changes less inside of them than between.
    """
    values = values / (np.abs(values).max() or 1.0)
    means = np.bincount(group, values) / np.bincount(group)
    inside = (np.diff(group) == 0) & (group[1:] > 0)
    if len(means) < 3 or not inside.any():
        return False
    steps = np.abs(np.diff(values)[inside])
    return bool(np.median(steps) > max(np.median(np.abs(np.diff(means[1:]))), smallest * np.median(np.abs(means[1:]))))
