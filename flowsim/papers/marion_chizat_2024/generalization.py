"""Figure 6b: whether sharper minima generalize worse."""

from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...report.sweeps import runs
from ...results.runs import FLOW, Run
from ...theory import Claim, unmeasured

_SIGNIFICANT = 0.01


@dataclass(frozen=True)
class Regression:
    """log₁₀ of the generalization gap regressed on log₁₀ of the sharpness, over `count` runs.

    `p_value` is that of the hypothesis that the slope is not positive. `left_out` counts runs without a positive gap,
    whose logarithm does not exist.
    """

    slope: float
    intercept: float
    r_squared: float
    p_value: float
    count: int
    left_out: int


Points = tuple[Float[np.ndarray, " runs"], Float[np.ndarray, " runs"]]


def gaps(dataset: xarray.Dataset, run: Run) -> Points:
    """Return the sharpness and the generalization gap, test risk − risk, at the end of every run of `run`."""
    names = ("sharpness", "test_risk", "risk")
    sharpness, test, train = (runs.final(dataset, run, name).values.ravel() for name in names)
    known = np.isfinite(sharpness) & np.isfinite(test - train)
    return sharpness[known], (test - train)[known]


def regress(points: Points) -> Regression | None:
    """Return the regression through `points`, or `None` where fewer than three, or one sharpness, are left."""
    sharpness, gap = points
    kept = (sharpness > 0) & (gap > 0)
    x, y = np.log10(sharpness[kept]), np.log10(gap[kept])
    if len(x) < 3 or np.ptp(x) == 0:
        return None
    from scipy.stats import linregress  # takes a moment to import, and is rarely needed

    slope, intercept, r, p, _ = map(float, linregress(x, y, alternative="greater"))
    return Regression(slope, intercept, r**2, p, len(x), int((~kept).sum()))


def regressed_run(dataset: xarray.Dataset) -> Run:
    """Return the descent that Figure 6b is about: that with the smallest learning rate, the paper's η = 0.001."""
    return runs.descents(dataset)[0]


def with_test_risk(dataset: xarray.Dataset) -> bool:
    """Tell whether the sweep has flows whose risk was measured on further samples."""
    return bool(runs.flows(dataset)) and "final_test_risk" in dataset


def generalization_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figure 6b: sharper minima generalize worse, after descent and at the flow's limits."""
    flow = [FLOW] if with_test_risk(dataset) else []
    return [_correlation(dataset, run) for run in (regressed_run(dataset), *flow)]


def _correlation(dataset: xarray.Dataset, run: Run) -> Claim:
    text = f"the generalization gap grows with the sharpness ({run.name})"
    expected = f"slope of log gap on log sharpness > 0, one-sided p < {_SIGNIFICANT:g}"
    found = regress(gaps(dataset, run))
    if found is None:
        return unmeasured(text, expected, "too few runs")
    left_out = f", {found.left_out} without a positive gap left out" if found.left_out else ""
    words = f"slope {found.slope:.3g}, R² = {found.r_squared:.3g}, p = {found.p_value:.2g}, {found.count} runs"
    numbers = {"slope": found.slope, "r_squared": found.r_squared, "p_value": found.p_value, "runs": found.count}
    return Claim(text, expected, words + left_out, found.slope > 0 and found.p_value < _SIGNIFICANT, numbers)
