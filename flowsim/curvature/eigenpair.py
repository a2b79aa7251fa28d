"""The top eigenpair of a symmetric operator, with its certificate."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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


class _Krylov(eqx.Module):
    """Orthonormal vectors v_0, …, v_m as rows, and the projection VHVᵀ of the operator on the first m of them."""

    basis: Float[Array, "m+1 p"]
    projection: Float[Array, "m m"]


def eigenpair_lanczos(
    product: Operator,
    start: Float[Array, " p"],
    *,
    dimension: int = 24,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> Eigenpair:
    """Return the largest algebraic eigenpair of a symmetric operator by thick-restart Lanczos.

    Each round widens a Krylov space to `dimension` vectors with full reorthogonalization, and keeps the best
    third of its Ritz vectors for the next: a single vector would stagnate where the top of the spectrum is
    crowded (Wu and Simon 2000). It ends when the residual, computed from the vector itself, is below `rtol`
    times the largest absolute Ritz value (default: the unit roundoff to the power 2/3, near what rounding
    allows), or after `max_restarts` rounds.
    """
    dimension = min(dimension, start.size)
    kept = dimension // 3
    tolerance = jnp.finfo(start.dtype).eps ** (2 / 3) if rtol is None else rtol

    def unfinished(state: tuple) -> Array:
        rounds, _, _, pair = state
        return ~pair.converged & (rounds < max_restarts) & jnp.isfinite(pair.value)

    def improve(state: tuple) -> tuple:
        rounds, filled, krylov, pair = state
        krylov = jax.lax.fori_loop(filled, dimension, lambda j, k: _widened(product, j, k), krylov)
        values, vectors = jnp.linalg.eigh(krylov.projection)
        better = _certified(product, vectors[:, -1] @ krylov.basis[:-1], tolerance * jnp.max(jnp.abs(values)))
        products = pair.products + dimension - filled + 1
        better = eqx.tree_at(lambda p: p.products, better, products)
        return rounds + 1, jnp.array(kept), _thinned(krylov, values, vectors, kept), better

    zero = jnp.zeros((), start.dtype)
    basis = jnp.zeros((dimension + 1, start.size), start.dtype).at[0].set(start / jnp.linalg.norm(start))
    krylov = _Krylov(basis, jnp.zeros((dimension, dimension), start.dtype))
    nothing = Eigenpair(zero, start, zero, jnp.array(False), jnp.array(0))
    return jax.lax.while_loop(unfinished, improve, (jnp.array(0), jnp.array(0), krylov, nothing))[-1]


def _widened(product: Operator, j: Int[Array, ""], krylov: _Krylov) -> _Krylov:
    """Return the space with the column of v_j in its projection, and with v_{j+1} added."""
    image = product(krylov.basis[j])
    column = krylov.basis @ image
    new = _orthogonal(image - column @ krylov.basis, krylov.basis)
    length = jnp.linalg.norm(new)
    # Where the space is exhausted, as for a Hessian of low rank, what is left is rounding: go on from elsewhere.
    exhausted = length <= 100 * jnp.finfo(image.dtype).eps * jnp.linalg.norm(image)
    new = jax.lax.cond(exhausted, lambda: _elsewhere(krylov.basis), lambda: new / length)
    column = column[:-1]
    projection = krylov.projection.at[:, j].set(column).at[j, :].set(column)
    return _Krylov(krylov.basis.at[j + 1].set(new), projection)


def _elsewhere(basis: Float[Array, "k p"]) -> Float[Array, " p"]:
    """Return a unit vector orthogonal to the basis, from the axis that it covers least; zero if it spans everything.

    Any vector will do: a random start has met every eigenvalue before its Krylov space is exhausted.
    """
    covered = jnp.sum(basis**2, axis=0)
    least = jnp.argmin(covered)
    vector = _orthogonal(jnp.zeros_like(covered).at[least].set(1), basis)
    spanned = covered[least] > 1 - 1e3 * jnp.finfo(basis.dtype).eps
    return jnp.where(spanned, 0, vector / jnp.where(spanned, 1, jnp.linalg.norm(vector)))


def _orthogonal(vector: Array, basis: Float[Array, "k p"]) -> Array:
    # Twice is enough (Kahan; Parlett 1980, section 6.9).
    for _ in range(2):
        vector = vector - (basis @ vector) @ basis
    return vector


def _certified(product: Operator, vector: Float[Array, " p"], bound: Float[Array, ""]) -> Eigenpair:
    vector = vector / jnp.linalg.norm(vector)
    image = product(vector)
    value = vector @ image
    residual = jnp.linalg.norm(image - value * vector)
    return Eigenpair(value, vector, residual, residual <= bound, jnp.array(0))


def _thinned(krylov: _Krylov, values: Array, vectors: Array, kept: int) -> _Krylov:
    """Return the space of the best `kept` Ritz vectors and of v_m, from which the next round goes on."""
    size = len(values)
    best = vectors[:, size - kept :].T @ krylov.basis[:-1]
    basis = jnp.zeros_like(krylov.basis).at[:kept].set(best).at[kept].set(krylov.basis[-1])
    projection = jnp.zeros_like(krylov.projection).at[:kept, :kept].set(jnp.diag(values[size - kept :]))
    return _Krylov(basis, projection)
