"""Section 4 of Marion and Chizat (2024), measured: gradient flow from a small-scale initialization."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..networks import DeepLinear
from ..problems import LinearRegression
from .gradients import GradientsAlong, Matrices, eigenvalue_range, matrices_of, norm
from .minimizers import minimal_sharpness_bounds
from .path import FlowPath
from .statement import Assumption, Statement, judge, not_applicable


def initialization_epsilon(weights: Sequence[ArrayLike]) -> float:
    """Return ε = 3 max_k ‖W_k‖_F² + 2 Σ_{k<L} ‖W_kW_kᵀ − W_{k+1}ᵀW_{k+1}‖_2 of the weights W_1, …, W_L at time zero.

    Section 4 of Marion and Chizat (2024). It falls with the square of the scale.
    """
    matrices = [np.asarray(weight, np.float64) for weight in weights]
    imbalance = sum(np.linalg.norm(below @ below.T - above.T @ above, 2) for below, above in pairwise(matrices))
    return float(3 * max(np.sum(matrix**2) for matrix in matrices) + 2 * imbalance)


def assumption_1(network: DeepLinear, problem: LinearRegression) -> Assumption:
    """Check A1 of Marion and Chizat (2024): R(W(0)) ≤ R(0) and ∇R(W(0)) ≠ 0.

    R(0) − R(W) = 2 w*ᵀΣπ − πᵀΣπ is computed as it stands here: for small weights the difference of the risks has no
    digit left.

    Args:
        network: The network at time zero.
        problem: The regression.

    Returns:
        The assumption, and whether it is met.
    """
    energy, agreement = _risk_terms(network, problem)
    projection = None if network.projection is None else np.asarray(network.projection, np.float64)
    moves = bool(np.any(GradientsAlong(problem, matrices_of(network), projection).total_norm > 0))
    found = f"R(0) − R(W(0)) = {agreement - energy:.2g}, ∇R(W(0)) {'≠' if moves else '='} 0"
    return Assumption("A1: R(W(0)) ≤ R(0), ∇R(W(0)) ≠ 0", energy <= agreement and moves, found)


def _risk_terms(network: DeepLinear, problem: LinearRegression) -> tuple[float, float]:
    """Return πᵀΣπ and 2w*ᵀΣπ, whose difference is R(W) − R(0)."""
    root, optimum = np.asarray(problem.root, np.float64), np.asarray(problem.optimum, np.float64)
    image = root @ np.asarray(network.regressor(), np.float64)
    return float(np.sum(image**2)), float(2 * np.sum((root @ optimum) * image))


def assumption_2(network: DeepLinear, problem: LinearRegression) -> Assumption:
    """Check A2 of Marion and Chizat (2024): Σ has full rank, and 32 L √ε ≤ 1.

    The form is that of the slides, by which the corollaries are judged; the paper's has technical conditions besides,
    which are not checked. For ‖w*‖ < 1 the statement is taken at unit ‖w*‖, to which W_k ↦ W_k/‖w*‖^{1/L} brings every
    flow: 32 L √ε ≤ ‖w*‖^{1/L}, which is stricter.

    Args:
        network: The network at time zero.
        problem: The regression.

    Returns:
        The assumption, and whether it is met.
    """
    left = 32 * network.depth * initialization_epsilon(network.weights) ** 0.5
    full = has_full_rank(problem)
    found = f"32L√ε = {left:.3g}" + ("" if full else ", Σ is singular")
    return Assumption("A2: Σ has full rank, 32L√ε ≤ 1", full and left <= _unit_scale(problem, network.depth), found)


def _unit_scale(problem: LinearRegression, depth: int) -> float:
    """Return min(1, ‖w*‖^{1/L}), the right side of A2."""
    return min(1.0, float(jnp.linalg.norm(problem.optimum)) ** (1 / depth))


def has_full_rank(problem: LinearRegression) -> bool:
    """Tell whether Σ is invertible."""
    return int(np.sum(np.asarray(problem.eigenvalues) > 0)) == problem.features


@dataclass(frozen=True, eq=False)
class LeadingSingular:
    """The first singular triplets along a path, and how much the other ones hold.

    Singular vectors are arbitrary in sign, and where σ_1 = σ_2 in direction; only squared inner products are taken,
    and the proof of Lemma 2 (iii) holds for every choice, so that at a tie any is as good as the one taken here.
    """

    weights: tuple[Matrices, ...]
    """W_1, …, W_L, each with a leading axis of records."""

    @cached_property
    def _decompositions(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return [np.linalg.svd(weight, full_matrices=False) for weight in self.weights]

    @cached_property
    def squared_values(self) -> Float[np.ndarray, "records layers"]:
        """σ_k²."""
        return np.stack([values[:, 0] ** 2 for _, values, _ in self._decompositions], axis=1)

    @cached_property
    def remainders(self) -> Float[np.ndarray, "records layers"]:
        """‖W_k‖_F² − ‖W_k‖_2², the sum of all squared singular values but the first."""
        return np.stack([np.sum(values[:, 1:] ** 2, axis=1) for _, values, _ in self._decompositions], axis=1)

    @cached_property
    def misalignments(self) -> Float[np.ndarray, "records pairs"]:
        """1 − ⟨v_{k+1}, u_k⟩² for k < L, as ‖v − ⟨v, u⟩u‖², in which nothing cancels."""
        columns = []
        for (left, _, _), (_, _, right) in pairwise(self._decompositions):
            u, v = left[:, :, 0], right[:, 0, :]
            inner = np.sum(u * v, axis=1, keepdims=True)
            columns.append(np.sum((v - inner * u) ** 2, axis=1))
        return np.stack(columns, axis=1) if columns else np.zeros((len(self.weights[0]), 0))


def conservation_drift(weights: Sequence[Matrices]) -> Float[np.ndarray, " records"]:
    """Return max_k ‖D_k(t) − D_k(0)‖_2 with D_k = W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, which gradient flow conserves.

    Lemma 1 of Marion and Chizat (2024). Along gradient descent it grows in proportion to η. Zero for one layer.
    """
    drift = np.zeros(len(weights[0]))
    for below, above in pairwise(weights):
        difference = np.swapaxes(above, 1, 2) @ above - below @ np.swapaxes(below, 1, 2)
        drift = np.maximum(drift, np.linalg.norm(difference - difference[0], 2, axis=(1, 2)))
    return drift


_CLAIMS = {
    "Lemma 1": "max_k ‖ΔW_{k+1}ᵀW_{k+1} − ΔW_kW_kᵀ‖_2 = 0, up to the integration error",
    "Lemma 2 (i)": "max_k ‖W_k‖_F² − ‖W_k‖_2² ≤ ε",
    "Lemma 2 (ii)": "max_{j,k} |σ_k² − σ_j²| ≤ ε",
    "Lemma 2 (iii)": "1 − ⟨v_{k+1}, u_k⟩² ≤ ε/σ_{k+1}²",
    "A1": "πᵀΣπ ≤ 2w*ᵀΣπ at W(0), which is R(W(0)) ≤ R(0); ∇R(W(0)) ≠ 0",
    "A2": "Σ has full rank, 32L√ε ≤ 1",
    "Theorem 3, first step": "2√λ ‖W_L⋯W_2‖ √(R − R_min) ≤ ‖∇_{W_1}R‖_F",
    "Theorem 3": "0 < √μ = min_{t≥1} ‖∇R‖/√(R − R_min)",
    "Corollary 1, lower": "(‖w*‖/2)^{1/L} ≤ min_k σ_k at the limit",
    "Corollary 1, upper": "max_k σ_k ≤ (2‖w*‖)^{1/L} at the limit",
    "Corollary 1, alignment": "1 − ⟨v_{k+1}, u_k⟩² ≤ ε/(‖w*‖/2)^{2/L} at the limit",
    "Corollary 2": "S/(lower bound on S_min) ≤ 4Λ/λ at the limit",
    "Corollary 2, absolute": "S ≤ 8LΛ‖w*‖^{2−2/L} at the limit",
}


def conservation(path: FlowPath) -> Statement:
    """Return Lemma 1 of Marion and Chizat (2024), with the integration error as its right side."""
    name = "Lemma 1"
    if path.depth < 2:
        return not_applicable(name, _CLAIMS[name], "there is one layer")
    given = Assumption("a deep linear network", True)
    drift, allowed = conservation_drift(path.weights), path.integration_error
    return judge(name, _CLAIMS[name], drift, allowed, assumptions=[given], rounding=path.rounding, times=path.times)


def small_scale_statements(path: FlowPath) -> list[Statement]:
    """Return Lemma 2, A1, A2, Theorem 3, and Corollaries 1 and 2 of Marion and Chizat (2024) along `path`."""
    if path.network.projection is not None or not path.single_output:
        reason = "it is about d_L = 1 and p = 1"
        return [not_applicable(name, claim, reason) for name, claim in _CLAIMS.items() if name != "Lemma 1"]
    singular = LeadingSingular(path.weights)
    first = assumption_1(path.initial, path.problem)
    second = assumption_2(path.initial, path.problem)
    return [
        *_structure(path, singular),
        *_initialization(path, first, second),
        *_gradient_domination(path, first),
        *_limit(path, singular, [first, second, path.converged]),
    ]


def _over_squares(bound: np.ndarray | float, squares: np.ndarray) -> np.ndarray:
    """Return a bound over σ², infinite where a layer is zero: then it bounds nothing."""
    return np.divide(bound, squares, out=np.full_like(squares, np.inf), where=squares > 0)


def _structure(path: FlowPath, singular: LeadingSingular) -> list[Statement]:
    """Return Lemma 2 along the path."""
    epsilon = initialization_epsilon([weight[0] for weight in path.weights])
    squares, options = singular.squared_values, _options(path)
    sides = {"Lemma 2 (i)": np.max(singular.remainders, axis=1), "Lemma 2 (ii)": np.ptp(squares, axis=1)}
    statements = [judge(name, _CLAIMS[name], side, epsilon, **options) for name, side in sides.items()]
    name = "Lemma 2 (iii)"
    if path.depth < 2:
        return [*statements, not_applicable(name, _CLAIMS[name], "there is one layer")]
    allowed = _over_squares(epsilon, squares[:, 1:])
    options["error"] = np.min(_over_squares(options["error"][:, None], squares[:, 1:]), axis=1)
    # The layer that comes closest to its own bound speaks for all.
    closest = np.argmax(singular.misalignments / allowed, axis=1)[:, None]
    sides = [np.take_along_axis(side, closest, axis=1)[:, 0] for side in (singular.misalignments, allowed)]
    return [*statements, judge(name, _CLAIMS[name], *sides, **options)]


def _options(path: FlowPath) -> dict:
    given = Assumption("d_L = 1 and p = 1", True)
    return {
        "assumptions": [given],
        "error": np.full(len(path.times), path.depth * path.integration_error),
        "rounding": path.rounding,
        "times": path.times,
    }


def _initialization(path: FlowPath, first: Assumption, second: Assumption) -> list[Statement]:
    """Return A1 and A2 as statements of their own, so that the table shows how far they are met."""
    small = 32 * path.depth * initialization_epsilon(path.initial.weights) ** 0.5
    sides = {"A1": _risk_terms(path.initial, path.problem), "A2": (small, _unit_scale(path.problem, path.depth))}
    return [
        judge(name, _CLAIMS[name], *sides[name], assumptions=[assumption], note=assumption.found)
        for name, assumption in (("A1", first), ("A2", second))
    ]


def _gradient_domination(path: FlowPath, first: Assumption) -> list[Statement]:
    """Return Theorem 3, whose constant is measured, and the first step of its proof, both under the root."""
    gradients, (smallest, _) = path.gradients, eigenvalue_range(path.problem)
    bound = 2 * smallest**0.5 * norm(gradients.above[1], (1, 2)) * gradients.root_excess_risk
    options = {"assumptions": [Assumption("d_L = 1 and p = 1", True)], "rounding": path.rounding, "times": path.times}
    name = "Theorem 3, first step"
    step = judge(name, _CLAIMS[name], bound, gradients.layer_norms[:, 0], **options)
    late = path.times + path.escape_time >= 1
    name = "Theorem 3"
    if not late.any():
        return [step, not_applicable(name, _CLAIMS[name], "the run ended before t = 1")]
    least = float(np.min(gradients.root_rate[late]))
    note = f"least from t = 1 on; at the limit μ = {gradients.root_rate[-1] ** 2:.3g}"
    # The statement is "less than", the verdict is on "at most": the two agree for the smallest number above zero.
    found = judge(name, _CLAIMS[name], np.nextafter(0, 1), least, assumptions=[first, path.converged], note=note)
    return [step, replace(found, smaller=np.zeros(()))]


def _limit(path: FlowPath, singular: LeadingSingular, assumptions: list[Assumption]) -> list[Statement]:
    """Return Corollaries 1 and 2 at the end of the path.

    The slides print 2‖w*‖ in the bound on the alignment; with Lemma 2 (iii) and the lower bound on σ it is ‖w*‖/2 that
    follows, which is weaker.
    """
    size, depth = float(jnp.linalg.norm(path.problem.optimum)), path.depth
    values = np.sqrt(singular.squared_values[-1])
    alignment = initialization_epsilon(path.initial.weights) / (size / 2) ** (2 / depth) if size > 0 else np.inf
    sides = {
        "Corollary 1, lower": ((size / 2) ** (1 / depth), np.min(values)),
        "Corollary 1, upper": (np.max(values), (2 * size) ** (1 / depth)),
        "Corollary 1, alignment": (np.max(singular.misalignments[-1], initial=0.0), alignment),
        **(_sharpness_sides(path, size) if size > 0 else {}),
    }
    return [
        judge(name, _CLAIMS[name], *pair, assumptions=assumptions, rounding=path.rounding)
        for name, pair in sides.items()
    ]


def _sharpness_sides(path: FlowPath, size: float) -> dict[str, tuple[float, float]]:
    smallest, largest = eigenvalue_range(path.problem)
    lower, _ = minimal_sharpness_bounds(path.problem, path.depth)
    reached = path.final_sharpness
    return {
        "Corollary 2": (reached / lower, 4 * largest / smallest),
        "Corollary 2, absolute": (reached, 8 * path.depth * largest * size ** (2 - 2 / path.depth)),
    }
