"""Networks that are linear in their input, whatever they are in their weights."""

import abc

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PyTree


class LinearNetwork(eqx.Module):
    """A network x ↦ πᵀx, whose risk on least squares depends on its regressor π alone.

    To add one, subclass it, put the weights into its fields, and define `regressor`; `__call__` maps one sample. The
    abilities that follow tell `LinearRegression` more, or spare it derivatives of the regressor: a network without one
    of them returns `None`.
    """

    @abc.abstractmethod
    def __call__(self, x: Float[Array | np.ndarray, " features"], /) -> Float[Array, "*outputs"]:
        """Return the output πᵀx for one sample."""

    @abc.abstractmethod
    def regressor(self) -> Float[Array, " features"] | Float[Array, "features outputs"]:
        """Return π: (d,), or (d, m) for several outputs."""

    def regressor_jacobian(self) -> PyTree | None:
        """Return J = ∂π/∂W as the weights with a leading axis of rows, or `None`: then it is differentiated."""
        return None

    def regressor_gram(self) -> Float[Array, "m m"] | None:
        """Return JJᵀ in closed form, without forming J, or `None`."""
        return None

    def largest_rank(self) -> int | None:
        """Return the largest rank that the regressor can have, if all regressors up to it are products of free layers.

        Then every local minimum of least squares in the weights is a global one. `None` where that is not known.
        """
        return None
