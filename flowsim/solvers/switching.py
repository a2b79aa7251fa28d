"""An explicit method that changes with what limits its step."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import vectors
from .chebyshev import MOST_STAGES, RungeKuttaChebyshev, defect, limit_growth
from .explicit_methods import explicit_methods, explicit_step, fourth_order, second_order
from .field import Measured, norms
from .solver import SOLVERS, MeasuringSolver, Proposal, Work, no_work
from .step_control import ErrorScale, SpectralRadius, growth

# The kinds of steps: Tsit5, of order five; stabilized ones of order four, and of order two.
_FIFTH, _FOURTH, _SECOND = 0, 1, 2


class Radius(eqx.Module):
    """The spectral radius as last estimated, the steps since then, and after how many it is to be estimated again."""

    known: SpectralRadius
    age: Int[Array, ""]
    interval: Int[Array, ""]

    most: ClassVar[int] = 16
    """Most steps between two estimates; four times as many while they stay far inside the stability interval."""
    unseen: ClassVar[int] = 8
    """Steps before the first estimate, unless one is rejected."""

    @classmethod
    def unknown(cls, y: PyTree) -> "Radius":
        """Return the state before the first estimate."""
        return cls(SpectralRadius.unknown(y), jnp.array(0), jnp.array(1))

    def mark_due(self, condition: Bool[Array, ""]) -> "Radius":
        """Return the same, to be estimated again in the next step where a condition holds."""
        return Radius(self.known, jnp.where(condition, 4 * self.most, self.age), self.interval)

    def update(self, known: SpectralRadius) -> "Radius":
        """Return the radius estimated anew; the more it has changed, the sooner the next estimate."""
        change = jnp.abs(known.value - self.known.value) / known.value
        interval = jnp.where(
            change < 0.02, 2 * self.interval, jnp.where(change > 0.1, self.interval // 2, self.interval)
        )
        return Radius(known, jnp.array(0), jnp.clip(interval, 1, self.most))


class _State(eqx.Module):
    """What is known at y, the radius, the kind of the next step, and how long one of order four may be."""

    measured: Measured
    radius: Radius
    kind: Int[Array, ""]
    fourth: Float[Array, ""]
    work: Work


@SOLVERS.register("StabilitySwitching")
class StabilitySwitching(MeasuringSolver):
    """Tsit5 while accuracy limits the step; stabilized explicit methods of order four and two while stability does.

    The stabilized ones take s stages, ∝ √(hρ), ρ the spectral radius. That of order four (`explicit_methods`) needs the
    fewest for its accuracy; where rounding sets it an end, which in single precision is soon, and where errors are far
    below the tolerance, that of order two (`RungeKuttaChebyshev`) goes on. After each step the error of its own method
    is known, and that of the one of order two, from the defect of the trapezoidal rule. The next step is taken by the
    method that covers more time per evaluation of f.

    ρ is followed by `iterations` steps of power iteration, in every step where it moves, in every sixteenth where it
    does not, and in fewer still while accuracy keeps the steps far inside the stability interval. Each takes a
    difference of f, an evaluation in the same loop as those of the steps: a step holds f once, and no derivative of
    it. Memory: y0 and some 25 arrays of its size.
    """

    rtol: float | Float[Array, ""] | None = None
    """Relative tolerance of a step; filled in by `flowsim.integrate`."""
    atol: float | Float[Array, ""] | None = None
    """Absolute tolerance of a step; filled in by `flowsim.integrate`."""
    max_stages: int = eqx.field(static=True, default=MOST_STAGES)
    """The largest number of stages of a stabilized step."""
    iterations: int = eqx.field(static=True, default=3)
    """The steps of power iteration where ρ is followed."""
    measure: Callable[[PyTree], Measured] | None = None
    """Evaluates f and the objective; filled in by `flowsim.integrate`."""
    cap: float = eqx.field(static=True, default=RungeKuttaChebyshev.cap)
    """The share of the longest stable step that is asked for."""
    stiff: float = eqx.field(static=True, default=1.5)
    """Tsit5 is left where accuracy would allow steps so many times as long as stability does,"""
    easy: float = eqx.field(static=True, default=2.5)
    """and taken up again where stabilized steps have less reach hρ than this."""
    better: float = eqx.field(static=True, default=1.2)
    """What a change between stabilized methods must gain."""
    forgetting: float = eqx.field(static=True, default=1.2)
    """By which the remembered length of a step of order four grows in each other step."""
    short: float = eqx.field(static=True, default=1.0)
    """Up to which hρ a step is short, so that a large error of it tells of a jump."""
    rough: float = eqx.field(static=True, default=0.02)
    """The error of Tsit5, in units of hρ‖h f‖, beyond which f itself jumps."""
    rounding: float = eqx.field(static=True, default=1e3)
    """In a step with hρ < `short`, h f changes by hρ‖h f‖ at most. In units of that the error of Tsit5 is some 10⁻⁵ for
    smooth networks, up to 10⁻³ at the end of a plateau, and in few steps more than 10⁻² where the derivative of f jumps
    (Huber loss). Beyond `rough` f itself jumps, as in most steps of a ReLU network, unless the error is `rounding`
    units in the last place or less."""
    reach_per_squared_stage: float = eqx.field(static=True, default=0.35)
    """Stabilized steps of order four reach hρ = 0.35 s² with s stages (`explicit_methods`)."""
    fewest_stages: int = eqx.field(static=True, default=6)
    """The evaluations of a step of order five."""

    interpolation_cls: ClassVar[Callable[..., diffrax.ThirdOrderHermitePolynomialInterpolation]] = (
        diffrax.ThirdOrderHermitePolynomialInterpolation
    )

    def memory(self) -> int:
        """Return what XLA plans beside the arguments (`benchmarks/large_flow.py`): 23 arrays."""
        return 23

    def order(self, terms: Any) -> int:
        """Return 5, that of Tsit5, with which a run begins."""
        return 5

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return f(y0); the spectral radius is estimated after the first steps."""
        return dataclasses.replace(self.blank(y0), measured=self.measure_at(terms, t0, y0, args))

    def blank(self, y0: PyTree) -> _State:
        """Return the state before anything is measured."""
        radius = Radius.unknown(y0)
        far = jnp.full_like(radius.known.value, jnp.inf)
        return _State(self.unmeasured(y0), radius, jnp.array(_FIFTH), far, no_work())

    def steady_order(self, solver_state: _State) -> Bool[Array, ""]:
        """Tell whether the next step is one of Tsit5: in stiff directions errors of the others fall more slowly."""
        return solver_state.kind == _FIFTH

    def after_rejection(self, before: _State, after: _State) -> _State:
        """Return what has been learned, at the point from where the step went.

        The radius is to be estimated again: a stabilized step that is rejected may have been unstable, and one of Tsit5
        suggests that an old estimate is out of date.
        """
        unseen, old = after.radius.known.value == 0, after.radius.age > Radius.unseen
        radius = after.radius.mark_due((after.kind != _FIFTH) | unseen | old)
        return dataclasses.replace(after, measured=before.measured, radius=radius)

    def taken_to(self, measured: Measured, solver_state: _State) -> _State:
        """Return the state at a point that another solver has reached; the radius is to be estimated again."""
        return dataclasses.replace(
            solver_state, measured=measured, radius=solver_state.radius.mark_due(jnp.array(True))
        )

    def is_strained(self, after: _State, proposal: Proposal, y0: PyTree, y1: PyTree) -> Bool[Array, ""]:
        """Tell whether stability, and not accuracy, limits the step that follows the one from `y0` to `y1`."""
        return after.kind != _FIFTH

    def price_over(self, reach: Float[Array, ""]) -> Float[Array, ""]:
        """Return about what steps over `reach` = hρ cost, in evaluations of f."""
        return jnp.maximum(jnp.sqrt(reach / self.reach_per_squared_stage), self.fewest_stages)

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step, and choose the method of the next."""
        h, start = t1 - t0, solver_state.measured
        iterations, older = self._iterations_due(h, solver_state)

        def evaluate(c: Array, y: PyTree) -> Measured:
            return self.measure_at(terms, t0 + c * h, y, args)

        def attempt(state: tuple) -> tuple:
            """Make the iterations that are left, or else take the step."""
            radius, left = state[:2]
            kind = self._stable_kind(solver_state.kind, h * radius.bound)
            stabilized = [family.method_for(h * radius.bound) for family in families]
            method = jnp.stack([jnp.zeros_like(stabilized[0]), *stabilized])[kind]
            y1, end, error, radius = explicit_step(evaluate, y0, start.slope, h, method, radius, left)
            return radius, jnp.zeros_like(left), left == 0, kind, method, y1, end, error

        families = fourth_order(h.dtype), second_order(self.max_stages)
        nothing = jnp.array(False), solver_state.kind, jnp.zeros_like(solver_state.kind), y0, start, start.slope
        taken = jax.lax.while_loop(lambda state: ~state[2], attempt, (older.known, iterations, *nothing))
        known, _, _, kind, method, y1, end, error = taken
        radius = vectors.where(iterations > 0, older.update(known), older)
        bound = known.bound
        tangent = vectors.scaled(h, start.slope)
        scale = ErrorScale.of(y0, tangent, self.rtol, self.atol)
        low = jnp.stack([kind != _FIFTH, jnp.array(True)])
        sizes = scale.sizes(y1, error, defect(y0, y1, start.slope, end.slope, h), low=low)
        size, size2 = sizes.in_tolerance
        size2 = jnp.where(h * bound > second_order(self.max_stages).reach[-1], jnp.inf, size2)
        size = jnp.where(kind == _SECOND, size2, size)
        change = jax.tree.map(jnp.subtract, end.slope, start.slope)
        before, after, changed = norms(start.slope, end.slope, change)
        most = limit_growth(jnp.full_like(h, jnp.inf), before, after)
        kind_next, length, fourth = self._next(h, bound, kind, size, size2, most, solver_state.fourth)
        gradients = iterations + jnp.where(h == 0, 0, _evaluations(method))
        work = solver_state.work + Work(gradients, jnp.zeros_like(gradients))
        dense = {"y0": y0, "y1": y1, "k0": tangent, "k1": vectors.scaled(h, end.slope)}
        kind_next = jnp.where(h == 0, kind, kind_next)
        state = _State(end, radius, kind_next, fourth, work)
        rough = (kind == _FIFTH) & (bound > 0) & self._is_rough(h, bound, before, changed, sizes.norms[0])
        proposal = Proposal(size, length / h, rough, rounded=sizes.are_rounding()[0])
        return y1, proposal, dense, state, diffrax.RESULTS.successful

    def _iterations_due(self, h: Float[Array, ""], state: _State) -> tuple[Int[Array, ""], Radius]:
        """Return the steps of power iteration that are due before a step of length h, and the radius as it is then."""
        radius = state.radius
        unseen = radius.known.value == 0
        far = (state.kind == _FIFTH) & (4 * h * SpectralRadius.margin * radius.known.value < _tsit5_reach())
        due = radius.age >= jnp.where(unseen, Radius.unseen, jnp.where(far, 4 * Radius.most, radius.interval))
        iterations = jnp.where(unseen, SpectralRadius.first_iterations, self.iterations)
        return jnp.where(due, iterations, 0), Radius(radius.known, radius.age + 1, radius.interval)

    def _stable_kind(self, kind: Int[Array, ""], reach: Float[Array, ""]) -> Int[Array, ""]:
        """Return a kind of step that is stable over `reach` = hρ: `kind`, or one of a longer stability interval."""
        # A step as long as is stable is not to be one of another kind by rounding.
        kind = jnp.where((kind == _FIFTH) & (reach > 1.01 * _tsit5_reach()), _FOURTH, kind)
        return jnp.where((kind == _FOURTH) & (reach > fourth_order(reach.dtype).reach[-1]), _SECOND, kind)

    def _next(
        self,
        h: Float[Array, ""],
        bound: Float[Array, ""],
        kind: Int[Array, ""],
        size: Float[Array, ""],
        size2: Float[Array, ""],
        most: Float[Array, ""],
        fourth: Float[Array, ""],
    ) -> tuple[Int[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Return the kind of the next step, its length, and how long one of order four may be.

        They follow a step of length `h` and of a `kind`, whose error has a `size` where that of order two has `size2`.
        The next is at most `most` times as long; `fourth` is how long a step of order four could be until now.
        """
        most = most * h
        family4, family2, easy = fourth_order(bound.dtype), second_order(self.max_stages), _tsit5_reach() / bound
        far = family4.reach[-1] / bound
        allowed = h * growth(size, jnp.array([5, 4, 3], h.dtype)[kind])
        # What steps of order four were allowed is remembered, and forgotten slowly.
        fourth = jnp.where(kind == _FOURTH, allowed, self.forgetting * fourth)
        length4 = jnp.minimum(jnp.minimum(fourth, most), self.cap * far)
        length2 = jnp.minimum(h * growth(size2, 3), self.cap * family2.reach[-1] / bound)
        length2 = jnp.minimum(length2, most)
        pace4 = length4 / _evaluations(family4.method_for(length4 * bound))
        pace2 = length2 / _evaluations(family2.method_for(length2 * bound))
        after5 = jnp.where((allowed > self.stiff * easy) & (fourth > self.stiff * easy), _FOURTH, _FIFTH)
        after4 = jnp.where(
            allowed * bound < self.easy, _FIFTH, jnp.where(pace2 > self.better * pace4, _SECOND, _FOURTH)
        )
        back = (pace4 > pace2) & (length2 < far)
        after2 = jnp.where(length2 * bound < self.easy, _FIFTH, jnp.where(back, _FOURTH, _SECOND))
        after = jnp.stack([after5, after4, after2])[kind].astype(kind.dtype)
        into4 = jnp.stack([jnp.minimum(2 * easy, allowed), length4, length2])[kind]
        return after, jnp.stack([jnp.minimum(allowed, easy), into4, length2])[after], fourth

    def _is_rough(
        self,
        h: Float[Array, ""],
        bound: Float[Array, ""],
        speed: Float[Array, ""],
        changed: Float[Array, ""],
        error: Float[Array, ""],
    ) -> Array:
        """Tell whether a step is short, and its error larger than a share of what h f changes by, and than rounding.

        `speed` is ‖f‖ where it begins. At the end of a plateau f may be `changed` by more than the last estimate of ρ
        allows.
        """
        change, rounding = jnp.maximum(h * bound * speed, changed), self.rounding * jnp.finfo(h.dtype).eps
        return (change < self.short * speed) & (error > h * (self.rough * change + rounding * speed))


def _evaluations(method: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.asarray(explicit_methods().evaluations)[method]


def _tsit5_reach() -> float:
    return float(explicit_methods().reach[0])
