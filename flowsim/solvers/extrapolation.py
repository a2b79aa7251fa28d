"""The table of an extrapolated method, row by row (Deuflhard 1985; Hairer and Wanner 1996, section IV.9)."""

import abc
import dataclasses
from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..curvature.vectors import combination, scaled
from .field import Measured, norms
from .solver import MeasuringSolver, Proposal, Work
from .step_control import ErrorScale, growth


def substeps(
    direction: Callable[[Array, PyTree], tuple[PyTree, Array]],
    y0: PyTree,
    first: PyTree,
    length: Float[Array, ""],
    count: Int[Array, ""],
) -> tuple[PyTree, PyTree, Int[Array, ""]]:
    """Return y − y0 after `count` substeps of one `length`, the direction of the last one, and the passes.

    The first substep is in direction `first`.
    """

    def substep(i: Array, state: tuple[PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, Array]:
        moved, _, passes = state
        toward, spent = direction(i, jax.tree.map(jnp.add, y0, moved))
        return jax.tree.map(lambda a, b: a + length * b, moved, toward), toward, passes + spent

    return jax.lax.fori_loop(1, count, substep, (jax.tree.map(lambda b: length * b, first), first, jnp.array(0)))


class ExtrapolatedSolver(MeasuringSolver):
    """Extrapolated linearly implicit Euler steps, of up to `columns` rows; `beginning` says what their state is."""

    columns: eqx.AbstractVar[int]
    overhead: eqx.AbstractVar[float]

    held_back: ClassVar[float] = 1e-3
    """A step is held back where it leads less far than this share of the weights, and the next one no farther"""
    growing: ClassVar[float] = 3.0
    """than so many times as far."""
    rows: ClassVar[int] = 15
    """The evaluations of f of a usual step, of five rows of the table."""
    explicit_reach: ClassVar[float] = 10.0
    """How far hρ a step leads in a direction that its curvature matrix leaves out."""
    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = diffrax.LocalLinearInterpolation

    def __check_init__(self):
        if not 2 <= self.columns <= 12:
            raise ValueError(f"columns must be from 2 to 12, got {self.columns}: beyond, rounding eats the gain")

    def order(self, terms: Any) -> int:
        """Return the largest order, `columns`."""
        return self.columns

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> Any:
        """Return the state before the first step, in which only the field has been evaluated."""
        return self.beginning(y0, self.measure_at(terms, t0, y0, args))

    def blank(self, y0: PyTree) -> Any:
        """Return the state before anything is measured."""
        return self.beginning(y0, self.unmeasured(y0))

    def price(self, spent: Work) -> Array:
        """Return what a step that has `spent` so much costs, in evaluations of f."""
        return spent.gradients + self.overhead

    def usual_price(self, weights: int) -> float:
        """Return about what a step costs, in evaluations of f, where there are so many weights."""
        return self.overhead + self.rows

    def is_strained(self, after: Any, proposal: Proposal, y0: PyTree, y1: PyTree) -> Bool[Array, ""]:
        """Tell whether the step from `y0` to `y1` leads nowhere, and the next is to be hardly longer."""
        moved, size = norms(jax.tree.map(jnp.subtract, y1, y0), y0)
        return (moved < self.held_back * size) & (proposal.factor < self.growing)

    def price_over(self, reach: Float[Array, ""]) -> Float[Array, ""]:
        """Return about what steps over `reach` = hρ cost, in evaluations of f, where what the curvature matrix leaves
        out is as large as it.
        """
        return (self.overhead + self.rows) * jnp.maximum(reach / self.explicit_reach, 1)

    @abc.abstractmethod
    def beginning(self, y0: PyTree, measured: Measured) -> Any:
        """Return the state before the first step, from what has been measured there."""


class Allowed(eqx.Module):
    """What length the last step of a run of ever shorter ones has allowed; infinite outside of such a run.

    Towards the end of a plateau steps have to shorten by the same factor one after the other. So after a rejection each
    step is shortened by as much as the last one was, until one allows a longer one.
    """

    last: Float[Array, ""]

    shortest: ClassVar[float] = 0.2
    longest: ClassVar[float] = 10.0
    """Bounds of the factor from a step to the next."""
    lost: ClassVar[float] = 0.4
    """The factor to the next attempt after one that has left the domain of f."""

    @classmethod
    def unknown(cls, like: Float[Array, ""]) -> "Allowed":
        """Return the state before the first step."""
        return cls(jnp.full_like(like, jnp.inf))

    def after(
        self,
        h: Float[Array, ""],
        size: Float[Array, ""],
        factor: Float[Array, ""],
        *,
        most: ArrayLike = jnp.inf,
        stale: ArrayLike = False,
    ) -> tuple[Float[Array, ""], "Allowed"]:
        """Return the length of the step, or of the attempt, that follows one of length `h`, and what is known then.

        `size` is that of its error, and `factor` what that allows, up to a length of `most`. With a `stale` curvature
        matrix, taken anew after a rejection, a longer attempt may do.
        """
        allowed = jnp.minimum(h * jnp.clip(factor, self.shortest, self.longest), most)
        shortening = jnp.isfinite(self.last) & (allowed < self.last)
        onward = jnp.where(shortening, allowed * jnp.clip(allowed / self.last, self.shortest, 1), allowed)
        again = jnp.where(jnp.isfinite(size), jnp.clip(factor, self.shortest, 0.9), self.lost)
        again = h * jnp.where(stale, jnp.sqrt(again), again)
        # What was rejected first is what the last step that was kept has allowed.
        rejected = jnp.where(jnp.isinf(self.last) & (h > 0), h, self.last)
        last = jnp.where(size <= 1, jnp.where(shortening, allowed, jnp.inf), rejected)
        return jnp.where(size <= 1, onward, again), Allowed(last)


class Table(eqx.Module):
    """The rows of an extrapolation table so far: their increments over y0, the slopes of their last substeps, and what
    they say.
    """

    ends: PyTree
    slopes: PyTree
    rows: Int[Array, ""]
    errors: Float[Array, " orders"]
    increment: PyTree
    passes: Int[Array, ""]
    rounded: Bool[Array, ""]

    @property
    def error(self) -> Float[Array, ""]:
        """The scaled norm of the last row's error estimate, infinite where it is not known."""
        last = self.errors[self.rows]
        return jnp.where(jnp.isnan(last), jnp.inf, last)

    def with_end(
        self,
        scale: ErrorScale,
        slope: PyTree,
        length: Float[Array, ""],
        resolvent: Callable[[PyTree], PyTree],
        *,
        turned: ArrayLike = False,
        sudden: float = 100.0,
    ) -> "Table":
        """Return the table whose last error counts a kink of f in the last substep, too.

        The rows evaluate f up to the beginning of their last substep, of this `length`: a kink beyond shows in none.
        There `slope` = f(y1) differs from the value to which the slopes of the last substeps extrapolate, by more than
        `sudden` times what a row changes in that value. Half a substep with that difference is about the error.
        `resolvent` is (I + length·A)⁻¹. Where A has `turned` within the step, it leaves parts of f(y1) undamped, and
        nothing is counted.
        """
        weights, differences = map(jnp.asarray, extrapolation_weights(len(self.errors) - 1))
        overlooked = jax.tree.map(jnp.subtract, slope, combination(weights[self.rows], self.slopes))
        jump, smooth = norms(overlooked, combination(differences[self.rows], self.slopes))

        def with_kink() -> Float[Array, ""]:
            y1 = jax.tree.map(jnp.add, scale.y0, self.increment)
            sizes = scale.sizes(y1, scaled(length / 2, resolvent(overlooked)))
            return jnp.maximum(self.error, sizes.in_tolerance[0].astype(self.errors.dtype))

        error = jax.lax.cond((jump > sudden * smooth) & ~jnp.asarray(turned), with_kink, lambda: self.error)
        return dataclasses.replace(self, errors=self.errors.at[self.rows].set(error))


def believable_error(
    scale: ErrorScale,
    increment: PyTree,
    difference: PyTree,
    errors: Float[Array, " orders"],
    row: Int[Array, ""],
    *,
    sooner: float = 30.0,
    short: float = 0.03,
    share: float = 0.1,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Return the error estimate of a `row`, from the `difference` of two columns, and whether it may be rounding.

    The difference may pass zero, as in the middle of a jump. So the `errors` of the two rows before bound the estimate
    from below: it falls at most `sooner` times as fast as the one before did. From the second row to the third errors
    fall like hλ, and the error of the second row is of order (hλ)². The second row alone is believed only of steps
    that move y0 by at most the share `short`.

    The error has to be a `share` of the increment, too, or its rounding. Near a limit, steps as long as the tolerance
    allows may circle it with errors as large as the tolerance. A step whose error is a small part of its increment
    comes closer each time.
    """
    sizes = scale.sizes(jax.tree.map(jnp.add, scale.y0, increment), difference)
    error = jnp.maximum(sizes.in_tolerance, sizes.norms / (share * sizes.moved + sizes.rounding))[0]
    before, earlier = errors[row - 1], errors[row - 2]
    fall = jnp.where(row > 3, before / earlier, jnp.sqrt(before * scale.rtol))
    expected = jnp.where(row > 2, before * fall / sooner, jnp.where(sizes.moved > short * scale.weights, 2, 0))
    error = jnp.where(jnp.isfinite(expected), jnp.maximum(error, expected), error)
    return jnp.where(row >= 2, error, jnp.inf).astype(errors.dtype), sizes.are_rounding()[0]


def best_factor(
    errors: Float[Array, " orders"],
    rows: Int[Array, ""],
    overhead: float,
    *,
    first_rise: float = 1.6,
    largest_rise: float = 3.0,
) -> Float[Array, ""]:
    """Return the factor from a step to the next that makes the work per unit of time least.

    `errors[k]` is the error estimate of order k, up to that of the last of the `rows`. `overhead` is the price of a
    step beside its rows, in evaluations of f. The third row of a table is tried for a step `first_rise` times as long
    as two rows allow. A further row is trusted to lengthen the step by as much as the last one did, and by no more than
    `largest_rise`.
    """
    columns = len(errors) - 1
    number = jnp.arange(columns + 1, dtype=errors.dtype)
    work = overhead + number**2 / 2
    computed = (number >= 2) & (number <= rows)
    factors = jnp.where(computed, growth(errors, jnp.maximum(number, 1)), 1e-10)
    best = jnp.argmin(work / factors)
    # Where the last row was the cheapest of all, one more may be cheaper still: try the step that it would allow, by
    # the growth from the row before to the last, or at least the step that pays for one more row.
    last = jnp.minimum(rows, columns - 1)
    rising = (best == rows) & (rows < columns) & (errors[rows] <= 1)
    trend = jnp.clip(factors[last] / factors[last - 1], 1, largest_rise)
    trend = jnp.where(last > 2, trend, first_rise)
    return jnp.where(rising, factors[last] * jnp.maximum(trend, work[last + 1] / work[last]), factors[best])


def extrapolate(
    row: Callable[[Array], tuple[PyTree, PyTree, Array]],
    scale: ErrorScale,
    most: Int[Array, ""],
    columns: int,
) -> Table:
    """Add rows to the table until its error estimate is below one, it stops falling, or there are `most` rows.

    `row` returns the increment of a row, the slope of its last substep, and its passes.
    """
    weights, differences = map(jnp.asarray, extrapolation_weights(columns))
    y0 = scale.y0
    zeros = jax.tree.map(jnp.zeros_like, y0)
    dtype = jax.tree.leaves(y0)[0].dtype
    ends = jax.tree.map(lambda leaf: jnp.zeros((columns, *leaf.shape), leaf.dtype), y0)
    unknown = jnp.full(columns + 1, jnp.inf, dtype)
    empty = Table(ends, ends, jnp.array(0), unknown, zeros, jnp.array(0), jnp.array(False))

    def unfinished(table: Table) -> Array:
        falling = (table.rows < 4) | (table.errors[table.rows] < table.errors[table.rows - 1])
        return (table.rows < most) & ((table.rows < 2) | ((table.error > 1) & falling))

    def add_row(table: Table) -> Table:
        rows = table.rows + 1
        end, slope, passes = row(rows)
        ends, slopes = jax.tree.map(
            lambda buffer, new: buffer.at[rows - 1].set(new), (table.ends, table.slopes), (end, slope)
        )
        increment = combination(weights[rows], ends)
        difference = combination(differences[rows], ends)
        error, rounded = believable_error(scale, increment, difference, table.errors, rows)
        errors = table.errors.at[rows].set(error)
        return Table(ends, slopes, rows, errors, increment, table.passes + passes, rounded)

    return jax.lax.while_loop(unfinished, add_row, empty)


def extrapolation_weights(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for k = 0, …, `columns` the weights of rows 1, …, k in T_kk, and those in T_kk − T_k,k−1.

    T_kk is the value at zero of the polynomial in h/j through rows 1, …, k; T_k,k−1 leaves the first row out.
    """
    best, before = np.zeros((2, columns + 1, columns))
    for first, weights in ((1, best), (2, before)):
        for last in range(first, columns + 1):
            nodes = range(first, last + 1)
            weights[last, first - 1 : last] = [prod(j / (j - i) for i in nodes if i != j) for j in nodes]
    return best, best - before
