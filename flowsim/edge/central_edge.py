"""The face of the semidefinite cone that X lies in, along the central flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import vectors
from ..curvature.eigenpair import decomposition
from .central_field import Edge, Reading, empty_rows
from .complementarity import congruence, in_basis, symmetric_basis


class Face(eqx.Module):
    """The face that X lies in: orthonormal `normals` that span T on it, and the `rank` of X.

    `departure` is the largest entry of H_U − 2/η there, and `way_back` has the coefficients of the normals in the
    shortest step that, to first order, leads back onto the edge. Rows that X leaves open are zero.
    """

    normals: PyTree
    way_back: Float[Array, " n"]
    departure: Float[Array, ""]
    rank: Int[Array, ""]

    @classmethod
    def none(cls, weights: PyTree, room: int, dtype: jnp.dtype) -> "Face":
        """Return the face of X = 0."""
        size = room * (room + 1) // 2
        return cls(empty_rows(weights, size), jnp.zeros(size, dtype), jnp.zeros((), dtype), jnp.array(0))

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
        tangents = vectors.combination(turned, jax.tree.map(lambda leaf: leaf[: len(turned)], reading.tangents))
        beyond = jnp.where(jnp.arange(count) < edge.active, edge.values[:count] - value, 0)
        departure = turned @ in_basis(jnp.diag(beyond))
        squares, columns = decomposition(vectors.gram(tangents, tangents))
        least = len(squares) * 1e3 * jnp.finfo(squares.dtype).eps * squares[-1]
        lengths = jnp.where(squares > jnp.maximum(least, 0), squares, jnp.inf) ** -0.5
        return cls(
            normals=vectors.combination(lengths[:, None] * columns.T, tangents),
            way_back=-lengths * (departure @ columns),
            departure=jnp.max(jnp.abs(departure)),
            rank=jnp.sum(there),
        )

    def back(self) -> PyTree:
        """Return the step that leads back."""
        return vectors.combination(self.way_back, self.normals)
