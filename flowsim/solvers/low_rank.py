"""Linearly implicit extrapolation with a low-rank curvature matrix."""

import dataclasses
from collections.abc import Callable
from math import isinf
from typing import Any, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import GaussNewton, ResidualCurvature
from ..curvature.vectors import scaled
from .extrapolation import Allowed, ExtrapolatedSolver, best_factor, extrapolate, substeps
from .field import Measured, VectorField
from .solver import SOLVERS, Proposal, Work, no_work
from .step_control import ErrorScale


class _State(eqx.Module):
    """What is known at y, the Frobenius norm of the last A, what steps were allowed, what A leaves out, if that is
    followed, since how many steps it is known, and the work so far.
    """

    measured: Measured
    curvature: Float[Array, ""]
    allowed: Allowed
    residual: ResidualCurvature | None
    age: Int[Array, ""]
    work: Work


@SOLVERS.register("LowRankExtrapolation")
class LowRankExtrapolation(ExtrapolatedSolver):
    """Extrapolated linearly implicit Euler steps for y' = f(y), of variable order.

    For a step of length h, row j of the extrapolation table takes j substeps y ← y + (h/j)(I + (h/j)A)⁻¹ f(y). A = GᵀG,
    and λI beside it with weight decay, is the `GaussNewton` matrix `curvature(y0)`, frozen, or in very stiff steps
    `curvature(y)` of each substep. The rank of GᵀG is small, so a substep costs one evaluation of f and a system of
    that size. Polynomial extrapolation to h/j → 0 over rows 1, …, k gives order k with *any* A (a W-method); with A
    near −∂f/∂y in the stiff directions, accuracy alone limits the step, not stability. Rows are added until the
    difference of the last two columns is below the tolerance, and below a tenth of the increment of the step, so easy
    steps stay cheap, and the next step is as long as makes work per time least (Deuflhard 1985; Hairer and Wanner 1996,
    section IV.9). A kink of f in the last substep shows in f(y1) alone, and counts, too.

    In bent valleys with large residuals what A leaves out of the Hessian H = −∂f/∂y would keep steps below some 10/‖H −
    A‖. It is `followed` in so many directions, those in which it curves most, and added to A where it curves upwards
    (`flowsim.curvature.ResidualCurvature`). That costs a product with H for each, in every step long enough to feel it,
    and in every eighth of the others. Memory: y0, 2·`columns` + 7 arrays of its size and some four for each direction,
    and G where it is stored.

    Stiff directions turn as the solution moves: steps with hλ beyond `frozen_up_to`, λ being the largest curvature,
    feel it, and take A anew in each substep.
    """

    curvature: Callable[[PyTree], GaussNewton] | None = None
    """Returns the Gauss–Newton matrix at y; filled in by `flowsim.integrate` for a problem that knows its outputs."""
    rtol: float | Float[Array, ""] | None = None
    """Relative tolerance of a step; filled in by `flowsim.integrate`."""
    atol: float | Float[Array, ""] | None = None
    """Absolute tolerance of a step; filled in by `flowsim.integrate`."""
    columns: int = eqx.field(static=True, default=8)
    """The largest order."""
    followed: int = eqx.field(static=True, default=8)
    """In how many directions the rest of the Hessian is followed; 0: in none."""
    overhead: float = eqx.field(static=True, default=6.0)
    """The price of G and of the factorizations of one step, in evaluations of f."""
    frozen_up_to: float = eqx.field(static=True, default=100.0)
    """Up to which hλ a step keeps A in all of its substeps."""
    measure: Callable[[PyTree], Measured] | None = None
    """Evaluates f and the objective; filled in by `flowsim.integrate`."""
    counted: Callable[[PyTree], tuple[PyTree, Int[Array, ""]]] | None = None
    """For an f that is made of more than one gradient: returns f(y) and the linearized passes that it took."""
    felt: float = eqx.field(static=True, default=0.3)
    """A step of length h feels C = H − A where h‖C‖ is more than this."""
    looks_every: int = eqx.field(static=True, default=8)
    """Steps between two updates of C where it is not felt."""

    def __check_init__(self):
        if self.followed < 0:
            raise ValueError(f"followed must be a number of directions, zero or more, got {self.followed}")

    def memory(self) -> int:
        """Return what XLA plans beside the arguments, G left out: 39 arrays for 8 columns, and 4 for each direction."""
        return 15 + 3 * self.columns + 4 * self.followed

    def beginning(self, y0: PyTree, measured: Measured) -> _State:
        """Return the state before the first step, from what has been measured there."""
        residual = ResidualCurvature.unknown(y0, self.followed) if self.followed else None
        zero = jnp.zeros_like(measured.objective)
        return _State(measured, zero, Allowed.unknown(zero), residual, jnp.array(self.looks_every), no_work())

    def fill_in(self, field: VectorField, rtol: Float[Array, ""], atol: Float[Array, ""]) -> "LowRankExtrapolation":
        """Return the solver for a field, with what it leaves open filled in, the curvature too."""
        curvature = field.gauss_newton if self.curvature is None else self.curvature
        return dataclasses.replace(super().fill_in(field, rtol, atol), curvature=curvature)

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step; the order that it used is the number of rows that it needed."""
        h = t1 - t0
        gauss_newton = cast(Callable[[PyTree], GaussNewton], self.curvature)
        alone, state, residual = gauss_newton(y0), solver_state, solver_state.residual
        if residual is not None:
            # What A leaves out is to be known as well as a step of this length needs it.

            def update() -> _State:
                _, moved = jax.linearize(lambda y: terms.vf(t0, y, args), y0)

                def product(vector: PyTree) -> PyTree:
                    return jax.tree.map(lambda a, b: -a - b, moved(vector), alone(vector))

                count = jax.tree.leaves(residual.directions)[0].shape[0]
                work = state.work + Work(jnp.array(0), jnp.array(count))
                return dataclasses.replace(state, residual=residual.update(product), age=jnp.array(1), work=work)

            due = (h * residual.size > self.felt) | (state.age >= self.looks_every)
            state = jax.lax.cond(due, update, lambda: dataclasses.replace(state, age=state.age + 1))

        def with_residual(matrix: GaussNewton) -> GaussNewton:
            return matrix if state.residual is None else matrix.with_rows(state.residual.rows)

        matrix = with_residual(alone)
        start = state.measured
        stiff = None if isinf(self.frozen_up_to) else h * matrix.stiffness > self.frozen_up_to

        def row(j: Array) -> tuple[PyTree, PyTree, Array]:
            frozen = matrix.resolvent(h / j)

            def direction(i: Array, y: PyTree) -> tuple[PyTree, Array]:
                t = t0 + i * h / j
                f, passes = (terms.vf(t, y, args), jnp.array(0)) if self.counted is None else self.counted(y)
                if stiff is None:
                    return frozen(f), passes
                along = jax.lax.cond(
                    stiff, lambda: with_residual(gauss_newton(y)).resolvent(h / j)(f), lambda: frozen(f)
                )
                return along, passes

            return substeps(direction, y0, frozen(start.slope), h / j, j)

        rows = jnp.where(h == 0, 0, self.columns)
        scale = ErrorScale.of(y0, scaled(h, start.slope), self.rtol, self.atol)
        table = extrapolate(row, scale, rows, self.columns)
        y1 = jax.tree.map(jnp.add, y0, table.increment)
        end = self.measure_at(terms, t1, y1, args)
        length = h / jnp.maximum(table.rows, 1)
        turned = False if stiff is None else stiff
        table = table.with_end(scale, end.slope, length, matrix.resolvent(length), turned=turned)
        factor = best_factor(table.errors, table.rows, self.overhead)
        work = Work(jnp.sign(table.rows) + table.rows * (table.rows - 1) // 2, jnp.array(matrix.passes) + table.passes)
        length, allowed = state.allowed.after(h, table.error, factor)
        work += state.work
        state = dataclasses.replace(state, measured=end, curvature=matrix.size, allowed=allowed, work=work)
        proposal = Proposal(table.error, length / h, aimed=True, rounded=table.rounded)
        return y1, proposal, {"y0": y0, "y1": y1}, state, diffrax.RESULTS.successful
