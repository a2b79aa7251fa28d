"""The risk around a point as a quadratic function: what is left of the way down, and what else lies near."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from . import krylov, vectors
from .eigenpair import decomposition, eigenpairs_lanczos
from .hessian import DENSE_UP_TO, dense_hessian, hessian_product

_DIMENSION = 32
# Krylov spaces that the certificate of both ends may take.
_ROUNDS = 40


class Surroundings(eqx.Module):
    """The quadratic function R + gᵀv + vᵀHv/2 around a point, as far as the way of the flow from there depends on it.

    `step` is −H⁺g over all directions that curve upwards: the way to the bottom, `fast` its part in those of which the
    curvature is well known, and `gain` what the risk falls by on it. `leaving` is the norm of g in directions that
    curve downwards, along which a flow goes ever further, and `curves_down` says whether there are any. `radius` is the
    largest absolute eigenvalue of H, and `certified` says that both ends of its spectrum are known to a small part of
    it.
    """

    step: PyTree
    fast: PyTree
    gain: Float[Array, ""]
    leaving: Float[Array, ""]
    curves_down: Bool[Array, ""]
    radius: Float[Array, ""]
    certified: Bool[Array, ""]


def negligible_share(dtype: jnp.dtype) -> float:
    """Return the share of the spectral radius up to which a negative eigenvalue counts as zero: 8√ε.

    So much do rounding, and an end that is not quite reached, make of zero.
    """
    return 8 * float(jnp.finfo(dtype).eps) ** 0.5


def surroundings(
    objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree, gradient: PyTree, *, precision: jnp.dtype
) -> Surroundings:
    """Return the quadratic function around `weights`, where the objective has this `gradient`.

    `precision` is that in which the weights were found, if they are given in a higher one. Up to 256 weights by a full
    decomposition. Beyond, the way comes from a Krylov space of g, whose smallest Ritz values are those of the slow
    directions once the fast ones have died out, and the ends of the spectrum from a Lanczos run of its own.
    """
    if vectors.size_of(weights) <= DENSE_UP_TO:
        return _by_decomposition(objective, weights, gradient, negligible_share(precision))
    return _by_lanczos(hessian_product(objective, weights), gradient, negligible_share(precision))


def _by_decomposition(
    objective: Callable[[PyTree], Float[Array, ""]], weights: PyTree, gradient: PyTree, share: float
) -> Surroundings:
    values, columns = decomposition(dense_hessian(objective, weights))
    flat, unravel = ravel_pytree(gradient)
    step, fast, gain, leaving = _way(values, columns.T @ flat, share)
    radius = jnp.max(jnp.abs(values))
    return Surroundings(
        step=unravel(columns @ step),
        fast=unravel(columns @ fast),
        gain=gain,
        leaving=leaving,
        curves_down=values[0] < -share * radius,
        radius=radius,
        certified=jnp.all(jnp.isfinite(values)),
    )


def _by_lanczos(product: Callable[[PyTree], PyTree], gradient: PyTree, share: float) -> Surroundings:
    space = krylov.begin(jax.tree.map(lambda leaf: leaf[None], gradient), _DIMENSION)
    space = jax.lax.fori_loop(0, _DIMENSION, lambda _, wider: krylov.widened(product, wider), space)
    values, ritz = decomposition(space.projection())
    step, fast, gain, leaving = _way(values, vectors.norm(gradient) * ritz[0], share)
    # The row that waits counts nothing; a basis without it would be a copy.
    step, fast = (vectors.combination(jnp.append(ritz @ part, 0), space.basis) for part in (step, fast))
    random = jax.tree.map(_after, vectors.scattered_like(gradient, 0), step, fast)
    ends = eigenpairs_lanczos(product, random, largest=1, smallest=1, rtol=share / 2, max_restarts=_ROUNDS)
    known = jnp.concatenate([ends.values, values])
    radius = jnp.max(jnp.abs(known))
    return Surroundings(
        step=step,
        fast=fast,
        gain=gain,
        leaving=leaving,
        curves_down=jnp.min(known) < -share * radius,
        radius=radius,
        certified=jnp.all(ends.converged),
    )


def _after(vector: Array, *earlier: Array) -> Array:
    """Return a row of the vector itself, known only once the others are: two spaces at once take twice the memory."""
    nothing = sum(jnp.where(jnp.isfinite(other), 0 * other, 0) for other in earlier)
    return (vector + nothing)[None]


def _way(values: Float[Array, " k"], slope: Float[Array, " k"], share: float) -> tuple[Array, Array, Array, Array]:
    """Return, in eigenvectors, the step, its fast part, what it gains, and the norm of the slope that leaves."""
    radius = jnp.max(jnp.abs(values))
    upwards = values > jnp.finfo(values.dtype).eps * len(values) * radius
    step = jnp.where(upwards, -slope / jnp.where(upwards, values, 1), 0)
    fast = jnp.where(values > share * radius, step, 0)
    leaving = jnp.linalg.norm(jnp.where(values < -share * radius, slope, 0))
    return step, fast, -jnp.sum(slope * step) / 2, leaving
