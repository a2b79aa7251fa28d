"""Theorems 1 and 2 of Marion and Chizat (2024), measured: how flat and how sharp a minimizer can be."""

import math
from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PyTree

from ..curvature import sharpness
from ..networks import DeepLinear
from ..problems import LinearRegression, Problem, check_problem
from .path import FlowPath
from .statement import ROUNDING, Assumption, Statement, judge, not_applicable


def minimal_sharpness_bounds(
    problem: LinearRegression, depth: int, *, projection_norm: float = 1.0
) -> tuple[float, float]:
    """Return the bounds of Theorem 2 on S_min, the least sharpness of all minimizers of a deep linear network.

    2 ‖w*‖^{2−2/L} ‖p‖^{2/L} L a  ≤  S_min  ≤  2 ‖w*‖^{2−2/L} ‖p‖^{2/L} √((2L−1) Λ² + (L−1)² a²), with a = (w*/‖w*‖)ᵀ Σ
    (w*/‖w*‖) (Marion and Chizat 2024).

    Args:
        problem: The regression.
        depth: The number of layers L.
        projection_norm: ‖p‖.

    Returns:
        The lower and the upper bound.

    Raises:
        ValueError: If the depth is not a positive whole number, if there are several outputs, of which the theorem does
            not speak, or if w* = 0.
        TypeError: For another problem.

    Examples:
        >>> import flowsim, numpy as np
        >>> X, y = flowsim.data.gaussian_teacher(np.random.default_rng(0), 50, 5)
        >>> lower, upper = flowsim.theory.minimal_sharpness_bounds(flowsim.LinearRegression(X, y), depth=10)
        >>> print(round(lower, 2), round(upper, 2))
        21.05 22.91
    """
    if not isinstance(problem, LinearRegression):
        raise TypeError(f"Theorem 2 is about a flowsim.LinearRegression, got {type(problem).__name__}")
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
        raise ValueError(f"depth must be a whole number, one or more, got {depth!r}")
    if problem.optimum.ndim != 1:
        raise ValueError(f"Theorem 2 is about one output, the data have {problem.optimum.shape[1]}")
    squared_norm = float(problem.squared_distance(0 * problem.optimum))
    if squared_norm == 0:
        raise ValueError("Theorem 2 needs a regressor w* other than zero: the data have y orthogonal to X")
    a = float(problem.excess_risk(0 * problem.optimum)) / squared_norm
    scale = 2 * squared_norm ** (1 - 1 / depth) * projection_norm ** (2 / depth)
    largest = float(problem.largest_eigenvalue)
    upper = scale * math.hypot(math.sqrt(2 * depth - 1) * largest, (depth - 1) * a)
    return scale * depth * a, upper


def minimal_sharpness_bounds_of(
    network: PyTree, problem: Problem, *, depth: int | None = None
) -> tuple[float, float] | None:
    """Return the bounds of Theorem 2 on the minimizers of a problem among networks like the one given.

    Args:
        network: The network.
        problem: The risk.
        depth: That of the deep linear network which is meant in place of another, to compare with.

    Returns:
        The lower and the upper bound; `None` where the theorem does not speak of them: for other problems than a
        regression of one output on features that explain some of it, and for networks that are not deep linear.

    Raises:
        TypeError: The problem is no `Problem`, or stands in the place of the network.
    """
    check_problem(problem, network)
    if not isinstance(problem, LinearRegression) or problem.optimum.ndim != 1 or not jnp.any(problem.optimum != 0):
        return None
    length = 1.0
    if isinstance(network, DeepLinear):
        depth, length = network.depth, float(network.projection_norm)
    return None if depth is None else minimal_sharpness_bounds(problem, depth, projection_norm=length)


def critical_learning_rate(problem: LinearRegression, depth: int, *, projection_norm: float = 1.0) -> float:
    """Return 2/S with S the lower bound of Theorem 2 on S_min (Marion and Chizat 2024).

    For large L and ‖p‖ = 1 it is 1/(L a ‖w*‖²). Above this learning rate no minimizer is stable under gradient descent,
    so it cannot converge to one. The exact threshold 2/S_min lies between 2/upper and 2/lower.

    Args:
        problem: The regression.
        depth: The number of layers L.
        projection_norm: ‖p‖.

    Returns:
        The learning rate.

    Raises:
        ValueError: As `minimal_sharpness_bounds`.
        TypeError: For another problem.
    """
    lower, _ = minimal_sharpness_bounds(problem, depth, projection_norm=projection_norm)
    return 2 / lower


def layer_norm_bound(network: DeepLinear, problem: LinearRegression) -> float:
    """Return 2 a ‖w*‖^{2−1/L} ‖p‖^{1/L} Σ_k 1/‖W_k‖_F, the least sharpness of a minimizer with these layer norms.

    First line of Theorem 2 of Marion and Chizat (2024).

    Args:
        network: The network whose layers have these norms.
        problem: The regression.

    Returns:
        The bound.

    Raises:
        ValueError: For several outputs and for w* = 0.
    """
    lower, _ = minimal_sharpness_bounds(problem, network.depth, projection_norm=float(network.projection_norm))
    least_norm = (float(jnp.linalg.norm(problem.optimum)) / float(network.projection_norm)) ** (1 / network.depth)
    norms = np.array([jnp.linalg.norm(weight) for weight in network.weights])
    with np.errstate(divide="ignore"):
        return float(lower * np.mean(least_norm / norms))


def flat_minimizer(
    problem: LinearRegression, widths: Sequence[int], *, projection: ArrayLike | None = None
) -> DeepLinear:
    """Return the minimizer by which the proof of Theorem 2 bounds S_min from above (Marion and Chizat 2024).

    Every W_k is of rank one and norm (‖w*‖/‖p‖)^{1/L}, the first right singular vector along w*, the last left one
    along p, consecutive ones aligned.

    Args:
        problem: The regression.
        widths: d_0, …, d_L, with d_L = 1 if there is no projection.
        projection: p, of shape (d_L,).

    Returns:
        The network.

    Raises:
        ValueError: For several outputs, for p = 0, for w* = 0 from depth 2 on, and for widths that do not fit.
    """
    last = np.ones(1) if projection is None else np.asarray(projection, float)
    optimum = np.asarray(problem.optimum, float)
    if optimum.ndim != 1:
        raise ValueError(f"Theorem 2 is about one output, the data have {optimum.shape[1]}")
    if (widths[0], widths[-1]) != (optimum.size, last.size):
        raise ValueError(
            f"the data have {optimum.size} features and the projection {last.size} entries: expected widths "
            f"[{optimum.size}, …, {last.size}], got {list(widths)}"
        )
    if not (np.linalg.norm(last) > 0 and np.linalg.norm(optimum) > 0):
        raise ValueError("the construction needs a regressor w* and a projection p other than zero")
    norm = (np.linalg.norm(optimum) / np.linalg.norm(last)) ** (1 / (len(widths) - 1))
    directions = [optimum, *(np.eye(width)[0] for width in widths[1:-1]), last]
    units = [direction / np.linalg.norm(direction) for direction in directions]
    weights = [jnp.asarray(norm * np.outer(above, below)) for below, above in pairwise(units)]
    return DeepLinear(weights, projection)


def sharp_minimizer(network: DeepLinear, factor: float) -> DeepLinear:
    """Return (C W_1, W_2/C, W_3, …), which implements the same regressor.

    Of a minimizer it makes one as sharp as one likes (section 3 of Marion and Chizat 2024).

    Args:
        network: The network W_1, …, W_L.
        factor: C > 0.

    Returns:
        The network with the two layers scaled.

    Raises:
        ValueError: For one layer only, and for a factor that is not positive.
    """
    if network.depth < 2 or not factor > 0:
        raise ValueError(f"expected two layers or more and a factor C > 0, got {network.depth} and C = {factor}")
    first, second, *others = network.weights
    return DeepLinear([factor * first, second / factor, *others], network.projection)


def sharp_minimizer_bound(network: DeepLinear, problem: LinearRegression, factor: float) -> float:
    """Return 2 λ ‖w*‖^{2−1/L} ‖p‖^{1/L} C/‖W_2‖_F, below the sharpness of `sharp_minimizer(network, factor)`.

    Section 3 of Marion and Chizat (2024); λ is the smallest nonzero eigenvalue of Σ.

    Args:
        network: A minimizer W_1, …, W_L.
        problem: The regression.
        factor: C > 0.

    Returns:
        The bound: infinite for W_2 = 0, which no minimizer has unless w* = 0.
    """
    size = float(jnp.linalg.norm(problem.optimum))
    scale = size ** (2 - 1 / network.depth) * float(network.projection_norm) ** (1 / network.depth)
    with np.errstate(divide="ignore"):
        return float(2 * problem.smallest_eigenvalue * scale * factor / np.linalg.norm(network.weights[1]))


def minimizer_statements(path: FlowPath) -> list[Statement]:
    """Return Theorems 1 and 2 at the end of the flow, at the flat minimizer, and along the sharp family."""
    if not path.single_output or not jnp.any(path.problem.optimum != 0):
        reason = "the theorem is about one output and a regressor w* other than zero"
        return [not_applicable(name, claim, reason) for name, claim in _CLAIMS.items()]
    widths = [path.problem.features, *(weight.shape[1] for weight in path.weights)]
    flat = flat_minimizer(path.problem, widths, projection=path.network.projection)
    bounds = minimal_sharpness_bounds(path.problem, path.depth, projection_norm=path.projection_norm)
    at_flat = flat_minimizer_statements(flat, path.problem, bounds, rounding=path.rounding)
    return [*_at_the_limit(path, bounds[0]), *at_flat, _sharp_family(path)]


_CLAIMS = {
    "Theorem 1": "2La‖w*‖^{2−2/L}‖p‖^{2/L} ≤ S(W) at the limit",
    "Theorem 2, layer norms": "2a‖w*‖^{2−1/L}‖p‖^{1/L} Σ_k 1/‖W_k‖_F ≤ S(W) at the limit",
    "Theorem 2, flat minimizer": "R = R_min for the rank-one aligned network",
    "Theorem 2, lower bound": "lower bound on S_min ≤ S(flat minimizer)",
    "Theorem 2, upper bound": "S(flat minimizer) ≤ upper bound on S_min",
    "Theorem 2, one dimension": "|S(flat minimizer) − 2LΣ‖w*‖^{2−2/L}| = 0",
    "Theorem 2, sharp family": "2λ‖w*‖^{2−1/L}‖p‖^{1/L}C/‖W_2‖_F ≤ S(CW_1, W_2/C, …)",
}


def _at_the_limit(path: FlowPath, lower: float) -> list[Statement]:
    bounds = {"Theorem 1": lower, "Theorem 2, layer norms": layer_norm_bound(path.network, path.problem)}
    reached = path.final_sharpness
    error = path.sharpness_error(reached)
    return [
        judge(name, _CLAIMS[name], bound, reached, assumptions=[path.converged], error=error, rounding=path.rounding)
        for name, bound in bounds.items()
    ]


def flat_minimizer_statements(
    network: DeepLinear, problem: LinearRegression, bounds: tuple[float, float], *, rounding: float = ROUNDING
) -> list[Statement]:
    """Return what Theorem 2 says of its construction.

    That R = R_min is a statement of its own, and what the others rest on.

    Args:
        network: What is said to be that flat minimizer.
        problem: The regression.
        bounds: Those on S_min (`minimal_sharpness_bounds`).
        rounding: The relative error of the sides that counts as rounding.

    Returns:
        The statements.
    """
    at_zero = float(problem.excess_risk(jnp.zeros_like(problem.optimum)))  # w*ᵀΣw*
    residual = float(np.sqrt(float(problem.excess_risk(network)) / at_zero))
    minimizer = Assumption("the network is a minimizer", residual <= rounding, f"‖X(π − w*)‖/‖Xw*‖ = {residual:.1g}")
    name = "Theorem 2, flat minimizer"
    given = Assumption("w* ≠ 0, p ≠ 0", True)
    note = "‖X(π − w*)‖/‖Xw*‖ up to rounding"
    reached = float(sharpness(network, problem))
    leading_order = f"S/2La‖w*‖² = {reached / (2 * network.depth * at_zero):.6g}, which tends to one with L"
    options = {"assumptions": [minimizer], "rounding": rounding, "note": leading_order}
    return [
        judge(name, _CLAIMS[name], residual, rounding, assumptions=[given], note=note),
        judge("Theorem 2, lower bound", _CLAIMS["Theorem 2, lower bound"], bounds[0], reached, **options),
        judge("Theorem 2, upper bound", _CLAIMS["Theorem 2, upper bound"], reached, bounds[1], **options),
        _one_dimension(network, reached, bounds, minimizer, rounding),
    ]


def _one_dimension(
    network: DeepLinear, reached: float, bounds: tuple[float, float], minimizer: Assumption, rounding: float
) -> Statement:
    """Return that in one dimension the lower bound is attained, by layers of equal size."""
    name = "Theorem 2, one dimension"
    if any(weight.shape != (1, 1) for weight in network.weights):
        return not_applicable(name, _CLAIMS[name], "the widths are not all one")
    given, expected = Assumption("all widths are one", True), bounds[0]
    distance, allowed = abs(reached - expected), rounding * expected
    return judge(name, _CLAIMS[name], distance, allowed, assumptions=[given, minimizer], note="up to rounding")


def _sharp_family(path: FlowPath, factors: tuple[float, ...] = (10.0, 100.0, 1000.0)) -> Statement:
    """Return the bound on the sharpness of the family (C W_1, W_2/C, W_3, …) at the `factors` C."""
    name = "Theorem 2, sharp family"
    if path.depth < 2:
        return not_applicable(name, _CLAIMS[name], "the family needs two layers")
    network, problem = path.network, path.problem
    bounds = np.array([sharp_minimizer_bound(network, problem, factor) for factor in factors])
    reached = np.array([float(sharpness(sharp_minimizer(network, factor), problem)) for factor in factors])
    options = {"assumptions": [path.converged], "error": path.sharpness_error(reached), "rounding": path.rounding}
    note = "S = " + ", ".join(f"{value:.4g} at C = {factor:g}" for value, factor in zip(reached, factors, strict=True))
    return judge(name, _CLAIMS[name], bounds, reached, note=note, **options)
