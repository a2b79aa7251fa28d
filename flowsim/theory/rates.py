"""Lemmas 7 and 8 of Marion and Chizat (2024), measured: exponential rates, and the risk as a function of π."""

import numpy as np

from .gradients import eigenvalue_range, norm
from .path import FlowPath
from .statement import Assumption, Statement, judge, not_applicable

_CLAIMS = {
    "Lemma 7": "μ(t − t₀) ≤ log((R(t₀) − R_min)/(R(t) − R_min)), μ the least ‖∇R‖²/(R − R_min) from t₀ on",
    "Lemma 8, lower": "2√λ √(R − R_min) ≤ ‖∇R¹(π)‖",
    "Lemma 8, upper": "‖∇R¹(π)‖ ≤ 2√Λ √(R − R_min)",
}


def rate_statements(path: FlowPath) -> list[Statement]:
    """Return Lemma 7 from the time at which half of the excess risk is left, and Lemma 8 along the path."""
    gradients, (smallest, largest) = path.gradients, eigenvalue_range(path.problem)
    size, root = norm(gradients.regressor_gradient, (1, 2)), gradients.root_excess_risk
    given = Assumption("Σ is the covariance of the data", True)
    options = {"assumptions": [given], "rounding": path.rounding, "times": path.times}
    return [
        _exponential_decay(path),
        judge("Lemma 8, lower", _CLAIMS["Lemma 8, lower"], 2 * smallest**0.5 * root, size, **options),
        judge("Lemma 8, upper", _CLAIMS["Lemma 8, upper"], size, 2 * largest**0.5 * root, **options),
    ]


def _exponential_decay(path: FlowPath) -> Statement:
    """Return Lemma 7.

    μ is the least at the records, and may be less between them: the numerical error of the left side is what the
    trapezoidal rule can be wrong by where μ is monotone from one record to the next.
    """
    name, gradients = "Lemma 7", path.gradients
    root = gradients.root_excess_risk
    late = (root**2 <= 0.5 * root[0] ** 2) & (root > 0)
    if np.sum(late) < 2:
        return not_applicable(name, _CLAIMS[name], "the excess risk never fell to half")
    times, root, rate = path.times[late], root[late], gradients.root_rate[late] ** 2
    least = float(np.min(rate))
    decay = 2 * (np.log(root[0]) - np.log(root))
    variation = np.cumsum(np.abs(np.diff(rate, prepend=rate[0])) * np.diff(times, prepend=times[0])) / 2
    positive = Assumption("the path satisfies the PL inequality", least > 0, f"μ = {least:.3g}")
    note = f"μ = {least:.3g}; measured rate {decay[-1] / (times[-1] - times[0]):.3g}"
    error = variation + path.depth * path.steps * path.rtol
    options = {"error": error, "rounding": path.rounding, "times": times, "note": note}
    return judge(name, _CLAIMS[name], least * (times - times[0]), decay, assumptions=[positive], **options)
