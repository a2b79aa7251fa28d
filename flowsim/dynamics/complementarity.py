"""The covariance of an oscillation: a complementarity problem over small positive semidefinite matrices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..curvature.eigenpair import decomposition

_SHORT_OF_THE_BOUNDARY = 0.95
_MAX_ITERATIONS = 60


def symmetric_basis(size: int) -> Float[np.ndarray, "n k k"]:
    """Return an orthonormal basis of the symmetric matrices, k(k + 1)/2 of them, ordered by the larger index.

    So those of a leading block of any size come first.
    """
    basis = []
    for column in range(size):
        for row in range(column + 1):
            matrix = np.zeros((size, size))
            matrix[row, column] = matrix[column, row] = 1.0 if row == column else np.sqrt(0.5)
            basis.append(matrix)
    return np.stack(basis)


def complementary_covariance(
    gram: Float[Array, "n n"], drive: Float[Array, "k k"], active: Int[Array, ""]
) -> Float[Array, "k k"]:
    """Return X ⪰ 0 with Y = B[X] − A ⪰ 0 and ⟨X, Y⟩ = 0, which is argmin over X ⪰ 0 of ½⟨X, B[X]⟩ − ⟨A, X⟩.

    `gram` is B, positive semidefinite, in `symmetric_basis`, n = k(k + 1)/2, and `drive` is A. Of both only the leading
    block of size `active` counts, which may be traced; X is zero elsewhere. Where B leaves a part of X open, as for
    directions that do not see each other, it is zero.

    Mostly X = B⁻¹A is positive or A negative, and that is that. Else a primal–dual interior-point method with the
    directions of Nesterov and Todd (1998) comes near it, some ten systems of size n, and a few of the semismooth Newton
    method for X = (X − Y)₊ (Sun and Sun 2002) lead to rounding.
    """
    size = drive.shape[0]
    basis = jnp.asarray(symmetric_basis(size), drive.dtype)
    there = jnp.arange(size) < active
    inside = _coordinates(jnp.outer(there, there).astype(drive.dtype), jnp.abs(basis)) > 0
    gram = jnp.where(inside[:, None] & inside[None], (gram + gram.T) / 2, 0)
    drive = jnp.where(there[:, None] & there[None], (drive + drive.T) / 2, 0)
    unit, strength = _unit(jnp.max(jnp.diag(gram))), _unit(jnp.max(jnp.abs(drive)))
    gram, drive = gram / unit, drive / strength
    ridge = jnp.finfo(drive.dtype).eps ** (2 / 3)
    gram = gram + jnp.diag(jnp.where(inside, 0, 1))
    raised, right = gram + ridge * jnp.eye(len(basis), dtype=gram.dtype), _coordinates(drive, basis)
    free = jnp.linalg.solve(raised, right)
    # The ridge is not felt where B leaves nothing open.
    free = _matrix(free + jnp.linalg.solve(raised, right - gram @ free), basis)
    least = decomposition(free)[0][0]
    falls = decomposition(-drive)[0][0] >= 0

    def searched() -> Array:
        walled = drive - jnp.diag(jnp.where(there, 0, 1).astype(drive.dtype))
        near = _interior_point(raised, walled, basis)
        return _polished(gram, ridge, walled, basis, jnp.where(there[:, None] & there[None], near, 0))

    known = jnp.where(least >= 0, free, 0)
    found = jax.lax.cond((least >= 0) | falls, lambda: known, searched)
    return jnp.where(there[:, None] & there[None], strength / unit * found, 0)


class _Pair(NamedTuple):
    """X and Y, both positive definite, and how many steps led here."""

    primal: Float[Array, "k k"]
    dual: Float[Array, "k k"]
    steps: Int[Array, ""]


def _interior_point(
    gram: Float[Array, "n n"], drive: Float[Array, "k k"], basis: Float[Array, "n k k"]
) -> Float[Array, "k k"]:
    """Return X, to a few digits, for a problem whose largest numbers are one."""
    size = drive.shape[0]
    identity = jnp.eye(size, dtype=drive.dtype)
    right, near = _coordinates(drive, basis), jnp.finfo(drive.dtype).eps ** 0.6

    def residual(pair: _Pair) -> Array:
        return _coordinates(pair.dual, basis) - gram @ _coordinates(pair.primal, basis) + right

    def unfinished(pair: _Pair) -> Array:
        gap = jnp.sum(pair.primal * pair.dual)
        size_of_both = 1 + jnp.trace(pair.primal) + jnp.trace(pair.dual)
        far = (gap > near * size_of_both) | (jnp.max(jnp.abs(residual(pair))) > near * size_of_both)
        return far & (pair.steps < _MAX_ITERATIONS)

    def step(pair: _Pair) -> _Pair:
        gap = jnp.sum(pair.primal * pair.dual) / size
        scaling, middle = _scaling(pair.primal, pair.dual)
        off = residual(pair)

        def scaled(matrix: Array) -> Array:
            return _coordinates(scaling.T @ matrix @ scaling, basis)

        # With ΔX = G ΔX̃ Gᵀ and ΔỸ = GᵀΔY G: ΔX̃ + ΔỸ = aim and ΔY = BΔX − off, a system with eigenvalues from one on.
        congruence = jax.vmap(lambda matrix: _coordinates(scaling @ matrix @ scaling.T, basis))(basis)
        system = jnp.eye(len(basis), dtype=gram.dtype) + congruence @ gram @ congruence.T
        factor = jax.scipy.linalg.cho_factor(system)
        pushed = scaled(_matrix(off, basis))

        def towards(center: Array) -> tuple[Array, Array]:
            aim = jnp.diag(center / middle - middle)
            primal = _matrix(jax.scipy.linalg.cho_solve(factor, _coordinates(aim, basis) + pushed), basis)
            return primal, jnp.minimum(_reach(middle, primal), _reach(middle, aim - primal))

        # How far the way to the boundary itself leads tells how much the pair has to be centred (Mehrotra 1992).
        _, free = towards(jnp.zeros_like(gap))
        primal, length = towards((1 - free * _SHORT_OF_THE_BOUNDARY) ** 2 * gap)
        moved = scaling @ primal @ scaling.T
        dual = _matrix(gram @ _coordinates(moved, basis) - off, basis)
        after = _Pair(pair.primal + length * moved, pair.dual + length * dual, pair.steps + 1)
        # At the end of what rounding allows there is no better pair than the one before.
        good = jnp.isfinite(jnp.sum(after.primal) + jnp.sum(after.dual)) & (gap < jnp.inf)
        last = pair._replace(steps=jnp.array(_MAX_ITERATIONS))
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), after, last)

    # A start that is too small is pressed against the boundary.
    ample = 1 + jnp.max(jnp.abs(jnp.linalg.solve(gram, right)))
    start = _Pair(ample * identity, ample * identity, jnp.array(0))
    return jax.lax.while_loop(unfinished, step, start).primal


def _polished(
    gram: Float[Array, "n n"],
    ridge: Float[Array, ""] | float,
    drive: Float[Array, "k k"],
    basis: Float[Array, "n k k"],
    near: Float[Array, "k k"],
) -> Float[Array, "k k"]:
    """Return X from a point near it, by Newton's method for X = (X − Y)₊ while that makes the equation truer."""

    def residual(point: Array) -> tuple[Array, Array, Array]:
        dual = _matrix(gram @ _coordinates(point, basis), basis) - drive
        values, columns = decomposition(point - dual)
        positive = (columns * jnp.maximum(values, 0)) @ columns.T
        return point - positive, values, columns

    def step(state: tuple) -> tuple:
        point, error, _, steps = state
        off, values, columns = residual(point)
        share = jnp.maximum(values[:, None], 0) + jnp.maximum(values[None], 0)
        share = share / jnp.maximum(jnp.abs(values[:, None]) + jnp.abs(values[None]), jnp.finfo(values.dtype).tiny)

        def clipped(matrix: Array) -> Array:
            return _coordinates(columns @ (share * (columns.T @ matrix @ columns)) @ columns.T, basis)

        identity = jnp.eye(len(basis), dtype=gram.dtype)
        through = jax.vmap(clipped)(jnp.tensordot((1 - ridge) * identity - gram, basis, 1)).T
        moved = point - _matrix(jnp.linalg.solve(identity - through, _coordinates(off, basis)), basis)
        after = jnp.max(jnp.abs(residual(moved)[0]))
        better = after < error
        return jnp.where(better, moved, point), jnp.where(better, after, error), better, steps + 1

    first = jnp.max(jnp.abs(residual(near)[0]))
    state = (near, first, jnp.array(True), jnp.array(0))
    point = jax.lax.while_loop(lambda s: s[2] & (s[3] < _MAX_ITERATIONS), step, state)[0]
    off, *_ = residual(point)
    return point - off


def _scaling(primal: Array, dual: Array) -> tuple[Float[Array, "k k"], Float[Array, " k"]]:
    """Return G and D with X = G D Gᵀ and Y = G⁻ᵀ D G⁻¹ (Todd, Toh and Tütüncü 1998)."""
    lower, other = jnp.linalg.cholesky(primal), jnp.linalg.cholesky(dual)
    _, middle, turn = jnp.linalg.svd(other.T @ lower)
    return lower @ turn.T / jnp.sqrt(middle)[None], middle


def _reach(middle: Float[Array, " k"], way: Float[Array, "k k"]) -> Float[Array, ""]:
    """Return how much of a way from D leads nearly to where the matrix is no longer positive, one at most."""
    root = 1 / jnp.sqrt(middle)
    least = decomposition(root[:, None] * way * root[None])[0][0]
    return jnp.minimum(1, _SHORT_OF_THE_BOUNDARY / jnp.maximum(-least, jnp.finfo(least.dtype).eps))


def _coordinates(matrix: Float[Array, "k k"], basis: Float[Array, "n k k"]) -> Float[Array, " n"]:
    return jnp.sum(basis * matrix[None], axis=(1, 2))


def _matrix(coordinates: Float[Array, " n"], basis: Float[Array, "n k k"]) -> Float[Array, "k k"]:
    return jnp.tensordot(coordinates, basis, 1)


def _unit(largest: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(largest > 0, largest, 1)
