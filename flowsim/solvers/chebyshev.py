"""A stabilized explicit method."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from numpy.typing import NDArray

from ..curvature.vectors import scaled
from .field import Measured, norms
from .solver import SOLVERS, MeasuringSolver, Proposal, Work, no_work
from .step_control import ErrorScale, SpectralRadius, growth

# The stages of the last method in the table.
MOST_STAGES = 500


class _State(eqx.Module):
    measured: Measured
    radius: SpectralRadius
    work: Work


@SOLVERS.register("RungeKuttaChebyshev")
class RungeKuttaChebyshev(MeasuringSolver):
    """The Runge–Kutta–Chebyshev method of order 2 (RKC2; Sommeijer, Shampine and Verwer 1998).

    It is explicit, with s stages whose stability interval on the negative real axis is (s² − 1)/1.54 long, so a stiff
    problem with a symmetric Jacobian of spectral radius ρ costs √ρ where another explicit method costs ρ. The number of
    stages of each step, one of a table, follows from ρ at its start, by power iteration that goes on from that of the
    step before. Memory: y0 and six arrays of its size, for any number of stages.
    """

    rtol: float | Float[Array, ""] | None = None
    """Relative tolerance of a step; filled in by `flowsim.integrate`."""
    atol: float | Float[Array, ""] | None = None
    """Absolute tolerance of a step; filled in by `flowsim.integrate`."""
    max_stages: int = eqx.field(static=True, default=MOST_STAGES)
    """The largest number of stages: where a step would need more, it is shortened instead."""
    iterations: int = eqx.field(static=True, default=2)
    """The steps of power iteration for each step."""
    measure: Callable[[PyTree], Measured] | None = None
    """Evaluates f and the objective; filled in by `flowsim.integrate`."""
    cap: float = eqx.field(static=True, default=0.8)
    """The share of the longest stable step that is asked for: ρ may have risen by the next one."""

    interpolation_cls: ClassVar[Callable[..., diffrax.ThirdOrderHermitePolynomialInterpolation]] = (
        diffrax.ThirdOrderHermitePolynomialInterpolation
    )

    def __check_init__(self):
        if not 2 <= self.max_stages <= MOST_STAGES:
            raise ValueError(f"max_stages must be from 2 to {MOST_STAGES}, got {self.max_stages}")

    def memory(self) -> int:
        """Return what XLA plans beside the arguments (`benchmarks/large_flow.py`): 9 arrays, whatever the stages."""
        return 9

    def order(self, terms: Any) -> int:
        """Return 2."""
        return 2

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return f(y0) and a first estimate of the spectral radius."""
        radius = SpectralRadius.first(lambda y: terms.vf(t0, y, args), y0)
        return _State(self.measure_at(terms, t0, y0, args), radius, no_work())

    def blank(self, y0: PyTree) -> _State:
        """Return the state before anything is measured."""
        return _State(self.unmeasured(y0), SpectralRadius.unknown(y0), no_work())

    def steady_order(self, solver_state: Any) -> bool:
        """Return True: the error of a step falls by its order."""
        return True

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step, with as many stages as stability asks."""
        h = jnp.asarray(t1 - t0)
        iterations = jnp.where(h == 0, SpectralRadius.first_iterations, self.iterations)
        radius = solver_state.radius.iterate(lambda y: terms.vf(t0, y, args), y0, iterations)
        bound = radius.bound
        methods = Family(0, stability_lengths(self.max_stages))
        method = methods.method_for(h * bound)
        start = solver_state.measured
        y1 = chebyshev_step(lambda c, y: terms.vf(t0 + c * h, y, args), y0, start.slope, h, method)
        end = self.measure_at(terms, t1, y1, args)
        stages = jnp.asarray(chebyshev_stages())[method]
        longest = float(methods.reach[-1]) / bound
        error = defect(y0, y1, start.slope, end.slope, h)
        tangent = scaled(h, start.slope)
        sizes = ErrorScale.of(y0, tangent, self.rtol, self.atol).sizes(y1, error, low=True)
        size = jnp.where(h <= longest, sizes.in_tolerance[0], jnp.inf)
        factor = jnp.minimum(limit_growth(growth(size, 3), *norms(start.slope, end.slope)), self.cap * longest / h)
        spent = Work(jnp.where(h == 0, 0, stages), jnp.where(h == 0, 0, iterations))
        state = _State(end, radius, solver_state.work + spent)
        dense = {"y0": y0, "y1": y1, "k0": tangent, "k1": scaled(h, end.slope)}
        proposal = Proposal(size, factor, rounded=sizes.are_rounding()[0])
        return y1, proposal, dense, state, diffrax.RESULTS.successful


def limit_growth(
    factor: Float[Array, ""], speed0: Float[Array, ""], speed1: Float[Array, ""], *, largest: float = 2.5
) -> Float[Array, ""]:
    """Return `factor`, but moderate growth only, up to `largest`, and none where the step has halved the field already.

    Its norms are `speed0` where the step begins, and `speed1` where it ends.

    Inside its stability interval the method damps every component by about one and the same factor, however long the
    step is: beyond the length that the slowest one needs, stages are wasted.
    """
    return jnp.minimum(factor, jnp.where(speed1 < speed0 / 2, 1, largest))


def reach_of(stages: int) -> float:
    """Return the length of the stability interval."""
    return (stages**2 - 1) / 1.54


def stability_lengths(max_stages: int) -> NDArray:
    """Return the length of the stability interval of each method in the table, up to `max_stages`."""
    return np.array([reach_of(stages) for stages in chebyshev_stages(max_stages)])


class Family(NamedTuple):
    """Where the methods of one order lie in a table, from `first` on, and how far each is stable."""

    first: int
    reach: NDArray

    def method_for(self, reach: Float[Array, ""]) -> Int[Array, ""]:
        """Return the row of the method with the fewest stages that is stable over `reach` = hρ, or of the last one."""
        return self.first + jnp.sum(reach > jnp.asarray(self.reach[:-1]))


def defect(y0: PyTree, y1: PyTree, slope0: PyTree, slope1: PyTree, h: Float[Array, ""]) -> PyTree:
    """Return the error estimate of the second-order method over a step, from the defect of the trapezoidal rule."""
    return jax.tree.map(lambda a, b, f0, f1: 0.8 * (a - b) + 0.4 * h * (f0 + f1), y0, y1, slope0, slope1)


def chebyshev_step(
    field: Callable[[Array, PyTree], PyTree], y0: PyTree, slope: PyTree, h: Float[Array, ""], method: Int[Array, ""]
) -> PyTree:
    """Return y1 after one step by a row of the table, from the field at (c, y), c the fraction, and its first value.

    The three-term recurrence of the stages runs in increments over y0.
    """
    recurrence, stages, first = (jnp.asarray(column) for column in _table())
    recurrence = recurrence.astype(h.dtype)  # in double precision, even where the weights are not

    def stage(j: Array, state: tuple) -> tuple:
        before, here, c = state
        mu, nu, kappa, damping, after = recurrence[first[method] + j]
        f = field(c, jax.tree.map(jnp.add, y0, here))
        new = jax.tree.map(lambda s, m, n, s0: h * (mu * s + damping * s0) + nu * m + kappa * n, f, here, before, slope)
        return here, new, after

    zeros = jax.tree.map(jnp.zeros_like, y0)
    opening, c = recurrence[first[method], 0], recurrence[first[method], 4]
    moved = jax.lax.fori_loop(1, stages[method], stage, (zeros, scaled(opening * h, slope), c))[1]
    return jax.tree.map(jnp.add, y0, moved)


@functools.cache
def chebyshev_stages(max_stages: int = MOST_STAGES) -> tuple[int, ...]:
    """Return the numbers of stages of the methods in the table, up to `max_stages`."""
    stages = [2]
    while stages[-1] < MOST_STAGES:
        stages.append(min(max(stages[-1] + 1, round(1.15 * stages[-1])), MOST_STAGES))
    return tuple(s for s in stages if s <= max_stages)


def chebyshev_recurrence(stages: int) -> NDArray:
    """Return for each stage j the weights of h f(previous), the previous one, the one before and h f(y0), and c_j.

    With w0 = 1 + δ, δ = 2/(13 s²), which damps, and w1 = T_s'(w0)/T_s''(w0), which makes the order two.
    """
    w0 = 1 + 2 / (13 * stages**2)
    values = [np.array([1, 0, 0]), np.array([w0, 1, 0])]  # T_j and its first two derivatives at w0
    for _ in range(2, stages + 1):
        (before, here) = values[-2:]
        values.append(2 * w0 * here - before + np.array([0, 2 * here[0], 4 * here[1]]))
    chebyshev, slope, bend = np.array(values).T
    w1 = slope[-1] / bend[-1]
    b = bend[2:] / slope[2:] ** 2
    b = np.concatenate([b[:1], b[:1], b])
    c = w1 * np.append([0, bend[2] / slope[2] ** 2], bend[2:] / slope[2:])
    rows = [(b[1] * w1, 0, 0, 0, c[1])]
    for j in range(2, stages + 1):
        weight = 2 * b[j] * w1 / b[j - 1]
        damping = -(1 - b[j - 1] * chebyshev[j - 1]) * weight
        rows.append((weight, 2 * b[j] * w0 / b[j - 1], -b[j] / b[j - 2], damping, c[j]))
    return np.array(rows)


@functools.cache
def _table() -> tuple[NDArray, NDArray, NDArray]:
    """Return the recurrences of all methods one after the other, the number of stages of each, and where it begins."""
    stages = np.array(chebyshev_stages())
    whole = np.concatenate([chebyshev_recurrence(count) for count in stages])
    return whole, stages, np.cumsum(stages) - stages
