"""The part of a Hessian that curves upwards most, of low rank, from products alone."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from . import krylov, vectors
from .eigenpair import decomposition
from .gauss_newton import GaussNewton


def dominant_curvature(product: Callable[[PyTree], PyTree], start: PyTree, dimension: int) -> GaussNewton:
    """Return A = GᵀG, the positive part of a symmetric operator on a Krylov space of the rows of `start`.

    Its largest Ritz pairs are those of the operator, nearly, after few products; of the others A knows some average.
    `product` maps a pytree to one of the same structure, `start` has a leading axis of rows. Costs `dimension` products
    and some 2·dimension vectors.
    """
    dimension = min(dimension, vectors.size_of(start) // jax.tree.leaves(start)[0].shape[0])
    space = krylov.begin(start, dimension)
    space = jax.lax.fori_loop(0, dimension, lambda _, wider: krylov.widened(product, wider), space)
    values, ritz = decomposition(space.projection())
    return GaussNewton.of_rows(_rows(values, ritz, space), dimension)


def _rows(
    values: Float[Array, " dimension"], ritz: Float[Array, "dimension dimension"], space: krylov.Krylov
) -> PyTree:
    basis = jax.tree.map(lambda leaf: leaf[: len(values)], space.basis)
    return vectors.combination(jnp.sqrt(jnp.maximum(values, 0))[:, None] * ritz.T, basis)
