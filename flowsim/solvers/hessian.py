"""Linearly implicit extrapolation with the whole Hessian, for few weights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature.eigenpair import decomposition
from .extrapolation import Allowed, ExtrapolatedSolver, best_factor, extrapolate, substeps
from .field import Measured
from .solver import SOLVERS, Proposal, Work, no_work
from .step_control import ErrorScale


class _Hessian(eqx.Module):
    """The Hessian of some point, and in how many steps it has been tried.

    Where it is `decomposed`, its eigenvectors are known, and its eigenvalues, zero for those that a step is explicit
    in.
    """

    matrix: Float[Array, "p p"]
    values: Float[Array, " p"]
    vectors: Float[Array, "p p"]
    decomposed: Bool[Array, ""]
    age: Int[Array, ""]

    def decompose(self, rounding: float) -> "_Hessian":
        """Return the same with its decomposition; eigenvalues below so many roundings of the largest count as zero."""
        values, vectors = decomposition(self.matrix)
        zero = rounding * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
        return _Hessian(self.matrix, jnp.where(values > zero, values, 0), vectors, jnp.array(True), self.age)

    def has_served(self, steps: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether it has been tried in so many steps, rounded down."""
        return self.age >= jnp.floor(steps)

    def shifted(self, length: Float[Array, ""]) -> Float[Array, "p p"]:
        """Return I + `length` H."""
        return jnp.eye(len(self.matrix), dtype=self.matrix.dtype) + length * self.matrix

    def resolvent(self, length: Float[Array, ""], vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Return (I + `length` H⁺)⁻¹ times a vector, by the decomposition."""
        return self.vectors @ (vector @ self.vectors / (1 + length * self.values))


class _State(eqx.Module):
    """What is known at y, the Hessian of a point not far from it, for how many steps one does, what length was allowed
    and what was too long, and the work.
    """

    measured: Measured
    hessian: _Hessian
    kept: Float[Array, ""]
    allowed: Allowed
    too_long: Float[Array, ""]
    work: Work

    @property
    def curvature(self) -> Float[Array, ""]:
        """The Frobenius norm of the Hessian, zero before it is known."""
        return jnp.linalg.norm(self.hessian.matrix)


@SOLVERS.register("HessianExtrapolation")
class HessianExtrapolation(ExtrapolatedSolver):
    """Extrapolated linearly implicit Euler steps for y' = f(y) with all of the Hessian H = −∂f/∂y, of variable order.

    The steps are those of `LowRankExtrapolation` with another A: H on its eigenvectors of positive eigenvalue. Where y
    waits at a saddle for 10⁹ units of time, H has eigenvalues of order one beside tiny ones of both signs, and what a
    Gauss–Newton matrix leaves out would keep steps below some 10/‖H − A‖. Here accuracy alone limits them. Directions
    in which H curves downwards are explicit: no step is singular, and none damps what grows. So are those whose
    eigenvalues are rounding, without which no plateau longer than 1/(ε‖H‖) could be crossed.

    Where I + 16hH is positive definite, and exact enough, a Cholesky factor stands for the eigenvectors, at some
    twentieth of their cost. What little H curves downwards is implicit then, too.

    An extrapolated W-method keeps its order with any A, so A is kept for up to `kept` steps. Where a step with an older
    one was rejected it is taken anew, and so early from then on that none had been; slowly it is kept for longer again.
    But where stiff directions turn within a step, one that is frozen leads off the flow by what no difference of
    columns shows: in steps with hλ beyond `frozen_up_to`, λ being the largest eigenvalue or where that is not known the
    Frobenius norm, that lead farther than (`still`·rtol)^½ of the weights, A is taken anew in each substep, on the
    directions that were not explicit. The Hessian costs one product for each weight. As an error may rise at once where
    directions turn, a length that was rejected is not tried again soon. Memory: four matrices over all weights and
    2·`columns` + 7 arrays of the size of y0.

    f is to have a symmetric derivative, as a gradient flow has.
    """

    rtol: float | Float[Array, ""] | None = None
    """Relative tolerance of a step; filled in by `flowsim.integrate`."""
    atol: float | Float[Array, ""] | None = None
    """Absolute tolerance of a step; filled in by `flowsim.integrate`."""
    columns: int = eqx.field(static=True, default=8)
    """The largest order."""
    overhead: float = eqx.field(static=True, default=6.0)
    """The price of a step beside its evaluations of f and its products with H, in evaluations of f: that of factors and
    eigenvectors."""
    product_price: float = eqx.field(static=True, default=0.5)
    """The price of a product with H, in evaluations of f."""
    kept: int = eqx.field(static=True, default=8)
    """For how many steps A is kept, at most."""
    frozen_up_to: float = eqx.field(static=True, default=100.0)
    """Up to which hλ a step keeps A in all of its substeps."""
    still: float = eqx.field(static=True, default=1e3)
    """A step beyond that keeps A, too, where it leads less far than (still·rtol)^½ of the weights."""
    measure: Callable[[PyTree], Measured] | None = None
    """Evaluates f and the objective; filled in by `flowsim.integrate`."""
    rounding: float = eqx.field(static=True, default=10.0)
    """Eigenvalues of H below so many roundings of the largest are not told from zero."""
    seen: float = eqx.field(static=True, default=0.01)
    """The share of the relative tolerance up to which rounding of hH is not seen."""
    growth: float = eqx.field(static=True, default=16.0)
    """Directions in which H curves downwards by more than 1 over so many steps are explicit."""
    together: int = eqx.field(static=True, default=256)
    """Products with H that are taken at once."""
    longer: float = eqx.field(static=True, default=1.1)
    """The factor to the number of steps that a Hessian is kept for, where one has done for all of them."""
    below: float = eqx.field(static=True, default=0.7)
    """The share of a length that was rejected, whatever shorter steps let expect, which may be tried;"""
    forgetting: float = eqx.field(static=True, default=1.1)
    """with each step that is kept it counts as so many times as long."""

    def __check_init__(self):
        if self.kept < 1:
            raise ValueError(f"kept must be a number of steps, one or more, got {self.kept}")

    def beginning(self, y0: PyTree, measured: Measured) -> _State:
        """Return the state before the first step, from what has been measured there."""
        flat, _ = ravel_pytree(y0)
        zeros = jnp.zeros((flat.size, flat.size), flat.dtype)
        unknown = _Hessian(zeros, jnp.zeros_like(flat), zeros, jnp.array(False), jnp.array(self.kept))
        kept = jnp.full((), self.kept, flat.dtype)
        return _State(measured, unknown, kept, Allowed.unknown(kept), jnp.full_like(kept, jnp.inf), no_work())

    def taken_to(self, measured: Measured, solver_state: _State) -> _State:
        """Return the state at a point that another solver has reached, with a Hessian to be taken anew."""
        hessian = dataclasses.replace(solver_state.hessian, age=jnp.full_like(solver_state.hessian.age, self.kept))
        allowed = Allowed.unknown(solver_state.kept)
        return dataclasses.replace(
            solver_state, measured=measured, hessian=hessian, allowed=allowed, too_long=allowed.last
        )

    def after_rejection(self, before: _State, after: _State) -> _State:
        """Return what has been learned, at the point from where the step went.

        A Hessian of that very point is as good as new for the next attempt; an older one is to be taken anew, and the
        next ones earlier.
        """
        age = after.hessian.age
        kept = jnp.where(age == 1, before.kept, jnp.clip(age - 1.0, 1, before.kept))
        hessian = dataclasses.replace(after.hessian, age=jnp.where(age == 1, 0, self.kept))
        return dataclasses.replace(after, measured=before.measured, hessian=hessian, kept=kept)

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step; the order that it used is the number of rows that it needed."""
        h, start = t1 - t0, solver_state.measured
        flat, unravel = ravel_pytree(y0)
        slope, _ = ravel_pytree(start.slope)

        def f(vector: Array) -> Array:
            return ravel_pytree(terms.vf(t0, unravel(vector), args))[0]

        due = solver_state.hessian.has_served(solver_state.kept)
        hessian = jax.lax.cond(due, lambda: self._at(f, flat), lambda: solver_state.hessian)
        hessian, products = dataclasses.replace(hessian, age=hessian.age + 1), jnp.where(due, flat.size, 0)
        rtol: Any = self.rtol
        stiffness = h * jnp.linalg.norm(hessian.matrix)
        # A factor of I + hH is as exact as hH: where its rounding is seen, or growth, the decomposition steps in.
        exact = jnp.finfo(flat.dtype).eps * stiffness <= self.seen * rtol
        definite = exact & jnp.isfinite(jnp.sum(_cholesky(hessian.shifted(self.growth * h))))
        hessian = jax.lax.cond(definite | hessian.decomposed, lambda: hessian, lambda: hessian.decompose(self.rounding))

        def frozen(length: Array) -> Callable[[Array], Array]:
            factor = jax.lax.cond(definite, lambda: _cholesky(hessian.shifted(length)), lambda: hessian.matrix)

            def resolvent(vector: Array) -> Array:
                return jax.lax.cond(definite, lambda: _solve(factor, vector), lambda: hessian.resolvent(length, vector))

            return resolvent

        move = h * frozen(h)(slope)
        largest = jnp.where(definite, stiffness, h * jnp.max(hessian.values))
        stiff = (largest > self.frozen_up_to) & (jnp.sum(move**2) > self.still * rtol * jnp.sum(flat**2))
        implicit = hessian.vectors * (hessian.values > 0)[None, :]
        onto = jax.lax.cond(stiff & ~definite, lambda: implicit @ implicit.T, lambda: hessian.matrix)

        def fresh(length: Array, y: Array) -> Array:
            known, slope = self._at(f, y), f(y)
            matrix = jax.lax.cond(definite, lambda: known.matrix, lambda: onto @ known.matrix @ onto)
            within = dataclasses.replace(known, matrix=matrix)
            factor = _cholesky(within.shifted(length))
            good = exact & jnp.isfinite(jnp.sum(factor))
            return jax.lax.cond(
                good,
                lambda: _solve(factor, slope),
                lambda: known.decompose(self.rounding).resolvent(length, slope),
            )

        def row(j: Array) -> tuple[PyTree, PyTree, Array]:
            resolvent = frozen(h / j)

            def direction(i: Array, y: Array) -> tuple[Array, Array]:
                toward = jax.lax.cond(stiff, lambda: fresh(h / j, y), lambda: resolvent(f(y)))
                return toward, jnp.where(stiff, y.size, 0)

            return substeps(direction, flat, resolvent(slope), h / j, j)

        rows = jnp.where(h == 0, 0, self.columns)
        scale = ErrorScale.of(flat, h * slope, self.rtol, self.atol)
        table = extrapolate(row, scale, rows, self.columns)
        y1 = unravel(flat + table.increment)
        end = self.measure_at(terms, t1, y1, args)
        length = h / jnp.maximum(table.rows, 1)
        table = table.with_end(scale, ravel_pytree(end.slope)[0], length, frozen(length), turned=stiff)
        overhead = self.overhead + self.product_price * flat.size / self.kept
        factor = best_factor(table.errors, table.rows, overhead)
        most, stale = self.below * solver_state.too_long, hessian.age > 1
        length, allowed = solver_state.allowed.after(h, table.error, factor, most=most, stale=stale)
        too_long = jnp.where((table.error <= 1) | (h == 0), self.forgetting * solver_state.too_long, h)
        longer = jnp.where(hessian.has_served(solver_state.kept), self.longer, 1)
        kept = jnp.minimum(longer * solver_state.kept, self.kept)
        spent = Work(jnp.sign(table.rows) + table.rows * (table.rows - 1) // 2, products + table.passes)
        state = _State(end, hessian, kept, allowed, too_long, solver_state.work + spent)
        proposal = Proposal(table.error, length / h, aimed=True, rounded=table.rounded)
        return y1, proposal, {"y0": y0, "y1": y1}, state, diffrax.RESULTS.successful

    def price(self, spent: Work) -> Array:
        """Return what a step that has `spent` so much costs, in evaluations of f."""
        return super().price(spent) + self.product_price * spent.products

    def usual_price(self, weights: int) -> float:
        """Return about what a step costs, in evaluations of f, with its share of a Hessian of so many weights."""
        return super().usual_price(weights) + self.product_price * weights / self.kept

    def _at(self, f: Callable[[Array], Array], y: Float[Array, " p"]) -> _Hessian:
        """Return the Hessian at `y`."""
        _, product = jax.linearize(f, y)
        matrix = -jax.lax.map(product, jnp.eye(y.size, dtype=y.dtype), batch_size=self.together)
        # Where f has no derivative, the step is explicit.
        matrix = jnp.where(jnp.isfinite(matrix), matrix, 0)
        symmetric = (matrix + matrix.T) / 2
        return _Hessian(symmetric, jnp.zeros_like(y), jnp.zeros_like(symmetric), jnp.array(False), jnp.array(0))


def _cholesky(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """Return the lower Cholesky factor of a symmetric matrix, NaN where it is not positive definite."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def _solve(factor: Float[Array, "p p"], vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """Return the solution of a linear system by the Cholesky factor of its matrix."""
    return jsp.linalg.cho_solve((factor, True), vector)
