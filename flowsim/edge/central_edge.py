"""The face of the semidefinite cone that X lies in, along the central flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..curvature import vectors
from ..curvature.eigenpair import decomposition
from .central_field import Edge, Reading
from .complementarity import congruence, in_basis, symmetric_basis


class Face(eqx.Module):
    """The face that X lies in, along which the edge goes, and the `rank` of X.

    `normals` has the coefficients of T in orthonormal rows that span T on the face, zeros where there is nothing, and
    `way_back` those in the shortest step that, to first order, leads back onto the edge. `departure` is the largest
    entry of H_U − 2/η there.
    """

    normals: Float[Array, "n tangents"]
    way_back: Float[Array, " tangents"]
    departure: Float[Array, ""]
    rank: Int[Array, ""]

    @classmethod
    def none(cls, reading: Reading) -> "Face":
        """Return the face of X = 0."""
        size, zero = len(reading.covariance), jnp.zeros_like(reading.slack)
        tangents = jax.tree.leaves(reading.tangents)[0].shape[0]
        normals = jnp.zeros((size * (size + 1) // 2, tangents), zero.dtype)
        return cls(normals, normals[0], zero, jnp.array(0))

    @classmethod
    def of(cls, reading: Reading, edge: Edge, value: Float[Array, ""], *, nothing: float = 1e-9) -> "Face":
        """Return the face at a point with an `edge` at this `value`.

        An eigenvalue of X below the part `nothing` of the largest counts as zero.
        """
        sizes, turn = decomposition(reading.covariance)
        count = len(sizes)
        there = (sizes > nothing * jnp.maximum(sizes[-1], 0)) & (sizes > 0)
        inside = jnp.max(jnp.abs(symmetric_basis(count)) * jnp.outer(there, there)[None], axis=(1, 2)) > 0
        # In the basis of its eigenvectors, of which those that count are kept.
        turned = jnp.where(inside[:, None], congruence(turn.T).T, 0)
        beyond = jnp.where(jnp.arange(count) < edge.active, edge.values[:count] - value, 0)
        departure = turned @ in_basis(jnp.diag(beyond))
        turned = jnp.pad(turned, ((0, 0), (0, jax.tree.leaves(reading.tangents)[0].shape[0] - len(turned))))
        gram = vectors.gram(reading.tangents, reading.tangents)
        squares, columns = decomposition(turned @ gram @ turned.T)
        least = len(squares) * 1e3 * jnp.finfo(squares.dtype).eps * squares[-1]
        lengths = jnp.where(squares > jnp.maximum(least, 0), squares, jnp.inf) ** -0.5
        normals = lengths[:, None] * (columns.T @ turned)
        way_back = -(lengths * (departure @ columns)) @ normals
        return cls(normals, way_back, jnp.max(jnp.abs(departure)), jnp.sum(there))
