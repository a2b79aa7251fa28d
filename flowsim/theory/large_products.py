"""Lemma 3 of Marion and Chizat (2024), measured: singular values of products of many random matrices near identity."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from jaxtyping import Bool, Float, Int

from .statement import Assumption, Statement, judge, not_applicable

Layers = Float[np.ndarray, "initializations layers width width"]

_CLAIM = "P(some θ in the ball breaks a bound on a Π_{k:1}) ≤ 8 exp(−du²/(32s²))"


@dataclass(frozen=True)
class LargeProducts:
    """One case of Lemma 3 in the form of the slides: W_k = I + s/√(Ld) N_k + θ_k/L with N_k standard Gaussian."""

    deviation: float
    """u > 0."""
    scale: float
    """s."""
    width: int
    """d."""
    depth: int
    """L."""

    def __post_init__(self):
        if not (self.deviation > 0 and self.scale > 0 and self.width >= 1 and self.depth >= 1):
            raise ValueError(f"expected u > 0, s > 0, and width and depth of one or more, got {self}")

    @property
    def radius(self) -> float:
        """The bound on max_k ‖θ_k‖_2: exp(−2s² − 4u)/64."""
        return math.exp(-2 * self.scale**2 - 4 * self.deviation) / 64

    @property
    def norm_bound(self) -> float:
        """The bound on ‖Π_{k:1}‖_2: 4 exp(s²/2 + u)."""
        return 4 * math.exp(self.scale**2 / 2 + self.deviation)

    @property
    def least_bound(self) -> float:
        """The bound on σ_min(Π_{k:1}) from below: exp(−2s²/d − u)/4."""
        return math.exp(-2 * self.scale**2 / self.width - self.deviation) / 4

    @property
    def failure_bound(self) -> float:
        """The bound on the probability of failure, 8 exp(−du²/(32s²)); from one on it says nothing."""
        return 8 * math.exp(-self.width * self.deviation**2 / (32 * self.scale**2))


@dataclass(frozen=True)
class LargeProductsSample:
    """How many initializations break the bounds of Lemma 3, with θ drawn at random and with θ chosen against it."""

    case: LargeProducts
    """The case."""
    initializations: int
    """How many were drawn."""
    random_failures: int
    """How many θ drawn on the boundary of the ball breaks."""
    failures: int
    """How many any of the θ tried breaks."""
    largest: float
    """The largest singular value met, relative to its bound: a failure is above 1."""
    least: float
    """The least one, relative to its bound: a failure is below 1."""

    @property
    def probability(self) -> float:
        """The empirical probability of failure."""
        return self.failures / self.initializations

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of that probability."""
        return binomial_interval(self.failures, self.initializations)

    def statement(self) -> Statement:
        """Return Lemma 3 for this case: decided only where the confidence interval lies on one side of the bound."""
        case, (low, high) = self.case, self.interval
        name = f"Lemma 3, u={case.deviation:g} s={case.scale:g} d={case.width} L={case.depth}"
        note = f"{self.failures} of {self.initializations} fail, 95 % in [{low:.2g}, {high:.2g}]"
        bound = case.failure_bound
        if bound >= 1:
            return not_applicable(name, _CLAIM, f"the bound is {bound:.3g}, no probability; {note}")
        decided = Assumption("the initializations decide it", high <= bound or low > bound, note)
        return judge(name, _CLAIM, high if high <= bound else low, bound, assumptions=[decided], note=note)


def binomial_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided confidence interval of a probability (Clopper and Pearson 1934).

    Its ends are quantiles of beta distributions; SciPy's `binomtest` finds the same by bisection, to nine digits.

    Args:
        successes: How many trials succeeded.
        trials: How many there were.
        confidence: The probability with which the interval holds it, at least.

    Returns:
        Both ends.

    Raises:
        ValueError: Unless 0 ≤ successes ≤ trials with one trial or more.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"expected 0 ≤ successes ≤ trials and a trial, got {successes} of {trials}")
    from scipy.special import betaincinv  # takes a moment to import, and is rarely needed

    tail = (1 - confidence) / 2
    low = betaincinv(successes, trials - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
    return float(low), float(high)


def sample_large_products(
    case: LargeProducts, initializations: int, *, rng: np.random.Generator
) -> LargeProductsSample:
    """Draw initializations of a case of Lemma 3 and count those at which some θ that is tried breaks a bound.

    Three θ are tried, each in the ball ‖θ_k‖_2 ≤ radius for all k at once: random on its boundary, after a few steps of
    ascent on the largest ‖Π_{k:1}‖_2, and after as many of descent on the least σ_min(Π_{k:1}). Every k is checked.

    Args:
        case: The case.
        initializations: How many are drawn.
        rng: What draws.

    Returns:
        How many break a bound, and how far.

    Raises:
        ValueError: For less than one initialization.
    """
    if initializations < 1:
        raise ValueError(f"expected one initialization or more, got {initializations}")
    random_failures, failures, largest, least = 0, 0, 0.0, math.inf
    noise, directions = rng.spawn(2)
    for count in _batches(case, initializations):
        weights = _initialization(case, noise, count)
        tried = [_random_displacement(case, directions, count), *_adversarial_displacements(case, weights)]
        ranges = [extreme_singular_values(weights + theta / case.depth) for theta in tried]
        broken = [_breaks(case, *extremes) for extremes in ranges]
        random_failures += int(np.sum(broken[0]))
        failures += int(np.sum(np.any(broken, axis=0)))
        largest = max(largest, *(float(np.max(norms)) / case.norm_bound for norms, _ in ranges))
        least = min(least, *(float(np.min(values)) / case.least_bound for _, values in ranges))
    return LargeProductsSample(case, initializations, random_failures, failures, largest, least)


def _batches(case: LargeProducts, initializations: int, *, numbers: int = 2_000_000) -> Iterator[int]:
    """Yield how many initializations to draw at once, of at most so many `numbers`: 16 MB for each array of them."""
    most = max(1, numbers // (case.depth * case.width**2))
    for first in range(0, initializations, most):
        yield min(most, initializations - first)


def _initialization(case: LargeProducts, rng: np.random.Generator, count: int) -> Layers:
    noise = rng.standard_normal((count, case.depth, case.width, case.width))
    return np.eye(case.width) + case.scale / math.sqrt(case.depth * case.width) * noise


def _random_displacement(case: LargeProducts, rng: np.random.Generator, count: int) -> Layers:
    """Draw θ with Gaussian directions and ‖θ_k‖_2 = radius for every k."""
    theta = rng.standard_normal((count, case.depth, case.width, case.width))
    return theta * (case.radius / np.linalg.norm(theta, 2, axis=(2, 3), keepdims=True))


def _adversarial_displacements(case: LargeProducts, weights: Layers) -> tuple[Layers, Layers]:
    """Return θ that widens the largest ‖Π_{k:1}‖_2, and θ that narrows the least σ_min(Π_{k:1})."""
    norms, least = extreme_singular_values(weights)
    return (
        adversarial_displacement(weights, case.radius, np.argmax(norms, axis=1), widen=True),
        adversarial_displacement(weights, case.radius, np.argmin(least, axis=1), widen=False),
    )


def adversarial_displacement(
    weights: Layers, radius: float, target: Int[np.ndarray, " initializations"], *, widen: bool, steps: int = 3
) -> Layers:
    """Return θ in the ball max_k ‖θ_k‖_2 ≤ `radius` that raises ‖Π_{k:1}‖_2, or lowers σ_min(Π_{k:1}).

    `target` is the index k − 1 of the product for each initialization. A singular value σ = uᵀW_k ⋯ W_1v has with
    respect to W_j the gradient a_j b_jᵀ with a_j = (W_k ⋯ W_{j+1})ᵀu and b_j = W_{j−1} ⋯ W_1v; over the product of the
    balls its first-order change is extreme at θ_j = ± radius · a_j b_jᵀ/(‖a_j‖‖b_j‖) for all j at once, which is
    the new θ of each of the `steps` (conditional gradient with full steps). Layers above k stay where they are.
    """
    depth = weights.shape[1]
    theta = np.zeros_like(weights)
    for _ in range(steps):
        moved = weights + theta / depth
        left, right = _singular_vectors(moved, target, first=widen)
        above, below = _chains(moved, target, left, right)
        outer = above[..., :, None] * below[..., None, :]
        size = np.linalg.norm(outer, axis=(2, 3), keepdims=True)
        direction = np.divide(outer, size, out=np.zeros_like(outer), where=size > 0)
        theta = (radius if widen else -radius) * direction
    return theta


def _singular_vectors(weights: Layers, target: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray]:
    left, _, right = np.linalg.svd(_products(weights)[np.arange(len(weights)), target])
    return (left[:, :, 0], right[:, 0]) if first else (left[:, :, -1], right[:, -1])


def _chains(
    weights: Layers, target: np.ndarray, left: np.ndarray, right: np.ndarray
) -> tuple[Float[np.ndarray, "initializations layers width"], Float[np.ndarray, "initializations layers width"]]:
    """Return (W_k ⋯ W_{j+1})ᵀu and W_{j−1} ⋯ W_1v for every j; zero above k."""
    depth = weights.shape[1]
    above, below = np.zeros(weights.shape[:3]), np.zeros(weights.shape[:3])
    below[:, 0] = right
    for layer in range(1, depth):
        below[:, layer] = (weights[:, layer - 1] @ below[:, layer - 1, :, None])[..., 0]
    for layer in reversed(range(depth)):
        if layer + 1 < depth:
            above[:, layer] = (above[:, layer + 1, None, :] @ weights[:, layer + 1])[:, 0]
        above[:, layer] = np.where((target == layer)[:, None], left, above[:, layer])
    return above, below


def extreme_singular_values(weights: Layers) -> tuple[np.ndarray, np.ndarray]:
    """Return ‖Π_{k:1}‖_2 and σ_min(Π_{k:1}) for k = 1, …, L, two arrays (initializations, layers)."""
    values = np.linalg.svd(_products(weights), compute_uv=False)
    return values[..., 0], values[..., -1]


def _products(weights: Layers) -> Layers:
    """Return Π_{k:1} for k = 1, …, L."""
    return np.stack(list(accumulate(np.moveaxis(weights, 1, 0), lambda below, layer: layer @ below)), axis=1)


def _breaks(case: LargeProducts, norms: np.ndarray, least: np.ndarray) -> Bool[np.ndarray, " initializations"]:
    return np.any((norms > case.norm_bound) | (least < case.least_bound), axis=1)
