"""What the Gauss–Newton matrix leaves out of the Hessian, where it curves most."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from . import vectors
from .eigenpair import decomposition

# Entries of all directions up to which their products are taken at once.
_TOGETHER = 2**17


class ResidualCurvature(eqx.Module):
    """The part of C = H − GᵀG, residuals times second derivatives of the outputs, that curves most.

    It is RᵀR, with `rows` R: C on its eigenvectors of largest absolute eigenvalue, those below zero left out. They are
    followed along a path by subspace iteration: a look takes one product with C for each of the orthonormal
    `directions`, which turns these towards the eigenvectors. `size` is the length of the longest product, a lower bound
    of the norm of C. Rows and directions are the weights with a leading axis.
    """

    rows: PyTree
    directions: PyTree
    size: Float[Array, ""]

    @classmethod
    def unknown(cls, weights: PyTree, count: int) -> "ResidualCurvature":
        """Return what is known before the first look, for `count` directions, as many as weights at most.

        They are odd functions of the weights, entry by entry: hidden units that are equal, which a flow keeps so, are
        equal in every direction too. Random ones would lead a flow off a saddle at which it comes to rest.
        """
        count, unit = min(count, vectors.size_of(weights)), vectors.peak(weights)
        rows = jax.tree.map(lambda leaf: _odd_chebyshev(leaf, count), vectors.divided(weights, unit))
        directions = _orthonormal(rows)
        return cls(jax.tree.map(jnp.zeros_like, directions), directions, jnp.zeros((), vectors.dtype_of(weights)))

    def looked_at(self, product: Callable[[PyTree], PyTree]) -> "ResidualCurvature":
        """Return what is known after one more look, `product` being v ↦ Cv."""
        together = vectors.size_of(self.directions) <= _TOGETHER
        images = (jax.vmap(product) if together else lambda rows: jax.lax.map(product, rows))(self.directions)
        projected = vectors.gram(self.directions, images)
        values, turn = decomposition((projected + projected.T) / 2)
        towards, images = (vectors.combination(turn.T, rows) for rows in (self.directions, images))
        lengths = jax.vmap(vectors.norm)(images)
        # Where C does nothing to a direction now, it may later.
        share = jnp.where(lengths > 0, 1 / jnp.where(lengths > 0, lengths, 1), 0)
        turned = jax.tree.map(jnp.add, _times(share, images), _times(jnp.where(lengths > 0, 0.0, 1.0), towards))
        rows = _times(jnp.sqrt(jnp.maximum(values, 0)), towards)
        return ResidualCurvature(rows, _orthonormal(turned), jnp.max(lengths))


def _odd_chebyshev(x: Array, count: int) -> Float[Array, "count ..."]:
    """Return the Chebyshev polynomials T₁, T₃, T₅, … of every entry, in rows."""
    before, rows = x, [x]
    for _ in range(count - 1):
        before, rows = rows[-1], [*rows, (4 * x**2 - 2) * rows[-1] - before]
    return jnp.stack(rows)


def _orthonormal(rows: PyTree) -> PyTree:
    """Return orthonormal rows that span what `rows` do, which are of like lengths; rounding may leave some shorter."""
    gram = vectors.gram(rows, rows)
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    # Weights that are all zero have no directions, and rows of zeros stay what they are.
    slack = jnp.where(jnp.trace(gram) > 0, 10 * jnp.finfo(gram.dtype).eps * jnp.trace(gram), 1)
    lower = jnp.linalg.cholesky(gram + slack * identity)
    return vectors.combination(jax.scipy.linalg.solve_triangular(lower, identity, lower=True), rows)


def _times(factors: Float[Array, " k"], rows: PyTree) -> PyTree:
    return jax.vmap(vectors.scaled)(factors, rows)
