"""Section 5 of Marion and Chizat (2024), measured: gradient flow from a residual initialization."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .gradients import GradientsAlong, Matrices, eigenvalue_range, norm, products_below
from .large_products import binomial_interval
from .minimizers import minimal_sharpness_bounds
from .path import FlowPath
from .small_scale import has_full_rank
from .statement import Assumption, Statement, judge, measured, not_applicable

_CLAIMS = {
    "Gradient, lower bound": "2√λ √Σ_k(‖pᵀΠ_{L:k+1}‖σ_min(Π_{k−1:1}))² √(R − R_min) ≤ ‖∇R‖",
    "Gradient, upper bound": "‖∇R‖ ≤ 2√Λ √Σ_k(‖pᵀΠ_{L:k+1}‖‖Π_{k−1:1}‖)² √(R − R_min)",
    "Theorem 4": "max_k ‖θ_k(t)‖_F ≤ C_5",
    "Theorem 5": "max_k ‖θ_k(t)‖_F ≤ C_5, several outputs",
    "Corollary 3, lower": "lower bound on S_min ≤ S at the limit",
    "Corollary 3, upper": "S/(lower bound on S_min) / (Λ/λ) ≤ C",
}


def residual_displacements(weights: Sequence[Matrices]) -> Float[np.ndarray, "records layers"]:
    """Return ‖θ_k(t)‖_F with W_k(t) = W_k(0) + θ_k(t)/L, the displacement that Theorem 4 bounds by a constant."""
    return np.stack([len(weights) * norm(weight - weight[0], (1, 2)) for weight in weights], axis=1)


def gradient_bounds(gradients: GradientsAlong) -> tuple[Float[np.ndarray, " records"], Float[np.ndarray, " records"]]:
    """Return the two bounds on ‖∇R‖ at every record, which hold at all weights.

    2√λ (Σ_k (a_k s_k)²)^{1/2} √(R − R_min) and 2√Λ (Σ_k (A_k S_k)²)^{1/2} √(R − R_min), where a_k = A_k =
    ‖pᵀΠ_{L:k+1}‖ for one output, the least and the largest singular value of Π_{L:k+1} for several, and s_k, S_k those
    of Π_{k−1:1} (Marion and Chizat 2024, equations 37 and 43, and the proof of Theorem 5). The least is over all
    directions of the input space: zero where the width below layer k is smaller than that.
    """
    smallest, largest = eigenvalue_range(gradients.problem)
    lower, upper = [], []
    for above, below in zip(gradients.above[1:], products_below(gradients.weights), strict=True):
        least_above, most_above = _extreme_singular_values(above)
        least_below, most_below = _extreme_singular_values(below)
        lower.append(least_above * least_below)
        upper.append(most_above * most_below)
    root = gradients.root_excess_risk
    return (
        2 * smallest**0.5 * norm(np.stack(lower, axis=1)) * root,
        2 * largest**0.5 * norm(np.stack(upper, axis=1)) * root,
    )


def _extreme_singular_values(matrices: Float[np.ndarray, "records out in"]) -> tuple[np.ndarray, np.ndarray]:
    """Return inf and sup of ‖Mx‖ over unit x, at every record."""
    values = np.linalg.svd(matrices, compute_uv=False)
    tall = matrices.shape[1] >= matrices.shape[2]
    return values[:, -1] if tall else np.zeros(len(values)), values[:, 0]


def residual_statements(path: FlowPath) -> list[Statement]:
    """Return the gradient bounds, Theorem 4 or 5, and Corollary 3 of Marion and Chizat (2024) along `path`."""
    return [*_gradient_statements(path), *_displacement_statements(path), *_sharpness_statements(path)]


def convergence_statement(converged: Sequence[bool]) -> Statement:
    """Return Theorem 4 as the frequency with which flows from random residual initializations converge.

    Its note has the 95 % confidence interval of the probability, which the theorem bounds below by 1 − 16 exp(−C_3 d)
    with a constant that is not known. Raises `ValueError` for no flow.
    """
    count, total = sum(converged), len(converged)
    low, high = binomial_interval(count, total)
    note = f"{count} of {total} flows converged, 95 % in [{low:.2g}, {high:.2g}]"
    name, claim = "Theorem 4, probability", "P(the flow does not converge) ≤ 16 exp(−C_3 d)"
    return measured(name, claim, 1 - count / total, unknown="the constants C_1, …, C_4", note=note)


def _gradient_statements(path: FlowPath) -> list[Statement]:
    lower, upper = gradient_bounds(path.gradients)
    reached = path.gradients.total_norm
    sides = {"Gradient, lower bound": (lower, reached), "Gradient, upper bound": (reached, upper)}
    given = Assumption("a deep linear network", True)
    options = {"assumptions": [given], "rounding": path.rounding, "times": path.times}
    return [judge(name, _CLAIMS[name], *pair, **options) for name, pair in sides.items()]


def _displacement_statements(path: FlowPath) -> list[Statement]:
    name, other = ("Theorem 4", "Theorem 5") if path.single_output else ("Theorem 5", "Theorem 4")
    elsewhere = not_applicable(
        other, _CLAIMS[other], f"it is about {'several outputs' if path.single_output else 'one output'}"
    )
    if not is_square(path.weights):
        return [elsewhere, not_applicable(name, _CLAIMS[name], "the layers are not square")]
    displacements = np.max(residual_displacements(path.weights), axis=1)
    note = f"measured C_5 ≥ {np.max(displacements):.3g}"
    options = {"unknown": "the constants C_1, …, C_5", "assumptions": [path.converged], "times": path.times}
    return [elsewhere, measured(name, _CLAIMS[name], displacements, note=note, **options)]


def is_square(weights: Sequence[Matrices]) -> bool:
    """Tell whether all layers are square of one size, as those of a residual network."""
    return all(weight.shape[1:] == (weights[0].shape[2],) * 2 for weight in weights)


def _sharpness_statements(path: FlowPath) -> list[Statement]:
    """Return Corollary 3: the lower side follows from Theorem 2, the constant of the upper one is measured."""
    names = ("Corollary 3, lower", "Corollary 3, upper")
    if not (path.single_output and is_square(path.weights) and path.projection_norm > 0):
        reason = "it is about square layers and one output"
        return [not_applicable(name, _CLAIMS[name], reason) for name in names]
    lower, _ = minimal_sharpness_bounds(path.problem, path.depth, projection_norm=path.projection_norm)
    full = Assumption("Σ has full rank", has_full_rank(path.problem))
    reached, (smallest, largest) = path.final_sharpness, eigenvalue_range(path.problem)
    assumptions = [path.converged, full]
    error = path.sharpness_error(reached)
    sides = judge(
        names[0], _CLAIMS[names[0]], lower, reached, assumptions=assumptions, error=error, rounding=path.rounding
    )
    constant = reached / lower * smallest / largest
    note = f"measured C ≥ {constant:.3g}, S/lower bound = {reached / lower:.4g}"
    unknown = "the constants C, C_1, …, C_4"
    upper = measured(names[1], _CLAIMS[names[1]], constant, unknown=unknown, assumptions=assumptions, note=note)
    return [sides, upper]
