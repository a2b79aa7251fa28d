"""The same risk and the same flow written once more, without flowsim: what the benchmarks compare it with.

Weights are one vector here: W_1, …, W_L, row after row, one behind the other.
"""

import functools

import jax.numpy as jnp
import numpy as np
from cases import Case
from scipy.integrate import solve_ivp

import flowsim


def flat(network: flowsim.DeepLinear) -> np.ndarray:
    """Return the weights of a network as one vector."""
    return np.concatenate([np.ravel(weight) for weight in network.weights])


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Return ‖found − expected‖ / ‖expected‖."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


class PlainProblem:
    """R = (1/n)‖y − Xπ‖² of a chain of matrices, its gradient in NumPy, and its flow by SciPy."""

    def __init__(self, case: Case):
        self.X, self.y = case.X, case.y
        self.shapes = [weight.shape for weight in case.network.weights]
        self.projection = np.ones(1) if case.network.projection is None else np.array(case.network.projection)
        self.covariance = case.X.T @ case.X / len(case.X)
        self.optimum = np.linalg.lstsq(case.X, case.y)[0]
        self.start = flat(case.network)

    def matrices(self, weights: np.ndarray) -> list[np.ndarray]:
        """Return W_1, …, W_L."""
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])[:-1]
        parts = zip(self.shapes, np.split(weights, ends), strict=True)
        return [part.reshape(shape) for shape, part in parts]

    def risk(self, weights: jnp.ndarray) -> jnp.ndarray:
        """Return the risk from the data themselves, in JAX."""
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])[:-1]
        state = jnp.asarray(self.projection)
        for shape, part in reversed(list(zip(self.shapes, jnp.split(weights, ends), strict=True))):
            state = part.reshape(shape).T @ state
        return jnp.mean((self.y - self.X @ state) ** 2)

    def regressor(self, weights: np.ndarray) -> np.ndarray:
        """Return π = W_1ᵀ ⋯ W_Lᵀ p, in NumPy."""
        return functools.reduce(lambda state, matrix: matrix.T @ state, self.matrices(weights)[::-1], self.projection)

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Return ∇_{W_k} R = (W_{k+1}ᵀ ⋯ W_Lᵀ p)(W_{k−1} ⋯ W_1 ∇R¹(π))ᵀ for all k, in NumPy."""
        matrices = self.matrices(weights)
        above = [self.projection]
        for matrix in reversed(matrices):
            above.append(matrix.T @ above[-1])
        below = 2 * self.covariance @ (above.pop() - self.optimum)
        parts = []
        for matrix, left in zip(matrices, reversed(above), strict=True):
            parts.append(np.outer(left, below).ravel())
            below = matrix @ below
        return np.concatenate(parts)

    def flow(self, weights: np.ndarray, time: float, *, rtol: float = 1e-12) -> np.ndarray:
        """Return the weights a `time` later, by DOP853."""

        def field(t: float, w: np.ndarray) -> np.ndarray:
            # A first step that SciPy tries, and rejects, may overflow.
            with np.errstate(over="ignore", invalid="ignore"):
                return -self.gradient(w)

        tolerances = {"rtol": rtol, "atol": 1e-2 * rtol}
        solution = solve_ivp(field, (0.0, time), weights, method="DOP853", t_eval=[time], **tolerances)
        if not solution.success:
            raise RuntimeError(f"SciPy gave up: {solution.message}")
        return solution.y[:, -1]

    def limit(self, *, rtol: float = 1e-12) -> np.ndarray:
        """Return the weights at the end of the flow: time is doubled until they move no more."""
        time, weights = 16.0, self.flow(self.start, 16.0, rtol=rtol)
        while True:
            later = self.flow(weights, time, rtol=rtol)
            still = np.linalg.norm(self.gradient(later)) < 1e-6
            if still and relative_error(weights, later) <= 10 * rtol:
                return later
            time, weights = 2 * time, later
