"""Means and shares over the repetitions of a sweep, with 95 % confidence intervals."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float, Int

from .runs import REPETITION

_LEVEL = 0.95
_RESAMPLES = 2000
_NOTHING = (np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Interval:
    """An estimate at each point of a line and its 95 % confidence interval; NaN where no run counts."""

    estimate: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


def mean_interval(values: Float[np.ndarray, "points repetition"]) -> Interval:
    """Return the mean of each row, NaN entries left out, with the percentile bootstrap interval of the mean.

    That interval lies within the range of the values, so it is positive where they are, and may lean to one side as the
    heavy-tailed sharpnesses of large scales want it. Resampling is seeded: the same values give the same interval.
    """
    return _row_by_row([_mean_interval(row[np.isfinite(row)]) for row in values])


def _mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    if len(values) == 0:
        return _NOTHING
    if len(values) == 1:
        return float(values[0]), float(values[0]), float(values[0])
    from scipy.stats import bootstrap  # takes a moment to import, and only sweeps need it

    # By its older name, which SciPy before 1.15 knows too.
    options = {"n_resamples": _RESAMPLES, "method": "percentile", "random_state": np.random.default_rng(0)}
    found = bootstrap((values,), np.mean, confidence_level=_LEVEL, **options).confidence_interval
    return float(values.mean()), float(found.low), float(found.high)


def share_interval(events: Int[np.ndarray, " points"], trials: Int[np.ndarray, " points"]) -> Interval:
    """Return `events` / `trials` with Wilson's interval for a binomial share, NaN where there are no trials."""
    return _row_by_row([_share_interval(int(k), int(n)) for k, n in zip(events, trials, strict=True)])


def _share_interval(events: int, trials: int) -> tuple[float, float, float]:
    if trials == 0:
        return _NOTHING
    from scipy.stats import binomtest  # takes a moment to import, and only sweeps need it

    found = binomtest(events, trials).proportion_ci(_LEVEL, method="wilson")
    return events / trials, float(found.low), float(found.high)


def _row_by_row(rows: list[tuple[float, float, float]]) -> Interval:
    estimate, low, high = np.array(rows, float).reshape(-1, 3).T
    return Interval(estimate, low, high)


def median(values: xarray.DataArray) -> xarray.DataArray:
    """Return the median over repetitions, NaN entries left out and NaN where there are no others."""
    some = values.notnull().any(REPETITION)
    return values.where(some, 0).median(REPETITION).where(some)
