"""The risk around a point as a quadratic function: what is left of the way down, and which directions are flat."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from . import krylov, vectors
from .eigenpair import Eigenpairs, decomposition, eigenpairs_dense, eigenpairs_lanczos
from .hessian import DENSE_UP_TO, dense_hessian, hessian_product

_DIMENSION = 32
# Roundings in an entry of a Hessian, as of a mean of samples of a network a few layers deep.
_ROUNDINGS = 32
# Krylov spaces that the certificate of both ends may take.
_ROUNDS = 40

Objective = Callable[[PyTree], Float[Array, ""]]


class Surroundings(eqx.Module):
    """The quadratic function R + gᵀv + vᵀHv/2 around a point in `values` and vectors of H, in increasing order.

    Up to 256 weights these are all eigenvalues. Beyond, they are the Ritz values of a Krylov space of g, whose smallest
    are those of the slow directions once the fast ones have died out. The vectors are the `columns`, of flattened
    weights or, where there is one, of the `frame`, orthonormal rows.
    """

    values: Float[Array, " k"]
    columns: Float[Array, "m k"]
    frame: PyTree
    like: PyTree

    @property
    def radius(self) -> Float[Array, ""]:
        """The largest absolute value."""
        return jnp.max(jnp.abs(self.values))

    @property
    def upwards(self) -> Array:
        """Which directions curve upwards by more than rounding makes of zero."""
        return self.values > self.rounded_zero(self.radius)

    def rounded_zero(self, radius: Float[Array, ""]) -> Float[Array, ""]:
        """Return what rounding makes of an eigenvalue zero beside one of size `radius`.

        Each entry of H is off by a few roundings, and an eigenvalue by those of all.
        """
        return jnp.finfo(radius.dtype).eps * (len(self.values) + _ROUNDINGS) * radius

    def falls_off(self) -> Bool[Array, ""]:
        """Tell whether some direction curves downwards visibly, by a hundredth of the largest value, as at a saddle."""
        return self.values[0] < -0.01 * self.radius

    @property
    def complete(self) -> bool:
        """Whether the vectors span all directions."""
        return self.frame is None

    def coordinates(self, vector: PyTree) -> Float[Array, " k"]:
        """Return the components of a vector, such as g, in the directions."""
        known = ravel_pytree(vector)[0] if self.frame is None else vectors.inner_products(self.frame, vector)
        return self.columns.T @ known

    def vector(self, coordinates: Float[Array, " k"]) -> PyTree:
        """Return the vector that has these components."""
        mixed = self.columns @ coordinates
        return ravel_pytree(self.like)[1](mixed) if self.frame is None else vectors.combination(mixed, self.frame)


def surroundings(objective: Objective, weights: PyTree, gradient: PyTree) -> Surroundings:
    """Return the quadratic function around `weights`, where the objective has this `gradient`."""
    if vectors.size_of(weights) <= DENSE_UP_TO:
        values, columns = decomposition(dense_hessian(objective, weights))
        return Surroundings(values, columns, None, weights)
    product = hessian_product(objective, weights)
    space = krylov.begin(jax.tree.map(lambda leaf: leaf[None], gradient), _DIMENSION)
    space = jax.lax.fori_loop(0, _DIMENSION, lambda _, wider: krylov.widened(product, wider), space)
    values, ritz = decomposition(space.projection())
    # The row that waits counts nothing; a basis without it would be a copy.
    return Surroundings(values, jnp.pad(ritz, ((0, 1), (0, 0))), space.basis, weights)


def both_ends(objective: Objective, weights: PyTree) -> Eigenpairs:
    """Return the largest and the smallest eigenvalue of the Hessian, each with a residual that bounds its error.

    Up to 256 weights by a full decomposition, beyond by a Lanczos run to the residual √ε/8 times the largest.
    """
    if vectors.size_of(weights) > DENSE_UP_TO:
        start = jax.tree.map(lambda leaf: leaf[None], vectors.scattered_like(weights, 0))
        rtol = float(jnp.finfo(vectors.dtype_of(weights)).eps) ** 0.5 / 8
        product = hessian_product(objective, weights)
        return eigenpairs_lanczos(product, start, largest=1, smallest=1, rtol=rtol, max_restarts=_ROUNDS)
    flat, unravel = ravel_pytree(weights)
    pairs = eigenpairs_dense(dense_hessian(objective, weights), largest=min(1, len(flat) - 1), smallest=1)
    return eqx.tree_at(lambda found: found.vectors, pairs, jax.vmap(unravel)(pairs.vectors))
