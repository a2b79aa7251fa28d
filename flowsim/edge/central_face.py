"""The face of the semidefinite cone on which the central flow slides, and the way back to it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import vectors
from ..curvature.eigenpair import decomposition
from ..solvers.work import Work, no_work
from .central_field import CentralField, Edge, Reading
from .complementarity import in_basis, symmetric_basis

# Below this part of the largest, an eigenvalue of X counts as zero.
_NOTHING = 1e-9
_PROJECTIONS = 4


class Face(eqx.Module):
    """The face of the semidefinite cone that X lies in: T on it, in rows, and by how much H_U − 2/η departs there.

    `inside` tells the rows that count, of which `gram` is B.
    """

    tangents: PyTree
    gram: Float[Array, "n n"]
    departure: Float[Array, " n"]
    inside: Float[Array, " n"]
    rank: Int[Array, ""]

    @classmethod
    def of(cls, reading: Reading, active: Int[Array, ""], edge: Float[Array, ""]) -> "Face":
        """Return the face at a point with so many `active` eigenvalues at the `edge`."""
        weights, turn = decomposition(reading.covariance)
        weights, turn = weights[::-1], turn[:, ::-1]
        count = len(weights)
        basis = jnp.asarray(symmetric_basis(count), weights.dtype)
        there = jnp.where(weights > _NOTHING * jnp.maximum(weights[0], 0), 1.0, 0.0) * (weights > 0)
        inside = jnp.max(jnp.abs(basis) * jnp.outer(there, there)[None], axis=(1, 2)) > 0
        congruence = jax.vmap(lambda matrix: in_basis(turn.T @ matrix @ turn))(basis).T
        tangents = vectors.combination(congruence, reading.tangents)
        beyond = jnp.where(jnp.arange(count) < active, reading.values[:count] - edge, 0)
        departure = jnp.where(inside, congruence @ in_basis(jnp.diag(beyond)), 0)
        gram = vectors.gram(tangents, tangents) / 2
        gram = jnp.where(inside[:, None] & inside[None], gram, 0)
        return cls(tangents, gram, departure, inside.astype(weights.dtype), jnp.sum(there).astype(int))

    def way_back(self) -> PyTree:
        """Return the shortest way to where, to first order, nothing departs."""
        units = jnp.diag(1 - self.inside) * jnp.max(jnp.diag(self.gram), initial=1)
        ridge = 512 * jnp.finfo(self.gram.dtype).eps * jnp.max(jnp.diag(self.gram))
        system = self.gram + units + ridge * jnp.eye(len(self.inside), dtype=self.gram.dtype)
        return vectors.combination(-jnp.linalg.solve(system, self.departure) / 2, self.tangents)

    def normals(self) -> PyTree:
        """Return orthonormal rows that span T on the face, the others zero."""
        values, columns = decomposition(2 * self.gram)
        least = len(values) * 1e3 * jnp.finfo(values.dtype).eps * values[-1]
        lengths = jnp.where(values > jnp.maximum(least, 0), values, jnp.inf) ** -0.5
        return vectors.combination(lengths[:, None] * columns.T, self.tangents)


def projected(
    field: CentralField, y: PyTree, edge: Edge, bounds: tuple[Float[Array, ""], Float[Array, ""]]
) -> tuple[PyTree, Reading, Work]:
    """Return the point next to `y` at which what X holds is at the edge, and the field there; by Newton's method.

    What departs from the edge by less than the first of the `bounds` stays, and by more than the second.
    """
    near, far = bounds

    def read_and_move(state: tuple) -> tuple:
        y, reading, way, _, work, tries = state
        y = jax.tree.map(jnp.add, y, way)
        reading = eqx.tree_at(lambda f: f.edge, field, with_vectors(edge, reading)).reading(y)
        face = Face.of(reading, edge.active, 2 / field.learning_rate)
        departure = jnp.max(jnp.abs(face.departure), initial=0)
        again = (departure > near) & (departure < far)
        return y, reading, face.way_back(), again, work + Work(jnp.array(1), reading.products), tries + 1

    nowhere = jax.tree.map(jnp.zeros_like, y)
    begin = (y, _unread(y, edge, field.most), nowhere, jnp.array(True), no_work(), jnp.array(0))
    y, reading, _, _, work, _ = jax.lax.while_loop(lambda s: s[3] & (s[5] <= _PROJECTIONS), read_and_move, begin)
    return y, reading, work


def _unread(y: PyTree, edge: Edge, most: int) -> Reading:
    """Return a reading of nothing but the spectrum."""
    count = edge.room(most)
    zero = jnp.zeros((), edge.values.dtype)
    tangents = jax.tree.map(lambda leaf: jnp.zeros((count * (count + 1) // 2, *leaf.shape), leaf.dtype), y)
    return Reading(
        slope=y,
        objective=zero,
        gradient_norm=zero,
        vectors=edge.vectors,
        values=edge.values,
        covariance=jnp.zeros((count, count), zero.dtype),
        slack=zero,
        tangents=tangents,
        products=jnp.array(0),
    )


def with_vectors(edge: Edge, reading: Reading) -> Edge:
    """Return the spectrum with the vectors of a reading, which refines those that are near."""
    near = jnp.arange(len(edge.values)) < edge.near

    def of(old: Array, new: Array) -> Array:
        return jnp.where(near.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    found = jax.tree.map(of, edge.vectors, reading.vectors)
    return eqx.tree_at(lambda e: (e.vectors, e.values), edge, (found, of(edge.values, reading.values)))
