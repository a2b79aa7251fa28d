"""Least-squares regression, reduced to the few numbers on which a linear network's risk depends."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from ..data import DataError, paired_arrays
from ..networks import LinearNetwork, split
from ..networks.weights import norm
from ..runtime.compiling import with_standard_options
from .empirical import EmpiricalRisk
from .problem import Outputs, Problem


class LinearRegression(Problem):
    """The risk R = (1/n)‖y − Xπ‖² of a linear network with regressor π.

    The data enter through Σ = XᵀX/n, the least-squares regressor w* of minimal norm, and R_min alone (Marion and Chizat
    2024, section 2), so once reduced, no cost depends on n. Any n ≥ 1 will do, n < d, collinear and constant columns
    included.

    The reduction is a QR factorization of [X y] and a singular value decomposition of its triangle, in double
    precision: XᵀX, whose condition number is the square of that of X, is never inverted.

    Args:
        X: The samples, (n, d).
        y: Their labels, (n,) or (n, m); one column is the same as none.
        keep_samples: Whether it holds the samples besides, for descents by minibatches and probes of them.

    Raises:
        DataError: A `ValueError`, for shapes that do not fit, and for data that are not finite real numbers.
    """

    root: Float[Array, "rank d"]
    optimum: Float[Array, " d"] | Float[Array, "d m"]
    minimal_risk: Float[Array, ""]
    eigenvalues: Float[Array, " rank"]
    samples: EmpiricalRisk | None

    @with_standard_options
    def __init__(self, X: ArrayLike, y: ArrayLike, *, keep_samples: bool = False):
        if isinstance(X, Tracer) or isinstance(y, Tracer):
            raise ValueError(
                "LinearRegression reduces its data once, outside jit and vmap: build it before and pass it in"
            )
        X, y = paired_arrays(X, y)
        for name, array in (("X", X), ("y", y)):
            largest = np.abs(array).max()
            if not (largest == 0 or 1e-100 < largest < 1e100):
                raise DataError(
                    f"{name} has entries of size {largest:.2g}, whose squares leave the range of floats: rescale"
                )
        y = y[:, 0] if y.shape[1:] == (1,) else y
        n, d = X.shape
        # Householder QR keeps every least-squares quantity of [X y] in a triangle of at most d + m rows.
        rows = np.hstack([X, y.reshape(n, -1)])
        if n > rows.shape[1]:
            rows = np.asarray(np.linalg.qr(rows, mode="r"))
        left, singular, right = np.linalg.svd(rows[:, :d], full_matrices=False)
        singular[singular <= max(n, d) * np.finfo(float).eps * singular[0]] = 0.0
        coordinates = left.T @ rows[:, d:]
        inverse = np.divide(1.0, singular, out=np.zeros_like(singular), where=singular > 0)
        kept = left * (singular > 0)
        residual = rows[:, d:] - kept @ (kept.T @ rows[:, d:])
        optimum = right.T @ (inverse[:, None] * coordinates)
        dtype = jnp.result_type(float)
        self.root = jnp.asarray(singular[:, None] * right / np.sqrt(n), dtype)
        self.optimum = jnp.asarray(optimum.reshape(d, *y.shape[1:]), dtype)
        self.minimal_risk = jnp.asarray(np.sum(residual**2) / n, dtype)
        self.eigenvalues = jnp.asarray(singular**2 / n, dtype)
        self.samples = EmpiricalRisk(X, y) if keep_samples else None

    @property
    def infimum(self) -> Float[Array, ""]:
        """R_min, the risk of the least-squares regressor."""
        return self.minimal_risk

    @property
    def features(self) -> int:
        """The number of features, d."""
        return self.root.shape[-1]

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """Σ = XᵀX/n."""
        return self.root.T @ self.root

    @property
    def largest_eigenvalue(self) -> Float[Array, ""]:
        """Λ, the largest eigenvalue of Σ."""
        return self.eigenvalues[0]

    @property
    def smallest_eigenvalue(self) -> Float[Array, ""]:
        """λ, the smallest nonzero eigenvalue of Σ; zero if Σ = 0."""
        nonzero = jnp.where(self.eigenvalues > 0, self.eigenvalues, jnp.inf)
        return jnp.minimum(jnp.min(nonzero), self.largest_eigenvalue)

    def __call__(self, network: LinearNetwork | Array) -> Float[Array, ""]:
        """Return the risk R of a network, or of a regressor π itself."""
        return self.excess_risk(network) + self.minimal_risk

    def excess_risk(self, network: LinearNetwork | Array) -> Float[Array, ""]:
        """Return R − R_min = (π − w*)ᵀ Σ (π − w*), a sum of squares in which nothing cancels."""
        return jnp.sum((self.root @ (self._regressor(network) - self.optimum)) ** 2)

    def objective(self, network: LinearNetwork | Array) -> Float[Array, ""]:
        """Return what the flow descends: the excess risk, which differs from the risk by a constant."""
        return self.excess_risk(network)

    def squared_distance(self, network: LinearNetwork | Array) -> Float[Array, ""]:
        """Return ‖π − w*‖²."""
        return jnp.sum((self._regressor(network) - self.optimum) ** 2)

    def regressor_gradient(self, network: LinearNetwork | Array) -> Float[Array, " d"] | Float[Array, "d m"]:
        """Return ∇R¹(π) = 2Σ(π − w*), the gradient of the risk with respect to the regressor."""
        return 2 * self.root.T @ (self.root @ (self._regressor(network) - self.optimum))

    def curved_outputs(self, network: LinearNetwork) -> Outputs:
        """Return W ↦ √2 Σ^½ π(W), of at most d entries for each column of y.

        Its Jacobian G gives the Gauss–Newton matrix GᵀG = 2JᵀΣJ, J = ∂π/∂W, whatever n is; at a minimizer that is
        the Hessian.
        """
        return lambda other: (2**0.5 * (self.root @ self._regressor(other))).ravel()

    def output_jacobian(self, as_network: Callable[[PyTree], Any], weights: PyTree) -> PyTree | None:
        """Return G at `as_network(weights)`, `None` for a network that does not know the Jacobian of its regressor."""
        jacobian = _linear(as_network(weights)).regressor_jacobian()
        root = 2**0.5 * self._flat_root()
        return None if jacobian is None else jax.tree.map(lambda rows: jnp.tensordot(root, rows, 1), jacobian)

    def rank(self, network: LinearNetwork) -> int:
        """Return the largest rank that the Gauss–Newton matrix can have."""
        return self.root.shape[0] * (self.optimum.size // self.features)

    def output_gram(self, network: LinearNetwork) -> Float[Array, "m m"] | None:
        """Return GGᵀ = 2 Σ^½ JJᵀ Σ^½ for a network that knows JJᵀ, `None` for others.

        `None` too where G has fewer entries than JJᵀ, as it may with fewer samples than features.
        """
        entries = self.rank(network) * sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))
        if self.optimum.size**2 > entries:
            return None
        gram, root = _linear(network).regressor_gram(), self._flat_root()
        return None if gram is None else 2 * root @ gram @ root.T

    def is_minimum(self, network: LinearNetwork | Array, remaining: float) -> Array:
        """Tell whether ‖P(π − w*)‖ ≤ `remaining` σ, P projecting onto the features that occur, or w* is zero.

        σ is the smallest singular value of Pw*, which is ‖Pw*‖ for one output. If it is not zero, the Jacobian ∂π/∂W
        has full rank near such a regressor, and a minimizer is as near to the weights, relative to them. Else layers
        come to the minimum algebraically, long after their product. That, and another minimum, such as one of a network
        with a bottleneck, is left to second derivatives.
        """
        occurs = self.eigenvalues > 0
        units = jnp.where(occurs, 1 / jnp.sqrt(jnp.where(occurs, self.eigenvalues, 1)), 0)
        off, optimum = (
            units[:, None] * (self.root @ regressor).reshape(len(units), -1)
            for regressor in (self._regressor(network) - self.optimum, self.optimum)
        )
        size = norm(optimum)
        if optimum.shape[1] > 1:
            rank = jnp.minimum(jnp.sum(occurs), optimum.shape[1])
            size = jnp.linalg.svd(optimum, compute_uv=False)[rank - 1]
        return (norm(off) <= jnp.minimum(remaining, 0.1) * size) | (norm(optimum) == 0)

    def least_excess_risk(self, network: LinearNetwork | Array) -> Float[Array, ""] | float:
        """Return the least excess risk of a network whose `largest_rank` is known, NaN for others.

        That is what the best regressor of this rank leaves: the squares of all further singular values of Σ^½w*
        (Eckart and Young 1936). It has no other local minimum (Lu and Kawaguchi 2017, arXiv:1702.08580, theorem 2.3).
        """
        rank = network.largest_rank() if isinstance(network, LinearNetwork) else None
        if rank is None:
            return float("nan")
        if self.optimum.ndim == 1 or rank >= min(self.optimum.shape):
            return jnp.zeros((), self.optimum.dtype)
        singular = jnp.linalg.svd(self.root @ self.optimum, compute_uv=False)
        return jnp.sum(singular[rank:] ** 2)

    def null_risk(self, network: LinearNetwork | Array) -> Float[Array, ""]:
        """Return the risk of the regressor zero."""
        return self(jnp.zeros_like(self.optimum))

    def sample_count(self) -> int | None:
        """Return n where samples are kept, else `None`."""
        return None if self.samples is None else self.samples.sample_count()

    def subsample(self, chosen: Int[Array, " batch"]) -> EmpiricalRisk | None:
        """Return the risk on the samples of these numbers, `None` where they are not kept."""
        return None if self.samples is None else self.samples.subsample(chosen)

    def sample_risks(self, network: LinearNetwork) -> Float[Array, " n"]:
        """Return the squared error of each sample, one NaN where they are not kept."""
        return super().sample_risks(network) if self.samples is None else self.samples.sample_risks(network)

    def with_label_noise(self, key: PRNGKeyArray, deviation: Float[Array, ""] | float) -> EmpiricalRisk | None:
        """Return the risk with independent noise N(0, deviation²) on all labels, `None` where they are not kept."""
        return None if self.samples is None else self.samples.with_label_noise(key, deviation)

    def _flat_root(self) -> Float[Array, "rows columns"]:
        """Return the root of Σ as it acts on a regressor written as one vector."""
        columns = self.optimum.size // self.features
        return jnp.kron(self.root, jnp.eye(columns, dtype=self.root.dtype)) if columns > 1 else self.root

    def _regressor(self, network: LinearNetwork | Array) -> Array:
        regressor = network if isinstance(network, jax.Array | np.ndarray) else _linear(network).regressor()
        if regressor.shape != self.optimum.shape:
            raise ValueError(
                f"the network has a regressor of shape {regressor.shape}, but the data have {self.features} features "
                f"and a regressor of shape {self.optimum.shape}: make the first and last widths fit"
            )
        return regressor


def _linear(network: object) -> LinearNetwork:
    if not isinstance(network, LinearNetwork):
        raise TypeError(
            f"LinearRegression needs a linear network with a regressor(), got {type(network).__name__}: "
            "use EmpiricalRisk(X, y) for any other model, or make yours a subclass of flowsim.networks.LinearNetwork"
        )
    return network
