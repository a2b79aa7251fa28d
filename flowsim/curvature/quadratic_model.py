"""The local quadratic model of a risk: how far its minimizer is, and which directions are flat."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from . import krylov, vectors
from .eigenpair import Eigenpairs, decomposition, eigenpairs_dense, eigenpairs_lanczos
from .hessian import Objective, dense_hessian, hessian_product, is_decomposed


class LocalQuadraticModel(eqx.Module):
    """The local quadratic model R + gᵀv + vᵀHv/2 at a point: eigenvalues and eigenvectors of H, in increasing order.

    Up to 256 weights these are all eigenvalues. Beyond, they are the Ritz values of a Krylov space of g, whose smallest
    are those of the slow directions once the fast ones have died out.
    """

    values: Float[Array, " k"]
    """The eigenvalues."""
    columns: Float[Array, "m k"]
    """The vectors: of flattened weights or, where there is one, of the frame."""
    frame: PyTree
    """Orthonormal rows, which are weights; `None` where the columns are of all weights."""
    like: PyTree
    """Weights, whose shapes flattened ones take again."""

    @property
    def radius(self) -> Float[Array, ""]:
        """The largest absolute value."""
        return jnp.max(jnp.abs(self.values))

    @property
    def upwards(self) -> Array:
        """Which directions have positive curvature, beyond the rounding error of zero."""
        return self.values > self.rounded_zero(self.radius)

    def rounded_zero(self, radius: Float[Array, ""], *, roundings: int = 32) -> Float[Array, ""]:
        """Return the rounding error of an eigenvalue zero of a matrix of spectral radius `radius`.

        Each entry of H is a mean over samples of a network a few layers deep, and off by some `roundings`; an
        eigenvalue by those of all entries.
        """
        return jnp.finfo(radius.dtype).eps * (len(self.values) + roundings) * radius

    def falls_off(self) -> Bool[Array, ""]:
        """Tell whether some curvature is negative, by a hundredth of the largest absolute value, as at a saddle."""
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


def local_quadratic_model(
    objective: Objective, weights: PyTree, gradient: PyTree, *, dimension: int = 32
) -> LocalQuadraticModel:
    """Return the local quadratic model of an objective at some weights.

    Args:
        objective: The function of the weights.
        weights: The point of the model.
        gradient: The gradient of the objective there.
        dimension: That of the Krylov space which represents the Hessian of more than 256 weights.

    Returns:
        The eigenvalues and eigenvectors of the model.
    """
    if is_decomposed(weights):
        values, columns = decomposition(dense_hessian(objective, weights))
        return LocalQuadraticModel(values, columns, None, weights)
    product = hessian_product(objective, weights)
    space = krylov.krylov_space(product, jax.tree.map(lambda leaf: leaf[None], gradient), dimension)
    values, ritz = decomposition(space.projection())
    # The row that is not multiplied yet has weight zero; a basis without it would be a copy.
    return LocalQuadraticModel(values, jnp.pad(ritz, ((0, 1), (0, 0))), space.basis, weights)


def extreme_eigenpairs(objective: Objective, weights: PyTree, *, max_restarts: int = 40) -> Eigenpairs:
    """Return the largest and the smallest eigenvalue of the Hessian, each with a residual that bounds its error.

    Up to 256 weights by a full decomposition, beyond by a Lanczos run to the residual √ε/8 times the largest.

    Args:
        objective: The function of the weights.
        weights: Where its Hessian is taken.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        Both eigenpairs, the largest first; of a single weight, its one.
    """
    if not is_decomposed(weights):
        start = jax.tree.map(lambda leaf: leaf[None], vectors.scattered_like(weights, 0))
        rtol = float(jnp.finfo(vectors.dtype_of(weights)).eps) ** 0.5 / 8
        product = hessian_product(objective, weights)
        return eigenpairs_lanczos(product, start, largest=1, smallest=1, rtol=rtol, max_restarts=max_restarts)
    flat, unravel = ravel_pytree(weights)
    pairs = eigenpairs_dense(dense_hessian(objective, weights), largest=min(1, len(flat) - 1), smallest=1)
    return replace(pairs, vectors=jax.vmap(unravel)(pairs.vectors))
