"""Linearly implicit extrapolation with the whole Hessian, for few weights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from ..curvature.eigenpair import decomposition
from .extrapolation import ExtrapolatedSolver, best_factor, extrapolate, substeps
from .field import Measured
from .solver import SOLVERS, Proposal, Work, no_work


class _Spectrum(eqx.Module):
    """The eigenvalues of the Hessian that a step is implicit in, zero for the others, and all eigenvectors.

    `age` counts the steps that have been attempted with it.
    """

    values: Float[Array, " p"]
    vectors: Float[Array, "p p"]
    age: Int[Array, ""]


class _State(eqx.Module):
    """What is known at y, the Hessian of a point not far from it, the last step that was allowed, and the work."""

    measured: Measured
    spectrum: _Spectrum
    allowed: Float[Array, ""]
    work: Work

    @property
    def curvature(self) -> Float[Array, ""]:
        """The largest eigenvalue of the Hessian, zero before it is known."""
        return self.spectrum.values[-1]


@SOLVERS.register("HessianExtrapolation")
class HessianExtrapolation(ExtrapolatedSolver):
    """Extrapolated linearly implicit Euler steps for y' = f(y) with all of the Hessian H = −∂f/∂y, of variable order.

    The steps are those of `LowRankExtrapolation` with another A: H on its eigenvectors of positive eigenvalue. Where y
    waits at a saddle for 10⁹ units of time, H has eigenvalues of order one beside tiny ones of both signs, and what a
    Gauss–Newton matrix leaves out would keep steps below some 10/‖H − A‖. Here accuracy alone limits them. Directions
    in which H curves downwards are explicit: no step is singular, and none damps what grows. So are those whose
    eigenvalues are rounding, without which no plateau longer than 1/(ε‖H‖) could be crossed.

    An extrapolated W-method keeps its order with any A, so A is kept for up to `kept` steps, and taken anew where a
    step with an older one was rejected. But where stiff directions turn within a step, one that is frozen leads off the
    flow by what no difference of columns shows: in steps with hλ beyond `frozen_up_to`, λ being the largest eigenvalue,
    that lead farther than (`still`·rtol)^½ of the weights, A is taken anew in each substep. At small scales, where it
    turns little, `still=inf` is some five times faster. The Hessian costs one product for each weight, and its
    eigenvectors make every substep, whatever its length, cost two products with a matrix. As steps towards the end of a
    plateau have to shorten by the same factor one after the other, the next step is shortened by as much as the last
    one was. Memory: four matrices over all weights and `columns` + 6 arrays of the size of y0.

    f is to have a symmetric derivative, as a gradient flow has. `columns` is the largest order, and `overhead` the
    price of a step beside its evaluations of f, in such evaluations.
    """

    rtol: float | Float[Array, ""] | None = None
    atol: float | Float[Array, ""] | None = None
    columns: int = eqx.field(static=True, default=8)
    overhead: float = eqx.field(static=True, default=8.0)
    kept: int = eqx.field(static=True, default=8)
    frozen_up_to: float = eqx.field(static=True, default=100.0)
    still: float = eqx.field(static=True, default=1.0)
    measure: Callable[[PyTree], Measured] | None = None
    rounding: float = eqx.field(static=True, default=10.0)
    """Eigenvalues of H below so many roundings of the largest are not told from zero."""
    together: int = eqx.field(static=True, default=256)
    """Products with H that are taken at once."""
    shortest: float = eqx.field(static=True, default=0.2)
    longest: float = eqx.field(static=True, default=10.0)
    """Bounds of the factor from a step to the next."""

    def __check_init__(self):
        if self.kept < 1:
            raise ValueError(f"kept must be a number of steps, one or more, got {self.kept}")

    def beginning(self, y0: PyTree, measured: Measured) -> _State:
        """Return the state before the first step, from what has been measured there."""
        flat, _ = ravel_pytree(y0)
        unknown = _Spectrum(jnp.zeros_like(flat), jnp.eye(flat.size, dtype=flat.dtype), jnp.array(self.kept))
        return _State(measured, unknown, jnp.full((), jnp.inf, flat.dtype), no_work())

    def taken_to(self, measured: Measured, solver_state: _State) -> _State:
        """Return the state at a point that another solver has reached, with a Hessian to be taken anew."""
        spectrum = dataclasses.replace(solver_state.spectrum, age=jnp.full_like(solver_state.spectrum.age, self.kept))
        allowed = jnp.full_like(solver_state.allowed, jnp.inf)
        return _State(measured, spectrum, allowed, solver_state.work)

    def after_rejection(self, before: _State, after: _State) -> _State:
        """Return what has been learned, at the point from where the step went.

        A Hessian of that very point is as good as new for the next attempt; an older one is to be taken anew.
        """
        age = jnp.where(after.spectrum.age == 1, 0, self.kept)
        spectrum = dataclasses.replace(after.spectrum, age=age)
        return _State(before.measured, spectrum, before.allowed, after.work)

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step; the order that it used is the number of rows that it needed."""
        h, start = t1 - t0, solver_state.measured
        flat, unravel = ravel_pytree(y0)
        slope, _ = ravel_pytree(start.slope)

        def f(vector: Array) -> Array:
            return ravel_pytree(terms.vf(t0, unravel(vector), args))[0]

        spectrum, products = self._spectrum(f, flat, solver_state.spectrum)
        move = h * spectrum.vectors @ (slope @ spectrum.vectors / (1 + h * spectrum.values))
        rtol: Any = self.rtol
        far = jnp.sum(move**2) > self.still * rtol * jnp.sum(flat**2)
        stiff = (h * jnp.max(spectrum.values) > self.frozen_up_to) & far

        def row(j: Array) -> tuple[PyTree, Array]:
            def resolvent(known: _Spectrum, vector: Array) -> Array:
                return known.vectors @ (vector @ known.vectors / (1 + h / j * known.values))

            def direction(i: Array, y: Array) -> tuple[Array, Array]:
                known = jax.lax.cond(stiff, lambda: self._fresh(f, y), lambda: spectrum)
                return resolvent(known, f(y)), jnp.where(stiff, y.size, 0)

            return substeps(direction, flat, resolvent(spectrum, slope), h / j, j)

        table = extrapolate(row, flat, jnp.where(h == 0, 0, self.columns), self.columns, self.rtol, self.atol)
        y1 = unravel(flat + table.increment)
        size = jnp.where(jnp.isnan(table.error), jnp.inf, table.error)
        length, allowed = self._next(
            h, size, best_factor(table.errors, table.rows, self.overhead), spectrum.age, solver_state.allowed
        )
        spent = Work(jnp.sign(table.rows) + table.rows * (table.rows - 1) // 2, products + table.passes)
        end = self.measure_at(terms, t1, y1, args)
        state = _State(end, spectrum, allowed, solver_state.work + spent)
        proposal = Proposal(size, length / h, aimed=True)
        return y1, proposal, {"y0": y0, "y1": y1}, state, diffrax.RESULTS.successful

    def _spectrum(
        self, f: Callable[[Array], Array], y: Float[Array, " p"], known: _Spectrum
    ) -> tuple[_Spectrum, Int[Array, ""]]:
        """Return the Hessian to step with from `y`, one attempt older, and the products that it took."""
        due = known.age >= self.kept
        spectrum = jax.lax.cond(due, lambda: self._fresh(f, y), lambda: known)
        spectrum = dataclasses.replace(spectrum, age=spectrum.age + 1)
        return spectrum, jnp.where(due, y.size, 0)

    def _fresh(self, f: Callable[[Array], Array], y: Float[Array, " p"]) -> _Spectrum:
        """Return the Hessian at `y`."""
        _, product = jax.linearize(f, y)
        matrix = -jax.lax.map(product, jnp.eye(y.size, dtype=y.dtype), batch_size=self.together)
        # Where f has no derivative, the step is explicit.
        matrix = jnp.where(jnp.isfinite(matrix), matrix, 0)
        values, vectors = decomposition((matrix + matrix.T) / 2)
        zero = self.rounding * jnp.finfo(y.dtype).eps * jnp.max(jnp.abs(values))
        return _Spectrum(jnp.where(values > zero, values, 0), vectors, jnp.array(0))

    def _next(
        self, h: Array, size: Array, factor: Array, age: Array, before: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the length of the next step, or of the next attempt, and what this step allows, its trend aside.

        `before` is what the last one allowed.
        """
        allowed = h * jnp.clip(factor, self.shortest, self.longest)
        onward = allowed * jnp.clip(allowed / before, self.shortest, 1)
        again = jnp.where(jnp.isinf(size), 0.4, jnp.clip(factor, self.shortest, 0.9))
        # With a Hessian taken anew a longer step may do.
        again = jnp.where(age > 1, jnp.sqrt(again), again)
        kept = size <= 1
        return jnp.where(kept, onward, h * again), jnp.where(kept, allowed, before)
