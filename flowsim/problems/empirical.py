"""The empirical risk of any model."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
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

    def is_minimum(self, network: Callable[[Array], Array], gradient_norm: float) -> Bool[Array, ""]:
        """Return whether `gradient_norm` is more than zero.

        First derivatives do not tell a saddle from a minimizer here, but a gradient that vanishes exactly, as that of
        the zero network does, is not taken for a minimum.
        """
        return jnp.asarray(gradient_norm) > 0

    def _sample_loss(self, network: Callable[[Array], Array], x: Array, target: Array) -> Array:
        prediction = network(x)
        if prediction.size == 1 and target.size == 1:
            prediction = prediction.reshape(target.shape)
        return self.loss(prediction, target)
