"""A stabilized explicit method."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..field import norm
from ..spectral_radius import SpectralRadius
from ..work import Work, no_work
from .error import growth, scaled_norm
from .proposal import Proposal, ProposingSolver
from .registry import SOLVERS

# The estimate of ρ comes from below, and ρ may rise within a step.
RADIUS_MARGIN = 1.2
# How much of the longest step that the stages allow is asked for: ρ may have risen by the next one.
CAP_MARGIN = 0.8
_LARGEST_GROWTH = 2.5


class _State(eqx.Module):
    slope: PyTree
    radius: SpectralRadius
    work: Work


@SOLVERS.register("RungeKuttaChebyshev")
class RungeKuttaChebyshev(ProposingSolver):
    """The Runge–Kutta–Chebyshev method of order 2 (RKC2; Sommeijer, Shampine and Verwer 1998).

    It is explicit, with s stages whose stability interval on the negative real axis is (s² − 1)/1.54 long, so a stiff
    problem with a symmetric Jacobian of spectral radius ρ costs √ρ where another explicit method costs ρ. The number
    of stages of each step follows from ρ at its start, by `iterations` steps of power iteration that go on from
    those of the step before. Where it would pass `max_stages`, the step is shortened instead. Memory: y0 and six
    arrays of its size, for any number of stages.
    """

    rtol: float | Float[Array, ""] | None = None
    atol: float | Float[Array, ""] | None = None
    max_stages: int = eqx.field(static=True, default=500)
    iterations: int = eqx.field(static=True, default=2)

    interpolation_cls: ClassVar[Callable[..., diffrax.ThirdOrderHermitePolynomialInterpolation]] = (
        diffrax.ThirdOrderHermitePolynomialInterpolation
    )

    def __check_init__(self):
        if self.max_stages < 2:
            raise ValueError(f"max_stages must be 2 or more, got {self.max_stages}")

    def order(self, terms: Any) -> int:
        """Return 2."""
        return 2

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return f(y0) and a first estimate of the spectral radius."""
        radius = SpectralRadius.first(lambda y: terms.vf(t0, y, args), y0)
        return _State(terms.vf(t0, y0, args), radius, no_work())

    def work(self, solver_state: _State) -> Work:
        """Return the work of all steps so far."""
        return solver_state.work

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step, with as many stages as stability asks."""
        h = t1 - t0
        radius = solver_state.radius.followed(lambda y: terms.vf(t0, y, args), y0, self.iterations)
        bound = RADIUS_MARGIN * radius.value
        stages = stages_for(h * bound, self.max_stages)
        y1 = chebyshev_step(lambda c, y: terms.vf(t0 + c * h, y, args), y0, solver_state.slope, h, stages)
        slope = terms.vf(t1, y1, args)
        longest = reach_of(self.max_stages) / bound
        size = jnp.where(h <= longest, defect(y0, y1, solver_state.slope, slope, h, self.rtol, self.atol), jnp.inf)
        factor = jnp.minimum(worthwhile(growth(size, 3), solver_state.slope, slope), CAP_MARGIN * longest / h)
        state = _State(slope, radius, solver_state.work + Work(stages, jnp.array(self.iterations)))
        dense = {"y0": y0, "y1": y1, "k0": _times(h, solver_state.slope), "k1": _times(h, slope)}
        return y1, Proposal(size, factor), dense, state, diffrax.RESULTS.successful


def worthwhile(factor: Float[Array, ""], slope0: PyTree, slope1: PyTree) -> Float[Array, ""]:
    """Return `factor`, but moderate growth only, and none where the step has halved the field already.

    Inside its stability interval the method damps every component by about one and the same factor, however long the
    step is: beyond the length that the slowest one needs, stages are wasted.
    """
    return jnp.minimum(factor, jnp.where(norm(slope1) < norm(slope0) / 2, 1, _LARGEST_GROWTH))


def reach_of(stages: int) -> float:
    """Return the length of the stability interval."""
    return (stages**2 - 1) / 1.54


def stages_for(reach: Float[Array, ""], largest: int) -> Int[Array, ""]:
    """Return the number of stages, `largest` at most, whose stability interval covers `reach` = hρ."""
    return jnp.clip(jnp.ceil(jnp.sqrt(1 + 1.54 * reach)), 2, largest).astype(int)


def defect(
    y0: PyTree, y1: PyTree, slope0: PyTree, slope1: PyTree, h: Float[Array, ""], rtol: Any, atol: Any
) -> Float[Array, ""]:
    """Return the scaled error of the second-order method over a step, from the defect of the trapezoidal rule."""
    error = jax.tree.map(lambda a, b, f0, f1: 0.8 * (a - b) + 0.4 * h * (f0 + f1), y0, y1, slope0, slope1)
    return scaled_norm(error, y0, y1, rtol, atol)


def chebyshev_step(
    field: Callable[[Array, PyTree], PyTree], y0: PyTree, slope: PyTree, h: Float[Array, ""], s: Int[Array, ""]
) -> PyTree:
    """Return y1 after one step of s stages, from the field at (c, y), c the fraction of the step, and its first value.

    The three-term recurrence of the stages runs in increments over y0.
    """
    w0, w1 = _shift_and_scale(s.astype(h.dtype))
    one, zero = jnp.ones_like(w0), jnp.zeros_like(w0)
    first, second = jnp.stack([w0, one, zero]), jnp.stack([2 * w0**2 - 1, 4 * w0, 4 * one])
    b1 = second[2] / second[1] ** 2
    c1 = w1 * second[2] / second[1] / second[1]

    def stage(_: Any, state: tuple) -> tuple:
        (before, here), (b_before, b), c, (moved_before, moved) = state
        after = 2 * w0 * here - before + jnp.stack([zero, 2 * here[0], 4 * here[1]])
        b_after = after[2] / after[1] ** 2
        mu, nu, weight = 2 * b_after * w0 / b, -b_after / b_before, 2 * b_after * w1 / b
        damping = -(1 - b * here[0]) * weight
        f = field(c, jax.tree.map(jnp.add, y0, moved))
        new = jax.tree.map(
            lambda m, n, fj, f0: mu * m + nu * n + h * (weight * fj + damping * f0), moved, moved_before, f, slope
        )
        return (here, after), (b, b_after), w1 * after[2] / after[1], (moved, new)

    start = (jnp.stack([one, zero, zero]), first), (b1, b1), c1, (_times(zero, slope), _times(b1 * w1 * h, slope))
    moved = jax.lax.fori_loop(2, s + 1, stage, start)[-1][1]
    return jax.tree.map(jnp.add, y0, moved)


def _shift_and_scale(s: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return w0 = 1 + δ, δ = 2/(13 s²), which damps, and w1 = T_s'(w0)/T_s''(w0), which makes the order two."""
    delta = 2 / (13 * s**2)
    w0 = 1 + delta
    square = delta * (2 + delta)  # w0² − 1, in which nothing cancels
    root = jnp.sqrt(square)
    angle = s * jnp.log1p(delta + root)
    return w0, jnp.sinh(angle) * square / (jnp.cosh(angle) * s * root - w0 * jnp.sinh(angle))


def _times(factor: Array, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: factor * leaf, tree)
