"""What a linearly implicit step of the central flow takes for the derivative of its field."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import vectors
from ..curvature.eigenpair import decomposition
from .central_field import empty_rows


class CentralCurvature(eqx.Module):
    """An approximation of −∂F/∂W for the central flow, with a cheap resolvent.

    With A near the Hessian, and P the projection onto the `normals` N, orthonormal rows that span what the eigenvalues
    at the edge cannot follow: −∂F/∂W ≈ (I − P)(A + C) + P/τ. Along the edge the gradient flow goes on, and across it a
    departure fades within the `relaxation` τ. C is what makes the edge bend: ½⟨∇²H_U, X⟩, of which the part that is
    known grows without bound where another eigenvalue comes near.

    (I − P)(A + C) = VᵀΛV + VᵀKN for the rows V `along` the edge, orthonormal and at right angles to N; Λ are the
    `stiffnesses` along them, and K is the `push`. Rows of zeros count for nothing.
    """

    along: PyTree
    stiffnesses: Float[Array, " m"]
    push: Float[Array, "m n"]
    normals: PyTree
    relaxation: Float[Array, ""]

    @classmethod
    def none(cls, weights: PyTree, along: int, normals: int, relaxation: Float[Array, ""]) -> "CentralCurvature":
        """Return zero, with room for so many rows."""
        zeros = jnp.zeros((along, normals), relaxation.dtype)
        return cls(empty_rows(weights, along), zeros[:, 0], zeros, empty_rows(weights, normals), relaxation)

    @classmethod
    def of(cls, rows: PyTree, normals: PyTree, count: int, relaxation: Float[Array, ""]) -> "CentralCurvature":
        """Return it for the `rows` of a root of A + C, of which the `count` stiffest directions are kept."""
        mixed = vectors.gram(rows, normals)
        tangent = vectors.difference(rows, vectors.combination(mixed, normals))
        values, columns = decomposition(vectors.gram(tangent, tangent))
        values, turn = values[::-1][:count], columns.T[::-1][:count]
        # Below half of the digits of the largest, rounding leaves the rows neither orthonormal nor along the edge.
        large = values > jnp.finfo(values.dtype).eps ** 0.5 * values[0]
        stiffnesses, inverse_roots = jnp.where(large, values, 0), jnp.where(large, values, jnp.inf) ** -0.5
        along = vectors.combination(inverse_roots[:, None] * turn, tangent)
        along, normals = (vectors.pruned(rows, float(jnp.finfo(values.dtype).eps)) for rows in (along, normals))
        return cls(along, stiffnesses, jnp.sqrt(stiffnesses)[:, None] * (turn @ mixed), normals, relaxation)

    def resolvent(self, h: Float[Array, ""], vector: PyTree) -> PyTree:
        """Return (I + h(I − P)(A + C) + hP/τ)⁻¹ times a vector."""
        along, across = (vectors.inner_products(rows, vector) for rows in (self.along, self.normals))
        faded = across / (1 + h / self.relaxation)
        damped = (along - h * self.push @ faded) / (1 + h * self.stiffnesses)
        changes = vectors.combination(damped - along, self.along), vectors.combination(faded - across, self.normals)
        return jax.tree.map(lambda *terms: vectors.sum_of(terms), vector, *changes)
