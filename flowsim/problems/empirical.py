"""The empirical risk of any model."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree
from numpy.typing import ArrayLike


def squared_error(prediction: Array, target: Array) -> Float[Array, ""]:
    """Return ‖prediction − target‖² of one sample, with no factor ½."""
    return jnp.sum((prediction - target) ** 2)


class EmpiricalRisk(eqx.Module):
    """The risk R = (1/n) Σ_i loss(network(x_i), y_i) of any Equinox model that maps one sample.

    `X` is (n, …) and `y` is (n,) or (n, m); `loss(prediction, target)` returns a scalar for one sample. Its
    minimum is in general unknown: then excess risks are NaN. Give `minimal_risk` where it is known. Raises
    `ValueError` for shapes that do not fit.
    """

    X: Float[Array, "n ..."]
    y: Array
    minimal_risk: Float[Array, ""]
    loss: Callable[[Array, Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        loss: Callable[[Array, Array], Array] = squared_error,
        *,
        minimal_risk: float = float("nan"),
    ):
        X, y = (array if isinstance(array, jax.Array) else np.asarray(array) for array in (X, y))
        if X.ndim < 2 or y.ndim < 1 or X.shape[0] != y.shape[0] or X.shape[0] == 0:
            raise ValueError(
                f"expected X of shape (n, …) and y of shape (n, …) with n ≥ 1, got {X.shape} and {y.shape}"
            )
        dtype = jnp.result_type(float)
        self.X = jnp.asarray(X, dtype)
        self.y = jnp.asarray(y, dtype) if jnp.issubdtype(y.dtype, jnp.floating) else jnp.asarray(y)
        self.minimal_risk = jnp.asarray(minimal_risk, dtype)
        self.loss = loss

    def __call__(self, network: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return the risk R of a network."""
        return jnp.mean(jax.vmap(self._sample_loss, in_axes=(None, 0, 0))(network, self.X, self.y))

    def excess_risk(self, network: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return R − R_min, NaN if the minimum is unknown."""
        return self(network) - self.minimal_risk

    def objective(self, network: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return what the flow descends: the risk."""
        return self(network)

    def squared_distance(self, network: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return NaN: there is no regressor to be at a distance from."""
        return jnp.full((), jnp.nan, self.X.dtype)

    def curved_outputs(self, network: Callable[[Array], Array]) -> Callable[[Callable], Float[Array, " m"]]:
        """Return the predictions of all samples, each scaled by a root of its loss's second derivative at `network`.

        The Jacobian G of that function at `network` gives the Gauss–Newton matrix GᵀG, with one row for each
        predicted number. Where a loss is not convex its curvature counts as zero.
        """
        roots = jax.vmap(partial(self._loss_root, network))(self.X, self.y)

        def outputs(other: Callable[[Array], Array]) -> Array:
            return jnp.einsum("nab,na->nb", roots, self._predictions(other)).ravel()

        return outputs

    def output_jacobian(self, as_network: Callable[[PyTree], Callable], weights: PyTree) -> PyTree:
        """Return G at `as_network(weights)`, sample by sample: the weights with a leading axis of rows."""
        network = as_network(weights)

        def rows(x: Array, target: Array) -> PyTree:
            root = self._loss_root(network, x, target)
            return jax.jacrev(lambda moved: root.T @ as_network(moved)(x).ravel())(weights)

        by_sample = jax.vmap(rows)(self.X, self.y)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), by_sample)

    def rank(self, network: Callable[[Array], Array]) -> int:
        """Return the number of predicted numbers, all samples together."""
        return self.X.shape[0] * eqx.filter_eval_shape(network, self.X[0]).size

    def _loss_root(self, network: Callable[[Array], Array], x: Array, target: Array) -> Float[Array, "outputs outputs"]:
        """Return a matrix B with BBᵀ the second derivative of one sample's share of the risk in its prediction."""
        prediction = network(x)
        curvature = jax.hessian(lambda z: self._paired_loss(z.reshape(prediction.shape), target))(prediction.ravel())
        slack = 10 * jnp.finfo(curvature.dtype).eps * jnp.trace(curvature)
        root = jnp.linalg.cholesky(curvature + slack * jnp.eye(prediction.size, dtype=curvature.dtype))
        return jnp.where(jnp.isfinite(root), root, 0) / self.X.shape[0] ** 0.5

    def is_minimum(self, network: Callable[[Array], Array], gradient_norm: float) -> Bool[Array, ""]:
        """Tell whether a point where ‖∇R(W)‖ ≤ `gradient_norm` is a minimizer rather than a saddle or a plateau.

        Near the zero network the Jacobian J of the predictions vanishes, and with it ∇R = Jᵀg, while the slope g of the
        risk in the predictions does not. A point counts as a minimizer if ‖g‖ ≤ √gradient_norm ‖g(0)‖, g(0) being the
        slope at zero predictions, or if ‖Jᵀg‖ ≤ √gradient_norm ‖Jᵀu‖ for a random u as long as g.
        """
        arrays, rest = eqx.partition(network, eqx.is_inexact_array)
        outputs, pull = jax.vjp(lambda moved: self._predictions(eqx.combine(moved, rest)), arrays)
        slope = jax.grad(self._risk_of)(outputs)
        random = jax.random.normal(jax.random.key(0), outputs.shape, outputs.dtype)
        random = random * jnp.linalg.norm(slope) / jnp.linalg.norm(random)
        here, usual = (_length(pull(direction)) for direction in (slope, random))
        allowed = jnp.minimum(jnp.sqrt(gradient_norm), 0.1)
        at_zero = jnp.linalg.norm(jax.grad(self._risk_of)(jnp.zeros_like(outputs)))
        return (jnp.linalg.norm(slope) <= allowed * at_zero) | ((usual > 0) & (here <= allowed * usual))

    def _predictions(self, network: Callable[[Array], Array]) -> Float[Array, "n outputs"]:
        return jax.vmap(lambda x: network(x).ravel())(self.X)

    def _risk_of(self, predictions: Float[Array, "n outputs"]) -> Float[Array, ""]:
        return jnp.mean(jax.vmap(self._paired_loss)(predictions, self.y))

    def _sample_loss(self, network: Callable[[Array], Array], x: Array, target: Array) -> Array:
        return self._paired_loss(network(x), target)

    def _paired_loss(self, prediction: Array, target: Array) -> Array:
        if prediction.size == 1 and target.size == 1:
            prediction = prediction.reshape(target.shape)
        return self.loss(prediction, target)


def _length(tree: PyTree) -> Float[Array, ""]:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))
