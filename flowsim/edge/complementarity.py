"""The covariance of an oscillation: a complementarity problem over small positive semidefinite matrices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from ..curvature.eigenpair import decomposition


def symmetric_basis(size: int, dtype: DTypeLike = float) -> Float[Array, "n k k"]:
    """Return an orthonormal basis of the symmetric matrices, k(k + 1)/2 of them, ordered by the larger index.

    So those of a leading block of any size come first.
    """
    basis = []
    for column in range(size):
        for row in range(column + 1):
            matrix = np.zeros((size, size))
            matrix[row, column] = matrix[column, row] = 1.0 if row == column else np.sqrt(0.5)
            basis.append(matrix)
    return jnp.asarray(np.stack(basis), dtype)


def in_basis(matrix: Float[Array, "k k"]) -> Float[Array, " n"]:
    """Return the coordinates of a symmetric matrix in `symmetric_basis`."""
    return jnp.sum(symmetric_basis(matrix.shape[0], matrix.dtype) * matrix[None], axis=(1, 2))


def from_basis(coordinates: Float[Array, " n"], size: int) -> Float[Array, "k k"]:
    """Return the symmetric matrix of a size with these coordinates in `symmetric_basis`."""
    return jnp.tensordot(coordinates, symmetric_basis(size, coordinates.dtype), 1)


def congruence(matrix: Float[Array, "k k"]) -> Float[Array, "n n"]:
    """Return the matrix of S ↦ GᵀSG in `symmetric_basis`, which is the transpose of that of S ↦ GSGᵀ."""
    basis = symmetric_basis(matrix.shape[0], matrix.dtype)
    return jax.vmap(lambda symmetric: in_basis(matrix @ symmetric @ matrix.T))(basis)


def complementary_covariance(
    gram: Float[Array, "n n"], drive: Float[Array, "k k"], active: Int[Array, ""]
) -> Float[Array, "k k"]:
    """Return X ⪰ 0 with Y = B[X] − A ⪰ 0 and ⟨X, Y⟩ = 0, which is argmin over X ⪰ 0 of ½⟨X, B[X]⟩ − ⟨A, X⟩.

    `gram` is B, positive semidefinite, in `symmetric_basis`, n = k(k + 1)/2, and `drive` is A. Of both only the leading
    block of size `active` counts, which may be traced; X is zero elsewhere. Where B leaves a part of X open, as for
    directions that do not see each other, it is zero.

    Mostly X = B⁻¹A is positive or A negative, and that is that. Else a primal–dual interior-point method with the
    directions of Nesterov and Todd (1998) comes near it, some ten to twenty systems of size n, and a few of the
    semismooth Newton method for X = (X − Y)₊ (Sun and Sun 2002) lead to rounding.
    """
    size = drive.shape[0]
    there = jnp.arange(size) < active
    block, inside = there[:, None] & there[None], _inside(there)
    gram = jnp.where(inside[:, None] & inside[None], (gram + gram.T) / 2, 0)
    drive = jnp.where(block, (drive + drive.T) / 2, 0)
    unit, strength = _unit(jnp.max(jnp.diag(gram))), _unit(jnp.max(jnp.abs(drive)))
    walled = drive / strength - jnp.diag(jnp.where(there, 0, 1).astype(drive.dtype))
    problem = _Problem(gram / unit + jnp.diag(jnp.where(inside, 0, 1)), walled)
    free = problem.unconstrained(jnp.where(inside, in_basis(drive / strength), 0))
    positive, falls = jax.lax.map(lambda matrix: decomposition(matrix)[0][0] >= 0, jnp.stack([free, -walled]))

    def searched() -> Array:
        # A start that is too small is pressed against the boundary.
        return problem.polished(jnp.where(block, problem.approached(2 + jnp.max(jnp.abs(free))), 0))

    found = jax.lax.cond(positive | falls, lambda: jnp.where(positive, free, 0), searched)
    return jnp.where(block, strength / unit * found, 0)


class _Pair(eqx.Module):
    """X and Y, both positive definite, and how many steps led here."""

    primal: Float[Array, "k k"]
    dual: Float[Array, "k k"]
    steps: Int[Array, ""]

    @property
    def gap(self) -> Float[Array, ""]:
        return jnp.sum(self.primal * self.dual)


class _Problem(eqx.Module):
    """A problem whose largest numbers are one, with a wall of its own for what is not active."""

    gram: Float[Array, "n n"]
    drive: Float[Array, "k k"]
    max_steps: int = eqx.field(static=True, default=60)
    """Steps of each method at most; some ten to twenty are usual."""
    short: float = eqx.field(static=True, default=0.95)
    """The share of the distance to the boundary of the cone that a step goes, so that both stay inside."""

    @property
    def raised(self) -> Float[Array, "n n"]:
        """B with a ridge of ε^(2/3), for what it leaves open."""
        ridge = jnp.finfo(self.drive.dtype).eps ** (2 / 3)
        return self.gram + ridge * jnp.eye(len(self.gram), dtype=self.gram.dtype)

    def unconstrained(self, right: Float[Array, " n"]) -> Float[Array, "k k"]:
        """Return B⁻¹A; the ridge is not felt where B leaves nothing open."""
        lower = jnp.linalg.cholesky(self.raised)

        def refined(_: int, found: Array) -> Array:
            return found + cho_solve((lower, True), right - self.gram @ found)

        return self._matrix(jax.lax.fori_loop(0, 2, refined, jnp.zeros_like(right)))

    def approached(self, ample: Float[Array, ""]) -> Float[Array, "k k"]:
        """Return X to a few digits, by the interior-point method, from an `ample` multiple of the identity."""
        size = self.drive.shape[0]
        near = jnp.finfo(self.drive.dtype).eps ** 0.6

        def unfinished(pair: _Pair) -> Array:
            unit = 1 + jnp.trace(pair.primal) + jnp.trace(pair.dual)
            far = (pair.gap > near * unit) | (jnp.max(jnp.abs(self._off(pair))) > near * unit)
            return far & (pair.steps < self.max_steps)

        start = ample * jnp.eye(size, dtype=self.drive.dtype)
        return jax.lax.while_loop(unfinished, lambda pair: self._inward(pair), _Pair(start, start, jnp.array(0))).primal

    def _inward(self, pair: _Pair) -> _Pair:
        """Return the pair after one step; with steps at their end where rounding allows no better one."""
        size = self.drive.shape[0]
        scaling, middle = _scaling(pair.primal, pair.dual)
        # With ΔX = G ΔX̃ Gᵀ and ΔỸ = GᵀΔY G: ΔX̃ + ΔỸ = aim and ΔY = BΔX − off, a system with eigenvalues from one on.
        scaled = congruence(scaling)
        system = jnp.eye(len(scaled), dtype=self.drive.dtype) + scaled @ self.raised @ scaled.T
        lower, off = jnp.linalg.cholesky(system), self._off(pair)
        pushed = in_basis(scaling.T @ self._matrix(off) @ scaling)

        def towards(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            aim = jnp.diag(state[0] / middle - middle)
            primal = self._matrix(cho_solve((lower, True), in_basis(aim) + pushed))
            reach = jnp.min(jax.lax.map(lambda way: _reach(middle, way, self.short), jnp.stack([primal, aim - primal])))
            return (1 - reach * self.short) ** 2 * pair.gap / size, primal, reach

        # How far the way to the boundary itself leads tells how much the pair has to be centred (Mehrotra 1992).
        nowhere = jnp.zeros_like(pair.gap), jnp.zeros_like(pair.primal), jnp.zeros_like(pair.gap)
        _, primal, length = jax.lax.fori_loop(0, 2, towards, nowhere)
        moved = scaling @ primal @ scaling.T
        dual = self._matrix(self.raised @ in_basis(moved) - off)
        after = _Pair(pair.primal + length * moved, pair.dual + length * dual, pair.steps + 1)
        good = jnp.isfinite(jnp.sum(after.primal) + jnp.sum(after.dual))
        last = _Pair(pair.primal, pair.dual, jnp.array(self.max_steps))
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), after, last)

    def _off(self, pair: _Pair) -> Float[Array, " n"]:
        return in_basis(pair.dual) - self.raised @ in_basis(pair.primal) + in_basis(self.drive)

    def polished(self, near: Float[Array, "k k"]) -> Float[Array, "k k"]:
        """Return X from a point near it, by Newton's method for X = (X − Y)₊ while that makes the equation truer.

        In the basis of the eigenvectors of X − Y, with eigenvalues zᵢ, the derivative of the positive part multiplies
        entry ij by lᵢⱼ = (zᵢ₊ + zⱼ₊)/(|zᵢ| + |zⱼ|). With u = √l ΔZ the equation for the step is symmetric, and never
        far from definite: (1 − l + √l B √l)u = √l F, for F = Y − B[X] + A; ΔX = √l u and ΔY = B[ΔX] − F.
        """
        size = self.drive.shape[0]
        drive, there = in_basis(self.drive), jnp.array([(i, j) for j in range(size) for i in range(j + 1)])

        def step(state: tuple) -> tuple:
            best, point, error, _, steps = state
            values, columns = decomposition(self._matrix(point))
            turn, above = congruence(columns), jnp.maximum(values, 0)
            positive = in_basis((columns * above[None]) @ columns.T)
            off = positive - point - self.gram @ positive + drive
            left = jnp.max(jnp.abs(off))
            better = left < error
            both = jnp.sum(jnp.abs(values)[there], axis=1)
            share = jnp.sum(above[there], axis=1) / jnp.where(both > 0, both, 1)
            root = jnp.sqrt(share)
            system = jnp.diag(1 - share) + root[:, None] * (turn @ self.raised @ turn.T) * root[None]
            moved = turn.T @ (root * cho_solve((jnp.linalg.cholesky(system), True), root * (turn @ off)))
            onward = point + moved - self.gram @ moved + off
            return jnp.where(better, positive, best), onward, jnp.where(better, left, error), better, steps + 1

        start = in_basis(near) - self.gram @ in_basis(near) + drive
        state = (in_basis(near), start, jnp.full((), jnp.inf, near.dtype), jnp.array(True), jnp.array(0))
        return self._matrix(jax.lax.while_loop(lambda s: s[3] & (s[4] < self.max_steps), step, state)[0])

    def _matrix(self, coordinates: Float[Array, " n"]) -> Float[Array, "k k"]:
        return from_basis(coordinates, self.drive.shape[0])


def _scaling(primal: Array, dual: Array) -> tuple[Float[Array, "k k"], Float[Array, " k"]]:
    """Return G and D with X = G D Gᵀ and Y = G⁻ᵀ D G⁻¹ (Todd, Toh and Tütüncü 1998)."""
    lower = jnp.linalg.cholesky(primal)
    squares, turn = decomposition(lower.T @ dual @ lower)
    middle = jnp.sqrt(squares)
    return lower @ turn / jnp.sqrt(middle)[None], middle


def _reach(middle: Float[Array, " k"], way: Float[Array, "k k"], short: float) -> Float[Array, ""]:
    """Return how much of a way from D leads nearly to where the matrix is no longer positive, one at most."""
    root = 1 / jnp.sqrt(middle)
    least = decomposition(root[:, None] * way * root[None])[0][0]
    return jnp.minimum(1, short / jnp.maximum(-least, jnp.finfo(least.dtype).eps))


def _inside(there: Bool[Array, " k"]) -> Bool[Array, " n"]:
    """Return which coordinates are those of the active block."""
    return in_basis(jnp.outer(there, there).astype(float)) > 0


def _unit(largest: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(largest > 0, largest, 1)
