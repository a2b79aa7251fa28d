"""The gradients of a deep linear network along a path, from the products of the layers above and below each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from ..networks import DeepLinear
from ..problems import LinearRegression

Matrices = Float[np.ndarray, "records _out _in"]


def matrices_of(network: DeepLinear) -> tuple[Matrices, ...]:
    """Return W_1, …, W_L of one network in float64 on the host, each as a path of one record."""
    return tuple(np.asarray(weight, np.float64)[None] for weight in network.weights)


def outputs_of_layers(
    weights: Sequence[Matrices], projection: Float[np.ndarray, " outputs"] | None
) -> list[Float[np.ndarray, "records _width _outputs"]]:
    """Return Π_{L:k+1}ᵀP for k = 0, …, L with P = p, one column, or the identity where there is no projection.

    The first entry is the regressor π = W_1ᵀ ⋯ W_LᵀP, the last is P.
    """
    records, outputs = weights[-1].shape[:2]
    start = np.eye(outputs) if projection is None else projection[:, None]
    chain = [np.broadcast_to(start, (records, *start.shape))]
    for weight in reversed(weights):
        chain.append(np.swapaxes(weight, 1, 2) @ chain[-1])
    return chain[::-1]


def products_below(weights: Sequence[Matrices]) -> Iterator[Float[np.ndarray, "records _width features"]]:
    """Yield Π_{k−1:1} = W_{k−1} ⋯ W_1 for k = 1, …, L; the first is the identity."""
    features = weights[0].shape[2]
    product = np.broadcast_to(np.eye(features), (weights[0].shape[0], features, features))
    for weight in weights:
        yield product
        product = weight @ product


def norm(array: np.ndarray, axis: int | tuple[int, ...] = -1) -> np.ndarray:
    """Return the Euclidean norm over `axis`, of numbers whose squares may leave the range of floats too."""
    largest = np.max(np.abs(array), axis=axis, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    return np.squeeze(scale, axis) * np.sqrt(np.sum((array / scale) ** 2, axis=axis))


@dataclass(frozen=True, eq=False)
class GradientsAlong:
    """The gradients of the risk of a deep linear network at every record.

    Equations 5 and 6 of Marion and Chizat (2024). Excess risk and gradients are computed from one residual, Σ^{1/2}(π −
    w*), so that inequalities between them keep their digits down to the limit.
    """

    problem: LinearRegression
    """The regression."""
    weights: tuple[Matrices, ...]
    """W_1, …, W_L, each with a leading axis of records."""
    projection: Float[np.ndarray, " outputs"] | None
    """p, or `None`."""

    @cached_property
    def above(self) -> list[Float[np.ndarray, "records _width _outputs"]]:
        """Π_{L:k+1}ᵀP for k = 0, …, L."""
        return outputs_of_layers(self.weights, self.projection)

    @cached_property
    def residual(self) -> Float[np.ndarray, "records rank outputs"]:
        """Σ^{1/2}(π − w*), up to a rotation."""
        optimum = np.asarray(self.problem.optimum, np.float64).reshape(self.problem.features, -1)
        return np.asarray(self.problem.root, np.float64) @ (self.above[0] - optimum)

    @cached_property
    def root_excess_risk(self) -> Float[np.ndarray, " records"]:
        """√(R − R_min)."""
        return norm(self.residual, (1, 2))

    @cached_property
    def regressor_gradient(self) -> Float[np.ndarray, "records features outputs"]:
        """∇R¹(π) = 2Σ(π − w*)."""
        return 2 * np.asarray(self.problem.root, np.float64).T @ self.residual

    @cached_property
    def layer_norms(self) -> Float[np.ndarray, "records layers"]:
        """‖∇_{W_k}R‖_F, with ∇_{W_k}R = Π_{L:k+1}ᵀP (Π_{k−1:1}∇R¹(π))ᵀ."""
        below, columns = self.regressor_gradient, []
        for weight, above in zip(self.weights, self.above[1:], strict=True):
            columns.append(norm(above @ np.swapaxes(below, 1, 2), (1, 2)))
            below = weight @ below
        return np.stack(columns, axis=1)

    @cached_property
    def total_norm(self) -> Float[np.ndarray, " records"]:
        """‖∇R‖ over all weights together."""
        return norm(self.layer_norms)

    @cached_property
    def root_rate(self) -> Float[np.ndarray, " records"]:
        """√μ(t) = ‖∇R‖/√(R − R_min), infinite where the excess risk is zero."""
        positive = self.root_excess_risk > 0
        return np.where(positive, self.total_norm / np.where(positive, self.root_excess_risk, 1), np.inf)


def eigenvalue_range(problem: LinearRegression) -> tuple[float, float]:
    """Return λ and Λ, the smallest nonzero and the largest eigenvalue of Σ."""
    return float(problem.smallest_eigenvalue), float(problem.largest_eigenvalue)
