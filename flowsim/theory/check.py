"""All statements of the paper about one flow, checked on it, with Lemmas 7 and 8: exponential rates, and R over π."""

from collections.abc import Collection
from typing import Any

import numpy as np

from ..networks import DeepLinear
from ..problems import LinearRegression
from .gradients import eigenvalue_range, norm
from .minimizers import minimizer_statements
from .path import FlowPath, follow
from .residual import residual_statements
from .small_scale import conservation, small_scale_statements
from .statement import Assumption, Statement, Statements, judge, not_applicable

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
    sides = {"Lemma 8, lower": (2 * smallest**0.5 * root, size), "Lemma 8, upper": (size, 2 * largest**0.5 * root)}
    return [_exponential_decay(path), *(judge(name, _CLAIMS[name], *pair, **options) for name, pair in sides.items())]


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


SUBJECTS = {
    "minimizers": minimizer_statements,
    "conservation": lambda path: [conservation(path)],
    "small_scale": small_scale_statements,
    "residual": residual_statements,
    "rates": rate_statements,
}
"""What can be asked for, by subject: Theorems 1 and 2; Lemma 1; section 4; section 5; Lemmas 7 and 8."""


def check(
    network: DeepLinear, problem: LinearRegression, *, subjects: Collection[str] = tuple(SUBJECTS), **flow_options: Any
) -> Statements:
    """Integrate the flow from a network to its limit, and check the statements of the paper on it.

    Args:
        network: The network at time zero.
        problem: The regression.
        subjects: Which statements: some of `SUBJECTS`, by default all.
        **flow_options: What `follow` takes besides.

    Returns:
        The statements, in the order of the paper; printed, they are a table.

    Raises:
        ValueError: For an unknown subject, and as `follow`.
        TypeError: As `follow`.

    Examples:
        >>> import flowsim, jax, numpy as np
        >>> X, y = flowsim.data.gaussian_teacher(np.random.default_rng(0), 20, 3)
        >>> network = flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=0.3, key=jax.random.key(0))
        >>> found = flowsim.theory.check(network, flowsim.LinearRegression(X, y))
        >>> print(found[0].name, found[0].verdict.name)
        Theorem 1 HOLDS
    """
    return statements(follow(network, problem, **flow_options), subjects=subjects)


def statements(path: FlowPath, *, subjects: Collection[str] = tuple(SUBJECTS)) -> Statements:
    """Return the statements about the given subjects on a path, in the order of the paper.

    Args:
        path: The path of a flow.
        subjects: Which statements: some of `SUBJECTS`, by default all.

    Returns:
        The statements.

    Raises:
        ValueError: For an unknown subject.
    """
    for subject in subjects:
        if subject not in SUBJECTS:
            raise ValueError(f"{subject!r} is no subject of the theory: expected some of {', '.join(SUBJECTS)}")
    chosen = [found for name, found in SUBJECTS.items() if name in subjects]
    return Statements(tuple(statement for found in chosen for statement in found(path)))
