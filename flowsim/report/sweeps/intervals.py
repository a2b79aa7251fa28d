"""What is said of the repetitions of a sweep: medians, means and shares, each with an interval."""

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
    """An estimate at each point of a line and an interval about it; NaN where no run counts."""

    estimate: Float[np.ndarray, "*points"]
    low: Float[np.ndarray, "*points"]
    high: Float[np.ndarray, "*points"]


QUARTILES = "medians, with bands from the first quartile to the third"
_QUARTILES = (0.25, 0.5, 0.75)


def quartiles(values: Float[np.ndarray, "*points repetition"]) -> Interval:
    """Return the median over repetitions and the quartiles beside it, NaN entries left out.

    It is what every table, figure and page says of a sweep: the sharpnesses of large scales have heavy tails, of which
    one run makes a mean what it likes. A paper's own figures may show what the paper does.
    """
    rows = values.reshape(-1, values.shape[-1])
    known = [row[np.isfinite(row)] for row in rows]
    found = np.array([np.quantile(row, _QUARTILES) if len(row) else _NOTHING for row in known]).reshape(-1, 3)
    low, middle, high = (column.reshape(values.shape[:-1]) for column in found.T)
    return Interval(middle, low, high)


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
