"""Linearly implicit extrapolation with a low-rank curvature matrix."""

import dataclasses
from collections.abc import Callable
from math import isinf, prod
from typing import Any, ClassVar, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import GaussNewton, ResidualCurvature
from ..curvature.vectors import combination
from .field import Measured, VectorField
from .solver import SOLVERS, MeasuringSolver, Proposal, Work, no_work
from .step_control import growth, scaled_norm, size_beside_increment


class _State(eqx.Module):
    """What is known at y, the Frobenius norm of the last A, what A leaves out, if that is followed, since how many
    steps it is known, and the work so far.
    """

    measured: Measured
    curvature: Float[Array, ""]
    residual: ResidualCurvature | None
    age: Int[Array, ""]
    work: Work


@SOLVERS.register("LowRankExtrapolation")
class LowRankExtrapolation(MeasuringSolver):
    """Extrapolated linearly implicit Euler steps for y' = f(y), of variable order.

    For a step of length h, row j of the extrapolation table takes j substeps y ← y + (h/j)(I + (h/j)A)⁻¹ f(y). A = GᵀG
    is the `GaussNewton` matrix `curvature(y0)`, frozen, or in very stiff steps `curvature(y)` of each substep. Its rank
    is small, so a substep costs one evaluation of f and a system of that size. Polynomial extrapolation to h/j → 0 over
    rows 1, …, k gives order k with *any* A (a W-method); with A near −∂f/∂y in the stiff directions, accuracy alone
    limits the step, not stability. Rows are added until the difference of the last two columns is below the tolerance,
    and below a tenth of the increment of the step, so easy steps stay cheap, and the next step is as long as makes work
    per time least (Deuflhard 1985; Hairer and Wanner 1996, section IV.9).

    In bent valleys with large residuals what A leaves out of the Hessian H = −∂f/∂y would keep steps below some
    10/‖H − A‖. It is `followed` in so many directions, those in which it curves most, and added to A where it curves
    upwards (`flowsim.curvature.ResidualCurvature`). That costs a product with H for each, in every step long enough to
    feel it, and in every eighth of the others; zero switches it off. Memory: y0, `columns` + 6 arrays of its size and
    some four for each direction, and G where it is stored.

    `flowsim.integrate` fills in `curvature` for a problem that knows its outputs. `columns` is the largest order, and
    `overhead` the price of G and of the factorizations of one step, in evaluations of f. Stiff directions turn as the
    solution moves: steps with hλ beyond `frozen_up_to`, λ being the largest curvature, feel it, and take A anew in each
    substep. An f that is made of more than one gradient is given as `counted` besides, which returns f(y) and the
    linearized passes that it took.
    """

    curvature: Callable[[PyTree], GaussNewton] | None = None
    rtol: float | Float[Array, ""] | None = None
    atol: float | Float[Array, ""] | None = None
    columns: int = eqx.field(static=True, default=8)
    followed: int = eqx.field(static=True, default=8)
    overhead: float = eqx.field(static=True, default=6.0)
    frozen_up_to: float = eqx.field(static=True, default=100.0)
    measure: Callable[[PyTree], Measured] | None = None
    counted: Callable[[PyTree], tuple[PyTree, Int[Array, ""]]] | None = None
    felt: float = eqx.field(static=True, default=0.3)
    """A step of length h feels C = H − A where h‖C‖ is more than this."""
    looks_every: int = eqx.field(static=True, default=8)
    """Steps between two updates of C where it is not felt."""
    first_rise: float = eqx.field(static=True, default=1.6)
    """The third row of a table is tried for a step so much longer than two rows allow."""
    largest_rise: float = eqx.field(static=True, default=3.0)
    """A further row is trusted to lengthen the step by as much as the last one did, and by no more than this."""

    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = diffrax.LocalLinearInterpolation

    def __check_init__(self):
        if not 2 <= self.columns <= 12:
            raise ValueError(f"columns must be from 2 to 12, got {self.columns}: beyond, rounding eats the gain")
        if self.followed < 0:
            raise ValueError(f"followed must be a number of directions, zero or more, got {self.followed}")

    def memory(self) -> int:
        """Return what XLA plans beside the arguments, G left out: 30 arrays for 8 columns, and 4 for each direction."""
        return 14 + 2 * self.columns + 4 * self.followed

    def order(self, terms: Any) -> int:
        """Return the largest order, `columns`."""
        return self.columns

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return the state before the first step, in which only the field has been evaluated."""
        return self.beginning(y0, self.measure_at(terms, t0, y0, args))

    def blank(self, y0: PyTree) -> _State:
        """Return the state before anything is measured."""
        return self.beginning(y0, self.unmeasured(y0))

    def beginning(self, y0: PyTree, measured: Measured) -> _State:
        """Return the state before the first step, from what has been measured there."""
        residual = ResidualCurvature.unknown(y0, self.followed) if self.followed else None
        return _State(measured, jnp.zeros_like(measured.objective), residual, jnp.array(self.looks_every), no_work())

    def fill_in(self, field: VectorField, rtol: Float[Array, ""], atol: Float[Array, ""]) -> "LowRankExtrapolation":
        """Return the solver for a field, with what it leaves open filled in, the curvature too."""
        curvature = field.gauss_newton if self.curvature is None else self.curvature
        return dataclasses.replace(super().fill_in(field, rtol, atol), curvature=curvature)

    def taken_to(self, measured: Measured, solver_state: _State) -> _State:
        """Return the state at a point that another solver has reached."""
        return dataclasses.replace(solver_state, measured=measured)

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step; the order that it used is the number of rows that it needed."""
        h = t1 - t0
        gauss_newton = cast(Callable[[PyTree], GaussNewton], self.curvature)
        alone = gauss_newton(y0)
        state = self._update_residual(lambda y: terms.vf(t0, y, args), y0, alone, h, solver_state)

        def with_residual(matrix: GaussNewton) -> GaussNewton:
            return matrix if state.residual is None else matrix.with_rows(state.residual.rows)

        matrix = with_residual(alone)
        start = state.measured
        stiff = None if isinf(self.frozen_up_to) else h * matrix.stiffness > self.frozen_up_to

        def evaluate(t: Array, y: PyTree) -> tuple[PyTree, Array]:
            return (terms.vf(t, y, args), jnp.array(0)) if self.counted is None else self.counted(y)

        def row(j: Array) -> tuple[PyTree, Array]:
            frozen = matrix.resolvent(h / j)

            def direction(i: Array, y: PyTree) -> tuple[PyTree, Array]:
                f, passes = evaluate(t0 + i * h / j, y)
                if stiff is None:
                    return frozen(f), passes
                along = jax.lax.cond(
                    stiff, lambda: with_residual(gauss_newton(y)).resolvent(h / j)(f), lambda: frozen(f)
                )
                return along, passes

            return _substeps(direction, y0, frozen(start.slope), h / j, j)

        table = _extrapolate(row, y0, jnp.where(h == 0, 0, self.columns), self.columns, self.rtol, self.atol)
        factor = table.best_factor(self)
        y1 = jax.tree.map(jnp.add, y0, table.increment)
        end = self.measure_at(terms, t1, y1, args)
        spent = Work(jnp.sign(table.rows) + table.rows * (table.rows - 1) // 2, jnp.array(matrix.passes) + table.passes)
        state = dataclasses.replace(state, measured=end, curvature=matrix.size, work=state.work + spent)
        return y1, Proposal(table.error, factor), {"y0": y0, "y1": y1}, state, diffrax.RESULTS.successful

    def _update_residual(
        self, f: Callable[[PyTree], PyTree], y: PyTree, matrix: GaussNewton, h: Float[Array, ""], state: _State
    ) -> _State:
        """Return the state in which what A leaves out at `y` is known as well as a step of length `h` needs it."""
        residual = state.residual
        if residual is None:
            return state

        def update() -> _State:
            _, moved = jax.linearize(f, y)

            def product(vector: PyTree) -> PyTree:
                return jax.tree.map(lambda a, b: -a - b, moved(vector), matrix.outer(matrix.inner(vector)))

            count = jax.tree.leaves(residual.directions)[0].shape[0]
            work = state.work + Work(jnp.array(0), jnp.array(count))
            return dataclasses.replace(state, residual=residual.update(product), age=jnp.array(1), work=work)

        due = (h * residual.size > self.felt) | (state.age >= self.looks_every)
        return jax.lax.cond(due, update, lambda: dataclasses.replace(state, age=state.age + 1))


def _substeps(
    direction: Callable[[Array, PyTree], tuple[PyTree, Array]],
    y0: PyTree,
    first: PyTree,
    length: Float[Array, ""],
    count: Int[Array, ""],
) -> tuple[PyTree, Int[Array, ""]]:
    """Return y − y0 after `count` substeps of one `length`, the first of them in direction `first`, and the passes."""

    def substep(i: Array, state: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        moved, passes = state
        toward, spent = direction(i, jax.tree.map(jnp.add, y0, moved))
        return jax.tree.map(lambda a, b: a + length * b, moved, toward), passes + spent

    return jax.lax.fori_loop(1, count, substep, (jax.tree.map(lambda b: length * b, first), jnp.array(0)))


class _Table(eqx.Module):
    """The rows of an extrapolation table so far, as increments over y0, and what they say."""

    ends: PyTree
    rows: Int[Array, ""]
    errors: Float[Array, " orders"]
    increment: PyTree
    passes: Int[Array, ""]

    @property
    def error(self) -> Float[Array, ""]:
        """The scaled norm of the last row's error estimate."""
        return self.errors[self.rows]

    def best_factor(self, solver: LowRankExtrapolation) -> Float[Array, ""]:
        """Return the factor from this step to the next that makes the work per unit of time least."""
        columns = solver.columns
        order = jnp.arange(columns + 1)
        number = order.astype(self.errors.dtype)
        work = solver.overhead + number**2 / 2
        computed = (order >= 2) & (order <= self.rows)
        factors = jnp.where(computed, growth(self.errors, jnp.maximum(number, 1)), 1e-10)
        cost = work / factors
        best = jnp.argmin(cost)
        # Where the last row was the cheapest of all, one more may be cheaper still: try the step that it would allow,
        # by the growth from the row before to the last, or at least the step that pays for one more row.
        last = jnp.minimum(self.rows, columns - 1)
        rising = (best == self.rows) & (self.rows < columns) & (self.error <= 1)
        trend = jnp.clip(factors[last] / factors[last - 1], 1, solver.largest_rise)
        trend = jnp.where(last > 2, trend, solver.first_rise)
        return jnp.where(rising, factors[last] * jnp.maximum(trend, work[last + 1] / work[last]), factors[best])


def _extrapolate(
    row: Callable[[Array], tuple[PyTree, Array]], y0: PyTree, most: Int[Array, ""], columns: int, rtol: Any, atol: Any
) -> _Table:
    """Add rows to the table until its error estimate is below one, it stops falling, or there are `most` rows."""
    weights, differences = map(jnp.asarray, _extrapolation_weights(columns))
    zeros = jax.tree.map(jnp.zeros_like, y0)
    dtype = jax.tree.leaves(y0)[0].dtype
    ends = jax.tree.map(lambda leaf: jnp.zeros((columns, *leaf.shape), leaf.dtype), y0)
    empty = _Table(ends, jnp.array(0), jnp.full(columns + 1, jnp.inf, dtype), zeros, jnp.array(0))

    def unfinished(table: _Table) -> Array:
        falling = (table.rows < 4) | (table.errors[table.rows] < table.errors[table.rows - 1])
        return (table.rows < most) & ((table.rows < 2) | ((table.error > 1) & falling))

    def add_row(table: _Table) -> _Table:
        rows = table.rows + 1
        end, passes = row(rows)
        ends = jax.tree.map(lambda buffer, new: buffer.at[rows - 1].set(new), table.ends, end)
        increment = combination(weights[rows], ends)
        difference = combination(differences[rows], ends)
        error = scaled_norm(difference, y0, jax.tree.map(jnp.add, y0, increment), rtol, atol)
        error = jnp.maximum(error, size_beside_increment(difference, increment, y0))
        error = jnp.where(rows >= 2, error, jnp.inf).astype(dtype)
        return _Table(ends, rows, table.errors.at[rows].set(error), increment, table.passes + passes)

    return jax.lax.while_loop(unfinished, add_row, empty)


def _extrapolation_weights(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for k = 0, …, `columns` the weights of rows 1, …, k in T_kk, and those in T_kk − T_k,k−1.

    T_kk is the value at zero of the polynomial in h/j through rows 1, …, k; T_k,k−1 leaves the first row out.
    """

    def lagrange(first: int, last: int) -> np.ndarray:
        nodes = range(first, last + 1)
        weights = [prod(j / (j - i) for i in nodes if i != j) if j in nodes else 0.0 for j in range(1, columns + 1)]
        return np.array(weights)

    best = np.stack([lagrange(1, k) for k in range(columns + 1)])
    return best, best - np.stack([lagrange(2, k) for k in range(columns + 1)])
