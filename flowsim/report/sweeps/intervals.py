"""Medians over the repetitions of a sweep with their quartiles, and shares with 95 % confidence intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float, Int

from .runs import REPETITION

_NOTHING = (np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Interval:
    """An estimate at each point of a line with the ends of its band; NaN where no run counts."""

    estimate: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


def quartiles(values: Float[np.ndarray, "points repetition"]) -> Interval:
    """Return the median of each row and the first and third quartile, of its finite entries.

    This is the one statistic of what a sweep measured: figures, pages, tables and summaries all have it from here.
    """
    known = [row[np.isfinite(row)] for row in values]
    rows = [np.quantile(row, (0.5, 0.25, 0.75)).tolist() if len(row) else _NOTHING for row in known]
    return _row_by_row(rows)


def share_interval(events: Int[np.ndarray, " points"], trials: Int[np.ndarray, " points"]) -> Interval:
    """Return `events` / `trials` with Wilson's interval for a binomial share, NaN where there are no trials."""
    return _row_by_row([_share_interval(int(k), int(n)) for k, n in zip(events, trials, strict=True)])


def _share_interval(events: int, trials: int, level: float = 0.95) -> tuple[float, float, float]:
    if trials == 0:
        return _NOTHING
    from scipy.stats import binomtest  # takes a moment to import, and only sweeps need it

    found = binomtest(events, trials).proportion_ci(level, method="wilson")
    return events / trials, float(found.low), float(found.high)


def _row_by_row(rows: Sequence[Sequence[float]]) -> Interval:
    estimate, low, high = np.array(rows, float).reshape(-1, 3).T
    return Interval(estimate, low, high)


def median(values: xarray.DataArray) -> xarray.DataArray:
    """Return the medians of `quartiles` over repetitions, NaN where no entry is finite."""
    last = values.transpose(..., REPETITION)
    found = quartiles(last.values.reshape(-1, last.sizes[REPETITION])).estimate
    return last.isel({REPETITION: 0}, drop=True).copy(data=found.reshape(last.shape[:-1]))
