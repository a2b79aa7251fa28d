"""Step sizes for gradient flows: by their error in units of the tolerance, and by stability.

Near a minimizer stability, not accuracy, limits an explicit method. A controller that only sees errors keeps the step
at the edge of the stability region, where the gradient norm stalls at about sharpness × rtol × |weights|. The Jacobian
of a gradient flow, −Hessian, is symmetric, so that edge is known: the spectral radius of the Hessian times the step
must stay below the length of the method's real stability interval.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import vectors
from .field import norm, norms
from .solver import CountsWork, Work


class ErrorScale(eqx.Module):
    """What errors of a step from `y0` are measured in, with the `tangent` h f(y0), at the tolerances rtol and atol.

    The size of an error is the power mean of exponent 3/2 over all entries of error / (atol + rtol·max(|y0|, |y1|, m)).
    Of entries that pass zero the few nearest to it count less in it than in a root mean square. m is the size of the
    part of an entry that moves. A part b·e^{λt} changes its speed as it grows: with the increment Δ = y1 − y0 it is
    about m = |Δ|·max(|Δ|, |h f|)/(2|Δ − h f|). So an entry that grows out of a saddle is followed to its own digits,
    however small it is, and one that passes zero to those of its motion. m counts up to the share `largest` of the root
    mean square of y0. Of an entry that grows ever faster the share `growing` counts, as the errors of many steps add
    up. An entry counts as no smaller than the share `least` of the root mean square, and where it decays than √ε of it:
    below, it is what errors have left. The unit of the smallest entries is no smaller than at rtol = `smallest`, as
    they are rounding. With these numbers errors in the middle of a jump from a saddle stayed within 10·rtol in most
    cases of `benchmarks/degenerate.py`, whose table names the others.

    Where an entry grows by e^{hλ}, methods of order four and two estimate too small an error, and the errors of their
    steps add up: beside a curvature of 20 to 90·rtol, from 3e-15. In their steps a growing entry counts by a smaller
    share still, √(entry/(`sprout`·root mean square of y0)) between `low` and one, and by the share `low` where f itself
    grows by more than `leaving`. Then errors stay below 13·rtol there, but for those of order two alone (37·rtol).

    Where f grows along the step, the flow leaves a saddle, and its unstable part may be hidden in entries of any size.
    So the whole error has to be within rtol of what moves in the whole of y0, or be rounding. That rtol is at least
    `finest`: below, extrapolation magnifies rounding of f to the tolerance. At rtol 1e-8 five linear layers from scale
    1e-3 took 4461 steps without that bound, and 1171 with it.
    """

    y0: PyTree
    tangent: PyTree
    weights: Float[Array, ""]
    straight: Float[Array, ""]
    rtol: Any
    atol: Any
    largest: float = eqx.field(static=True, default=0.03)
    growing: float = eqx.field(static=True, default=0.5)
    least: float = eqx.field(static=True, default=3e-24)
    smallest: float = eqx.field(static=True, default=1e-6)
    finest: float = eqx.field(static=True, default=1e-7)
    low: float = eqx.field(static=True, default=0.03)
    sprout: float = eqx.field(static=True, default=0.003)
    leaving: float = eqx.field(static=True, default=0.03)

    @classmethod
    def of(cls, y0: PyTree, tangent: PyTree, rtol: Any, atol: Any) -> "ErrorScale":
        """Return the scale of a step. Raises `ValueError` without tolerances."""
        if rtol is None or atol is None:
            raise ValueError(
                "this solver chooses its steps by rtol and atol: give it those of the step-size controller"
            )
        weights, straight = norms(y0, tangent)
        return cls(y0, tangent, weights, straight, rtol, atol)

    def sizes(self, y1: PyTree, *errors: PyTree, low: Any = False) -> "ErrorSizes":
        """Return the sizes of several errors of the step to `y1`; one is infinite where it is not finite.

        `low` says which are errors of methods of low order, all or each.
        """
        y0, tangent, rtol, atol = self.y0, self.tangent, self.rtol, self.atol
        count = sum(leaf.size for leaf in jax.tree.leaves(y0))
        eps = float(jnp.finfo(self.weights.dtype).eps)
        typical = self.weights / count**0.5
        # A candidate that is not finite is measured by where it came from.
        y1 = jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(b), b, a), y0, y1)
        increment = vectors.difference(y1, y0)
        bend = vectors.difference(increment, tangent)
        moved, *wholes = norms(increment, *errors)
        faster = vectors.inner_product(vectors.scaled(1 / self.straight, tangent), bend)
        leaves = faster > self.leaving * moved

        def power(a: Array, b: Array, change: Array, line: Array, bent: Array, *several: Array) -> Array:
            longer = jnp.maximum(jnp.abs(change), jnp.abs(line))
            moving = jnp.where(bent != 0, jnp.abs(change) * (longer / (2 * jnp.abs(bent))), jnp.inf)
            moving = jnp.maximum(moving, jnp.abs(line))
            entry = jnp.maximum(jnp.abs(a), jnp.abs(b))
            grows = (jnp.abs(b) > jnp.abs(a)) & (jnp.sign(bent) == jnp.sign(line))
            entry = jnp.maximum(entry, jnp.minimum(moving, self.largest * typical))
            few = jnp.clip(jnp.sqrt(entry / (self.sprout * typical)), self.low, 1)
            few = jnp.where(grows, jnp.where(leaves, self.low, few), 1)
            entry = jnp.where(grows, self.growing, 1) * entry
            grown = self.least * jnp.maximum(1, self.smallest / rtol)
            least = jnp.where(jnp.abs(b) < jnp.abs(a), eps**0.5, grown) * typical
            unit = jnp.maximum(atol + rtol * jnp.maximum(entry, least), jnp.finfo(a.dtype).tiny)
            shares = jnp.abs(jnp.stack(several)) / unit[None]
            by = jnp.expand_dims(jnp.broadcast_to(jnp.asarray(low), len(several)), tuple(range(1, a.ndim + 1)))
            shares = jnp.where(by, shares / few[None], shares)
            return jnp.sum(shares * jnp.sqrt(shares), axis=tuple(range(1, a.ndim + 1)))

        powers = jax.tree.leaves(jax.tree.map(power, y0, y1, increment, tangent, bend, *errors))
        moving = jnp.where(faster > 0, moved * (jnp.maximum(moved, self.straight) / (2 * faster)), jnp.inf)
        rounding = 100 * eps * self.weights  # of increments whose stages are sums of numbers of this size
        unit = count**0.5 * atol + jnp.maximum(rtol, self.finest) * moving + rounding
        size = jnp.maximum((sum(powers) / count) ** (2 / 3), jnp.stack(wholes) / unit)
        return ErrorSizes(jnp.where(jnp.isfinite(size), size, jnp.inf), jnp.stack(wholes), moved, rounding)


class ErrorSizes(eqx.Module):
    """The sizes of errors of one step, in units of the tolerance, and their norms.

    `moved` is the norm of the increment, and `rounding` what rounding may add to it.
    """

    in_tolerance: Float[Array, " k"]
    norms: Float[Array, " k"]
    moved: Float[Array, ""]
    rounding: Float[Array, ""]

    def are_rounding(self) -> Bool[Array, " k"]:
        """Tell which errors may be rounding."""
        return self.norms <= self.rounding


def growth(size: Float[Array, "..."], order: Any, *, safety: float = 0.8, largest: float = 10.0) -> Float[Array, "..."]:
    """Return the factor to the step at which an error of scaled norm `size`, of this order in h, is just allowed.

    It is multiplied by `safety` and cut at `largest`, the usual values (Hairer, Nørsett and Wanner, II.4).
    """
    return jnp.minimum(safety * jnp.maximum(size, 1e-30) ** (-1 / order), largest)


class SpectralRadius(eqx.Module):
    """An estimate from below of ρ = max |eigenvalue| of ∂f/∂y, symmetric, and the direction in which it was found."""

    direction: PyTree
    value: Float[Array, ""]

    first_iterations: ClassVar[int] = 10
    """Steps of power iteration from a scattered direction, before anything is known."""
    margin: ClassVar[float] = 1.2
    """By which the value is multiplied for a bound: it comes from below, and ρ may rise within a step."""

    @property
    def bound(self) -> Float[Array, ""]:
        """The value with its margin."""
        return self.margin * self.value

    @classmethod
    def first(cls, field: Callable[[PyTree], PyTree], y: PyTree) -> "SpectralRadius":
        """Return an estimate at `y` after ten steps of power iteration from a scattered direction."""
        return cls.unknown(y).iterate(field, y, cls.first_iterations)

    @classmethod
    def unknown(cls, y: PyTree) -> "SpectralRadius":
        """Return zero, and a direction to start from, before anything is known."""
        return cls(vectors.scattered_like(y, 0), jnp.zeros_like(norm(y)))

    def iterate(
        self, field: Callable[[PyTree], PyTree], y: PyTree, iterations: int | Int[Array, ""]
    ) -> "SpectralRadius":
        """Return the estimate after more steps of power iteration at `y`, each as cheap as a Hessian–vector product.

        A little of the field itself is mixed into the direction: what goes unstable shows there first.
        """

        def improve(_: Any, state: "SpectralRadius") -> "SpectralRadius":
            unit = vectors.scaled(1 / norm(state.direction), state.direction)
            drift, image = jax.jvp(field, (y,), (unit,))
            value, speed = norms(image, drift)
            moved = jax.tree.map(lambda a, b: jnp.where(value > 0, a, b), vectors.scaled(1 / value, image), unit)
            tilt = 0.01 / speed
            tilt = jnp.where(jnp.isfinite(tilt), tilt, 0)
            return SpectralRadius(jax.tree.map(lambda a, b: a + tilt * b, moved, drift), value)

        return jax.lax.fori_loop(0, iterations, improve, self)

    def displacement(self, y: PyTree) -> PyTree:
        """Return the direction in the length over which a difference of f tells its derivative: √ε ‖y‖."""
        weights, own = norms(y, self.direction)
        weights = jnp.where(weights > 0, weights, own)
        return vectors.scaled(jnp.sqrt(jnp.finfo(weights.dtype).eps) * weights / own, self.direction)

    def seen(self, displacement: PyTree, slope: PyTree, moved: PyTree) -> tuple["SpectralRadius", PyTree]:
        """Return the estimate after one step of power iteration by a difference of f, and the next displacement.

        `slope` is f at y and `moved` f at y + `displacement`. Codes of stabilized methods find ρ so (RKC; Sommeijer,
        Shampine and Verwer 1998): it costs one evaluation, and a program that has one of f needs no product with a
        Hessian. As above, a little of f itself is mixed into the direction.
        """
        change = vectors.difference(moved, slope)
        grown, length, speed = norms(change, displacement, slope)
        value = grown / length
        # f may be unknown beyond its domain, and where it does not change there is no other direction.
        known = (value > 0) & jnp.isfinite(value)
        tilt = 0.01 / speed
        tilt = jnp.where(jnp.isfinite(tilt), tilt, 0)
        ahead = vectors.where(known, vectors.scaled(1 / grown, change), vectors.scaled(1 / length, displacement))
        direction = jax.tree.map(lambda a, b: a + tilt.astype(a.dtype) * b, ahead, slope)
        # Beside a large f, small weights allow only differences that its rounding hides.
        seen = jnp.isfinite(value) & (grown > 10 * jnp.finfo(grown.dtype).eps * speed)
        found = SpectralRadius(direction, jnp.where(seen, value, self.value))
        return found, vectors.scaled(length, direction)


def stability_interval(solver: diffrax.AbstractSolver) -> float:
    """Return the length β of the real stability interval of an explicit Runge–Kutta method.

    The largest β with |r(−x)| ≤ 1 for 0 ≤ x ≤ β, where r(z) = 1 + Σ_j z^{j+1} bᵀA^j 1 is the stability
    polynomial of the tableau (A, b). Raises `TypeError` for a solver without an explicit tableau.
    """
    tableau = getattr(solver, "tableau", None)
    if tableau is None or getattr(tableau, "implicit", True):
        raise TypeError(
            f"{type(solver).__name__} has no explicit Runge-Kutta tableau to read its stability interval from: pass "
            "stepsize_controller=SharpnessLimitedController(..., interval=...) with the interval of your method"
        )
    return _stability_interval_of(type(solver))


@functools.cache
def _stability_interval_of(solver: Any) -> float:
    tableau = solver.tableau
    stages = len(tableau.b_sol)
    lower = np.zeros((stages, stages))
    for row, entries in enumerate(tableau.a_lower, start=1):
        lower[row, : len(entries)] = entries
    powers, vector = [1.0], np.ones(stages)
    for _ in range(stages):
        powers.append(float(tableau.b_sol @ vector))
        vector = lower @ vector
    # The interval ends at the first x > 0 where r(−x) leaves [−1, 1]: a root of r(−x) − 1 or of r(−x) + 1.
    in_x = np.array(powers) * (-1.0) ** np.arange(len(powers))
    shifted = [np.polynomial.Polynomial(in_x - sign * (np.arange(len(in_x)) == 0)) for sign in (1, -1)]
    roots = np.concatenate([polynomial.trim(1e-14).roots() for polynomial in shifted])
    crossings = np.sort(roots.real[(abs(roots.imag) < 1e-6) & (roots.real > 1e-3)])
    leaves = abs(np.polynomial.polynomial.polyval(crossings * (1 + 1e-6), in_x)) > 1
    return float(crossings[leaves][0])


def _inner(name: str) -> Any:
    return property(lambda self: getattr(self.controller, name), doc=f"The `{name}` of the controller inside.")


class _LimitState(eqx.Module):
    inner: PyTree
    radius: SpectralRadius
    products: Int[Array, ""]


class SharpnessLimitedController(diffrax.AbstractAdaptiveStepSizeController, CountsWork):
    """Limits the steps of another adaptive controller to `safety` · `interval` / ρ, with ρ the spectral radius of the
    Hessian.

    It works with any explicit Diffrax solver. ρ = max |eigenvalue| is followed by power iteration for each *accepted*
    step, whose steps are each as cheap as a Hessian–vector product.

    Args:
        controller: The other controller, such as a `diffrax.PIDController`.
        field: The vector field f(t, y, args), whose Jacobian must be symmetric.
        interval: The `stability_interval` of the solver.
        safety: The share of the longest stable step that is allowed.
        iterations: The steps of power iteration for each accepted step.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    field: Callable[[Any, PyTree, Any], PyTree]
    interval: float
    safety: float
    iterations: int = eqx.field(static=True)

    def __init__(
        self,
        controller: diffrax.AbstractAdaptiveStepSizeController,
        field: Callable[[Any, PyTree, Any], PyTree],
        *,
        interval: float,
        safety: float = 0.75,
        iterations: int = 1,
    ):
        self.controller, self.field = controller, field
        self.interval, self.safety, self.iterations = interval, safety, iterations

    rtol = _inner("rtol")
    atol = _inner("atol")
    norm = _inner("norm")

    def wrap(self, direction):
        """Tell the controller inside whether time runs forwards."""
        return eqx.tree_at(lambda me: me.controller, self, self.controller.wrap(direction))

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        """Choose the first step, limited, after a longer power iteration from a random direction."""
        t_next, inner = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        radius = SpectralRadius.first(lambda y: self.field(t0, y, args), y0)
        return t0 + self._limit(t_next - t0, radius), _LimitState(inner, radius, jnp.array(0))

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        """Accept or reject as the controller inside does, and limit the next step that it proposes."""
        keep, next_t0, next_t1, made_jump, inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state.inner
        )
        # A rejected candidate can be far off, where the Hessian says nothing about the path.
        radius = jax.lax.cond(
            keep,
            lambda: controller_state.radius.iterate(lambda y: self.field(t1, y, args), y1_candidate, self.iterations),
            lambda: controller_state.radius,
        )
        products = controller_state.products + jnp.where(keep, self.iterations, 0)
        next_t1 = next_t0 + self._limit(next_t1 - next_t0, radius)
        return keep, next_t0, next_t1, made_jump, _LimitState(inner, radius, products), result

    def work(self, controller_state: _LimitState) -> Work:
        """Return the Hessian–vector products so far, beyond those at the start."""
        return Work(jnp.zeros_like(controller_state.products), controller_state.products)

    def _limit(self, step, radius):
        return jnp.minimum(step, (self.safety * self.interval / radius.value).astype(step.dtype))
