"""The risk around a point as a quadratic function: what is left of the way down, and what else lies near."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from . import krylov, vectors
from .eigenpair import checked_rtol, decomposition, eigenpairs_lanczos
from .hessian import dense_hessian, hessian_product

DENSE_UP_TO = 256
_DIMENSION = 32
# Products that the certificate of the lower end may take, in rounds of a Krylov space.
_ROUNDS = 40


class Surroundings(eqx.Module):
    """The quadratic function R + gᵀv + vᵀHv/2 around a point, as far as the way of the flow from there depends on it.

    `step` is −H⁺g over all directions that curve upwards: the way to the bottom, and `gain` what the risk falls by on
    it. `leaving` is the norm of g in directions that curve downwards, along which a flow goes ever further.
    `smallest` and `largest` are the ends of the spectrum of H, and `certified` says that both are known to
    a small part of its radius.
    """

    step: PyTree
    gain: Float[Array, ""]
    leaving: Float[Array, ""]
    smallest: Float[Array, ""]
    largest: Float[Array, ""]
    certified: Bool[Array, ""]

    @property
    def radius(self) -> Float[Array, ""]:
        """The largest absolute eigenvalue."""
        return jnp.maximum(jnp.abs(self.smallest), jnp.abs(self.largest))

    @property
    def curves_down(self) -> Bool[Array, ""]:
        """Whether an eigenvalue is negative beyond what rounding, or an end not quite reached, makes of zero."""
        return self.smallest < -negligible_share(self.smallest.dtype) * self.radius


def negligible_share(dtype: jnp.dtype) -> float:
    """Return the share of the spectral radius up to which a negative eigenvalue counts as zero: 8√ε."""
    return 8 * float(jnp.finfo(dtype).eps) ** 0.5


def surroundings(
    objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree, gradient: PyTree
) -> Surroundings:
    """Return the quadratic function around `weights`, where the objective has this `gradient`.

    Up to 256 weights by a full decomposition. Beyond, the way comes from a Krylov space of g, whose smallest Ritz
    values are those of the slow directions once the fast ones have died out, and the ends of the spectrum from a
    Lanczos run of their own, which starts from random vectors.
    """
    if vectors.size_of(weights) <= DENSE_UP_TO:
        return _by_decomposition(objective, weights, gradient)
    return _by_lanczos(hessian_product(objective, weights), gradient)


def _by_decomposition(objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree, gradient: PyTree) -> Surroundings:
    values, columns = decomposition(dense_hessian(objective, weights))
    flat, unravel = ravel_pytree(gradient)
    step, gain, leaving = _way(values, columns.T @ flat)
    finite = jnp.all(jnp.isfinite(values))
    return Surroundings(unravel(columns @ step), gain, leaving, values[0], values[-1], finite)


def _by_lanczos(product: Callable[[PyTree], PyTree], gradient: PyTree) -> Surroundings:
    start = jax.tree.map(lambda leaf: leaf[None], gradient)
    space = krylov.begin(start, _DIMENSION)
    space = jax.lax.fori_loop(0, _DIMENSION, lambda _, wider: krylov.widened(product, wider), space)
    values, ritz = decomposition(space.projection())
    step, gain, leaving = _way(values, vectors.norm(gradient) * ritz[0])
    basis = jax.tree.map(lambda leaf: leaf[:_DIMENSION], space.basis)
    dtype = vectors.dtype_of(gradient)
    rtol = max(negligible_share(dtype) / 2, checked_rtol(None, dtype))
    random = jax.tree.map(lambda leaf: leaf[None], vectors.scattered_like(gradient, 0))
    ends = eigenpairs_lanczos(product, random, largest=1, smallest=1, rtol=rtol, max_restarts=_ROUNDS)
    return Surroundings(
        step=vectors.combination(ritz @ step, basis),
        gain=gain,
        leaving=leaving,
        smallest=jnp.minimum(ends.values[1], values[0]),
        largest=jnp.maximum(ends.values[0], values[-1]),
        certified=jnp.all(ends.converged),
    )


def _way(values: Float[Array, " k"], slope: Float[Array, " k"]) -> tuple[Array, Array, Array]:
    """Return, in eigenvectors, the step to the bottom, what it gains, and the slope in directions that curve down."""
    radius = jnp.max(jnp.abs(values))
    epsilon = jnp.finfo(values.dtype).eps
    upwards = values > epsilon * len(values) * radius
    downwards = values < -negligible_share(values.dtype) * radius
    step = jnp.where(upwards, -slope / jnp.where(upwards, values, 1), 0)
    return step, -jnp.sum(slope * step) / 2, jnp.linalg.norm(jnp.where(downwards, slope, 0))
