"""The top eigenpair of a symmetric operator, with its certificate."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from matfree import decomp

from .hessian import Operator


class Eigenpair(eqx.Module):
    """An eigenvalue estimate that carries its own certificate.

    Some eigenvalue lies within `residual` = ‖Hv − value·v‖ of `value`. `converged` says that the residual is
    below the tolerance asked for; `products` counts the Hessian–vector products that it took.
    """

    value: Float[Array, ""]
    vector: Float[Array, " p"]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    products: Int[Array, ""]


def eigenpair_dense(matrix: Float[Array, "p p"]) -> Eigenpair:
    """Return the largest algebraic eigenpair of a symmetric matrix by a full decomposition."""
    values, vectors = jnp.linalg.eigh(matrix)
    value, vector = values[-1], vectors[:, -1]
    residual = jnp.linalg.norm(matrix @ vector - value * vector)
    return Eigenpair(value, vector, residual, jnp.isfinite(value), jnp.asarray(matrix.shape[0]))


def eigenpair_lanczos(
    product: Operator,
    start: Float[Array, " p"],
    *,
    dimension: int = 32,
    rtol: float | None = None,
    max_restarts: int = 100,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of a symmetric operator by restarted Lanczos.

    Each round spans a Krylov space of `dimension` with full reorthogonalization and starts from the best
    vector of the round before. It ends when the residual is below `rtol` times the largest absolute Ritz
    value (default: the unit roundoff to the power 2/3, near what rounding allows), or after `max_restarts`
    rounds.
    """
    dimension = min(dimension, start.size)
    tolerance = jnp.finfo(start.dtype).eps ** (2 / 3) if rtol is None else rtol
    decompose = decomp.tridiag_sym(dimension, reortho="full", custom_vjp=False)

    def unfinished(state: tuple) -> Array:
        rounds, pair = state
        return ~pair.converged & (rounds < max_restarts) & jnp.isfinite(pair.value)

    def improve(state: tuple) -> tuple:
        rounds, pair = state
        basis, tridiagonal, *_ = decompose(product, pair.vector)
        vector, scale = _best_ritz_vector(jnp.asarray(basis), jnp.asarray(tridiagonal))
        image = product(vector)
        value = vector @ image
        residual = jnp.linalg.norm(image - value * vector)
        products = pair.products + dimension + 1
        return rounds + 1, Eigenpair(value, vector, residual, residual <= tolerance * scale, products)

    zero = jnp.zeros((), start.dtype)
    first = Eigenpair(zero, start, zero, jnp.array(False), jnp.array(0))
    _, pair = jax.lax.while_loop(unfinished, improve, (0, first))
    return pair


def _best_ritz_vector(
    basis: Float[Array, "k p"], tridiagonal: Float[Array, "k k"]
) -> tuple[Float[Array, " p"], Float[Array, ""]]:
    # Once the Krylov space is exhausted, as for a Hessian of low rank, the next vector is normalized rounding noise,
    # not orthogonal to the others (or 0/0). What came before is complete: the rest is put below the spectrum.
    finite = jnp.where(jnp.isfinite(tridiagonal), tridiagonal, 0)
    scale = jnp.max(jnp.sum(jnp.abs(finite), axis=1))
    coupled = jnp.abs(jnp.diagonal(tridiagonal, 1)) > jnp.sqrt(jnp.finfo(finite.dtype).eps) * scale
    valid = jnp.concatenate([jnp.array([True]), jnp.cumsum(~coupled) == 0])
    inside = jnp.where(valid[:, None] & valid[None, :], finite, 0)
    values, vectors = jnp.linalg.eigh(inside - jnp.diag(jnp.where(valid, 0, 2 * scale + 1)))
    best = vectors[:, -1] @ jnp.where(valid[:, None], basis, 0)
    return best / jnp.linalg.norm(best), jnp.max(jnp.where(values < -2 * scale, 0, jnp.abs(values)))
