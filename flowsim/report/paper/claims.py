"""What the paper says its figures show, checked on a sweep."""

import xarray

from ...comparison import Comparison
from ..sweeps import runs
from .claim import Claim, unmeasured
from .course_claims import course_claims
from .figure import FIGURES
from .generalization import gaps, regress, regressed_method
from .learning_claims import divergence_claims, flow_claim, jump_claims, learning_claims
from .sharpness_claims import sharpness_claims

_SIGNIFICANT = 0.01


def claims(number: int, dataset: xarray.Dataset, comparison: Comparison | None = None) -> tuple[Claim, ...]:
    """Return what the paper says that figure `number` shows, and what the flow adds, each with the numbers measured.

    `comparison` holds the runs of panels c and d of Figures 1 and 4. A claim that does not hold is one of the results:
    its numbers say by how much. Raises `ValueError` for a number other than 1 to 7.
    """
    if number not in FIGURES:
        raise ValueError(f"figure is {number!r}: expected one of {', '.join(map(str, FIGURES))}")
    flows = [flow_claim(dataset)] if runs.flows(dataset) else []
    if number in (3, 5):
        return tuple(divergence_claims(dataset))
    if number == 2:
        return (*jump_claims(dataset), *flows)
    if number == 6:
        return (*generalization_claims(dataset), *sharpness_claims(dataset), *flows)
    if number == 7:
        return (*sharpness_claims(dataset), *flows)
    courses = [] if comparison is None else course_claims(comparison)
    return (*learning_claims(dataset), *sharpness_claims(dataset), *courses, *flows)


def generalization_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims of Figure 6b: sharper minima generalize worse, after descent and at the flow's limits."""
    flow = [runs.FLOW] if "flow_test_risk" in dataset else []
    return [_correlation(dataset, method) for method in (regressed_method(dataset), *flow)]


def _correlation(dataset: xarray.Dataset, method: runs.Method) -> Claim:
    text = f"the generalization gap grows with the sharpness ({method.name})"
    expected = f"slope of log gap on log sharpness > 0, one-sided p < {_SIGNIFICANT:g}"
    found = regress(gaps(dataset, method))
    if found is None:
        return unmeasured(text, expected, "too few runs")
    left_out = f", {found.left_out} without a positive gap left out" if found.left_out else ""
    words = f"slope {found.slope:.3g}, R² = {found.r_squared:.3g}, p = {found.p_value:.2g}, {found.count} runs"
    numbers = {"slope": found.slope, "r_squared": found.r_squared, "p_value": found.p_value, "runs": found.count}
    return Claim(text, expected, words + left_out, found.slope > 0 and found.p_value < _SIGNIFICANT, numbers)
