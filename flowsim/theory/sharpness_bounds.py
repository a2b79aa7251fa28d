"""Theorem 2 of Marion and Chizat (2024): how flat a minimizer can be."""

import math

import jax.numpy as jnp
from jaxtyping import PyTree

from ..networks import DeepLinear
from ..problems import LinearRegression, Problem


def minimal_sharpness_bounds(
    problem: LinearRegression, depth: int, *, projection_norm: float = 1.0
) -> tuple[float, float]:
    """Return the bounds of Theorem 2 on S_min, the smallest sharpness of all minimizers of a deep linear
    network.

    2 ‖w*‖^{2−2/L} ‖p‖^{2/L} L a  ≤  S_min  ≤  2 ‖w*‖^{2−2/L} ‖p‖^{2/L} √((2L−1) Λ² + (L−1)² a²), with a =
    (w*/‖w*‖)ᵀ Σ (w*/‖w*‖) and L = `depth`. Raises `ValueError` if `depth` is not a positive whole number, if
    there are several outputs, of which the theorem does not speak, or if w* = 0.
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
    """Return the bounds of Theorem 2 on the minimizers of `problem` among networks like `network`.

    `None` where the theorem does not speak of them: for other problems than a regression of one output on features
    that explain some of it, and for networks that are not deep linear. In place of such a network, the deep linear one
    of a `depth` may be meant, to compare with.
    """
    if not isinstance(problem, LinearRegression) or problem.optimum.ndim != 1 or not jnp.any(problem.optimum != 0):
        return None
    length = 1.0
    if isinstance(network, DeepLinear):
        depth, length = network.depth, float(network.projection_norm)
    return None if depth is None else minimal_sharpness_bounds(problem, depth, projection_norm=length)


def critical_learning_rate(problem: LinearRegression, depth: int, *, projection_norm: float = 1.0) -> float:
    """Return 2/S with S the lower bound of Theorem 2 on S_min, which is 1/(L a ‖w*‖²) for large L and ‖p‖ =
    1.

    Above this learning rate no minimizer is stable under gradient descent, so it cannot converge to one. The
    exact threshold 2/S_min lies between 2/upper and 2/lower. Raises as `minimal_sharpness_bounds`.
    """
    lower, _ = minimal_sharpness_bounds(problem, depth, projection_norm=projection_norm)
    return 2 / lower
