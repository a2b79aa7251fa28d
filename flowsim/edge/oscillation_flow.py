"""What flows of a centre and an oscillation of gradient descent have in common: point, field, steps."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..curvature import GaussNewton, dominant_curvature, knows_gram, vectors
from ..curvature.eigenpair import decomposition
from ..curvature.hessian import quadratic_form
from ..dynamics.flow import DescentModel, FlowState
from ..dynamics.learning_rates import checked_rate, rate_and_slope, rate_at
from ..solvers import LowRankExtrapolation, ProposedSteps
from ..solvers.choice import tolerances
from ..solvers.field import GradientField, Measured, norm
from ..solvers.stepper import Stepper
from .onset import Beginning, least_amplitude

Point = TypeVar("Point")


class OscillationCurvature(eqx.Module):
    """An approximation of −∂F/∂y for a flow F of y = (x, u, ln r), with a cheap resolvent.

    With A = GᵀG, of low rank, near the Hessian at the centre x, and S its largest eigenvalue:

        x' ≈ −(A + ½ηA²) x − r² ∇S ln r,    u' ≈ −σ(h − A)₊ u,    (ln r)' ≈ σ⟨∇S, x⟩ − ϱ ln r,

    with ½ηA² in a flow of order two alone, σ the derivative of ηr'/r by ηh, and ϱ the renewal of the oscillation.
    Oscillation and sharpness drive each other: without the terms in ∇S steps would have to resolve the oscillations of
    period 2π/√(2α) about the edge, where α is the rate at which the gradient flow sharpens.
    """

    low_rank: GaussNewton
    sharpening: PyTree
    curvature: Float[Array, ""]
    slope: Float[Array, ""]
    amplitude: Float[Array, ""]
    renewal: Float[Array, ""]
    bend: Float[Array, ""]
    values: Float[Array, " m"]
    columns: Float[Array, "m m"]

    def __init__(
        self,
        low_rank: GaussNewton,
        sharpening: PyTree,
        *,
        curvature: Float[Array, ""],
        slope: Float[Array, ""],
        amplitude: Float[Array, ""],
        renewal: Float[Array, ""],
        bend: Float[Array, ""],
    ):
        """`slope` is σ, `renewal` ϱ, and `bend` the η/2 before A², or zero."""
        self.low_rank, self.sharpening, self.bend = low_rank, sharpening, bend
        self.curvature, self.slope = jnp.maximum(curvature, 0), slope
        self.amplitude, self.renewal = amplitude, renewal
        values, self.columns = decomposition(low_rank.gram)
        self.values = jnp.maximum(values, 0)

    @property
    def passes(self) -> int:
        """The linearized passes that it took: those of G, and three for ∇S."""
        return self.low_rank.passes + 3

    @property
    def size(self) -> Float[Array, ""]:
        """The Frobenius norm of A."""
        return jnp.linalg.norm(self.values)

    def resolvent(self, h: Float[Array, ""]) -> Callable[[Point], Point]:
        """Return (I − hJ)⁻¹ for the derivative J above."""
        steep = self.values * (1 + self.bend * self.values)
        centre = self._function(jnp.ones_like(h), -h * (1 + self.bend * self.values) / (1 + h * steep))
        pushed = centre(vectors.scaled(-(self.amplitude**2), self.sharpening))
        turn = self._of_directions(h * self.slope)
        own = 1 + h * self.renewal - h**2 * self.slope * vectors.inner_product(self.sharpening, pushed)

        def apply(point: Point) -> Point:
            moved = centre(point.centre)  # pyright: ignore[reportAttributeAccessIssue]
            sharper = self.slope * vectors.inner_product(self.sharpening, moved)
            grown = (point.log_amplitude + h * sharper) / own  # pyright: ignore[reportAttributeAccessIssue]
            return replace(
                point,  # pyright: ignore[reportArgumentType]
                centre=jax.tree.map(lambda a, b: a + h * grown * b, moved, pushed),
                direction=turn(point.direction),  # pyright: ignore[reportAttributeAccessIssue]
                log_amplitude=grown,
            )

        return apply

    def _of_directions(self, h: Float[Array, ""]) -> Callable[[PyTree], PyTree]:
        """Return (I + h(curvature − A)₊)⁻¹."""
        top = self.curvature
        elsewhere = 1 / (1 + h * top)
        below = jnp.minimum(self.values, top) / jnp.where(self.values > 0, self.values, 1)
        return self._function(elsewhere, h * elsewhere * below / (1 + h * jnp.maximum(top - self.values, 0)))

    def _function(self, at_zero: Float[Array, ""], rise: Float[Array, " m"]) -> Callable[[PyTree], PyTree]:
        """Return φ(A) from φ(0) and the (φ(λ) − φ(0))/λ of the eigenvalues."""
        core = (self.columns * rise[None]) @ self.columns.T

        def apply(vector: PyTree) -> PyTree:
            stiff = self.low_rank.outer(core @ self.low_rank.inner(vector))
            return jax.tree.map(lambda a, b: at_zero * a + b, vector, stiff)

        return apply


class OscillationPoint(eqx.Module):
    """The `centre` x of an oscillation, its `direction` u, of length one, and the logarithm of its amplitude r.

    `log_onset` is the logarithm of the amplitude with which descent comes to the edge (`flowsim.edge.onset`).
    """

    centre: PyTree
    direction: PyTree
    log_amplitude: Float[Array, ""]
    log_onset: Float[Array, ""]

    @property
    def unit(self) -> PyTree:
        """The direction, whose length a solver keeps up to its errors alone, of length one."""
        return vectors.divided(self.direction, norm(self.direction))


class OscillationField(eqx.Module):
    """The right-hand side of a flow of a centre, and of direction and amplitude of descent's oscillation about it.

    A kind of it says at which `growth` an oscillation changes, and where all of it is `moved`.

    An oscillation decays no further than to what it begins with at the edge, the amplitude s of the onset, and to
    rounding: (s/r)⁴/η is added to r'/r, which is nothing where descent oscillates. What it begins with is used up while
    it grows, s'/s = −20r'/r down to rounding: the next one begins with what is left of this one (`growth_alone`).
    """

    field: eqx.AbstractVar[GradientField]
    model: eqx.AbstractVar["OscillationFlow"]
    drift: eqx.AbstractVar[Float[Array, ""] | None]
    """η', where the learning rate changes in time."""

    largest_logarithm: ClassVar[float] = 3.0
    """An amplitude beyond e³ is that of a run which diverges."""
    used_up: ClassVar[float] = 20.0
    """How many times as fast as an oscillation grows, what it began with falls."""
    largest_rank: ClassVar[int] = 128
    """The rank up to which Gauss–Newton matrices of linear networks are taken. In the bent valleys of others they leave
    out too much:"""
    dimension: ClassVar[int] = 24
    """so many products with the Hessian tell which directions are stiff,"""
    scattered: ClassVar[float] = 0.3
    """from a start with this share of all directions."""

    def __call__(self, t: Any, point: OscillationPoint, args: object) -> OscillationPoint:
        """Return the derivative of a point in time; it depends on `t` only if η does, and not on `args`."""
        return self.at(t).moved(point)

    def at(self, t: Any) -> Self:
        """Return the field at a time, the learning rate of its model a number."""
        if not self.model.is_scheduled():
            return self
        eta, slope = rate_and_slope(self.model.learning_rate, t)
        return replace(self, model=replace(self.model, learning_rate=eta), drift=slope)  # pyright: ignore[reportCallIssue]

    @property
    def time_of_step(self) -> Float[Array, ""]:
        """What dt/dk is for the smooth time t(k) of the k-th step, which takes η(t): η, or η/(1 + η'/2)."""
        return self.model.learning_rate if self.drift is None else self.model.learning_rate / (1 + self.drift / 2)

    @abc.abstractmethod
    def moved(self, point: OscillationPoint) -> OscillationPoint:
        """Return the derivative of a point in time, η being a number."""

    @abc.abstractmethod
    def growth(self, curvature: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return ηr'/r, and its derivative by ηh, which is the rate at which the direction turns, too."""

    @abc.abstractmethod
    def amplitude(self, point: OscillationPoint) -> Float[Array, ""]:
        """Return the amplitude of descent's oscillation at a point."""

    def lengths(self, point: OscillationPoint) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return r, and r or the distance below which a difference of gradients is too much of rounding."""
        amplitude = jnp.exp(jnp.minimum(point.log_amplitude, self.largest_logarithm))
        known = jnp.finfo(amplitude.dtype)
        return amplitude, jnp.maximum(amplitude, known.eps**0.5 * norm(point.centre) + known.tiny)

    def derivative(
        self, point: OscillationPoint, moved: PyTree, turn: PyTree, growth: Float[Array, ""]
    ) -> OscillationPoint:
        """Return the derivative of a point whose centre and direction move so, and whose amplitude would grow so."""
        grown = growth + self.renewal(point)
        return OscillationPoint(
            moved, turn, grown / self.time_of_step, self._used_up(point, growth) / self.time_of_step
        )

    def renewal(self, point: OscillationPoint) -> Float[Array, ""]:
        """Return (s/r)⁴."""
        least = jnp.exp(point.log_onset) + least_amplitude(point.centre, point.direction)
        return (least * jnp.exp(-point.log_amplitude)) ** 4

    def _used_up(self, point: OscillationPoint, growth: Float[Array, ""]) -> Float[Array, ""]:
        """Return ηs'/s."""
        left = jnp.exp(point.log_onset) - least_amplitude(point.centre, point.direction)
        grown = growth_alone(growth, self.renewal(point))
        return -self.used_up * grown * jnp.maximum(left * jnp.exp(-point.log_onset), 0)

    def measured(self, point: OscillationPoint) -> Measured:
        """Return the derivative; nothing is known of the objective at the centre."""
        return Measured(self.moved(point), jnp.full_like(point.log_amplitude, jnp.nan))

    def gauss_newton(self, point: OscillationPoint) -> OscillationCurvature:
        """Return what a linearly implicit method takes for the derivative of the field."""
        centre, direction = point.centre, point.unit
        gradient, product = jax.linearize(jax.grad(self.field.objective), centre)
        curvature, sharpening = jax.value_and_grad(lambda x: quadratic_form(self.field.objective, x, direction))(centre)
        return OscillationCurvature(
            self._low_rank(centre, product, jax.tree.map(jnp.add, direction, _unit(gradient))),
            sharpening,
            curvature=curvature,
            amplitude=self.lengths(point)[0],
            slope=self.growth(curvature)[1],
            renewal=4 * self.renewal(point) / self.model.learning_rate,
            bend=self.model.learning_rate / 2 * (self.model.order > 1),
        )

    def _low_rank(self, centre: PyTree, product: Callable[[PyTree], PyTree], towards: PyTree) -> GaussNewton:
        """Return the Gauss–Newton matrix where it has a closed form, else the part of the Hessian that curves most."""
        network, problem = self.field.network(centre), self.field.problem
        if knows_gram(network, problem) and (problem.rank(network) or 0) <= self.largest_rank:
            return self.field.gauss_newton(centre)
        scattered = _unit(vectors.scattered_like(centre, 0))
        start = jax.tree.map(lambda a, b: (a + self.scattered * b)[None], towards, scattered)
        return dominant_curvature(product, start, self.dimension)


def growth_alone(growth: Float[Array, ""], renewal: Float[Array, ""]) -> Float[Array, ""]:
    """Return the growth g of an oscillation, zero where it decays: g₊³/(g₊² + ϱ²) with the `renewal` ϱ.

    Where an oscillation passes the edge while what it begins with still counts, a step would overlook the kink of g₊.
    """
    above = jnp.maximum(growth, 0)
    share = above / jnp.where(above > 0, jnp.hypot(above, renewal), 1)
    return above * share**2


def _unit(vector: PyTree) -> PyTree:
    length = norm(vector)
    return vectors.divided(vector, jnp.where(length > 0, length, 1))


class OscillationFlow(DescentModel):
    """A flow of the centre of descent's oscillation, of its direction and of its amplitude.

    A kind of it says in which `vector_field`, and how many `passes` that takes. Steps are linearly implicit, within
    `rtol` (default 1e-4, as such a model is itself a matter of η²) and `atol` (default zero).
    """

    # Each kind declares them, in an order of its own.
    order: eqx.AbstractVar[int]  # pyright: ignore[reportGeneralTypeIssues]
    rtol: eqx.AbstractVar[float | None]  # pyright: ignore[reportGeneralTypeIssues]
    atol: eqx.AbstractVar[float | None]  # pyright: ignore[reportGeneralTypeIssues]

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, and for tolerances that the precision
        cannot meet.
        """
        rate = checked_rate(self.learning_rate, dtype)
        relative, absolute = tolerances(self.rtol, self.atol, None, dtype, standard=1e-4)
        return replace(self, learning_rate=rate, rtol=relative, atol=absolute)  # pyright: ignore[reportCallIssue]  (the fields are abstract here)

    @abc.abstractmethod
    def vector_field(self, field: GradientField) -> OscillationField:
        """Return the right-hand side for centre, direction and amplitude."""

    def start(self, field: GradientField, weights: PyTree) -> FlowState:
        """Return the state before the first attempt, from where descent itself was followed to the edge."""
        state = super().start(field, weights)
        point, rounding = state.point, jnp.exp(state.point.log_onset)
        begins = Beginning(point.centre, point.direction, jnp.exp(point.log_amplitude), rounding)
        found = begins.onset(field.along(state.flattened_by), self.learning_rate)
        log_onset = jnp.log(found.amplitude + rounding)
        point = replace(point, log_amplitude=jnp.maximum(point.log_amplitude, log_onset), log_onset=log_onset)
        return replace(state, point=point, before=found.work)

    def first_point(self, field: GradientField, weights: PyTree) -> OscillationPoint:
        """Return where the oscillation begins, before an onset is looked for."""
        begins = Beginning.at(field, weights, self.learning_rate)
        return OscillationPoint(begins.centre, begins.direction, jnp.log(begins.amplitude), jnp.log(begins.least))

    def stepper(self, field: GradientField, point: OscillationPoint) -> Stepper:
        """Return the linearly implicit solver and its step control."""
        rtol, atol = jnp.asarray(self.rtol), jnp.asarray(self.atol)
        columns = 5 if point.log_amplitude.dtype.itemsize < 8 else 8
        solver = LowRankExtrapolation(columns=columns, followed=0, overhead=8.0, frozen_up_to=float("inf"))
        solver = solver.fill_in(self.vector_field(field).at(0.0), rtol, atol)
        # What is measured at a point alone does not know the time.
        solver = replace(solver, measure=None) if self.is_scheduled() else solver
        return Stepper(solver, ProposedSteps(rtol=rtol, atol=atol))  # pyright: ignore[reportCallIssue]  (norm is a property)

    def weights_at(self, point: OscillationPoint) -> PyTree:
        """Return the centre."""
        return point.centre

    def observe(self, field: GradientField, state: FlowState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the objective at the centre, and the root mean square norm of the gradient over an oscillation."""
        objective, gradient = jax.value_and_grad(field.along(state.flattened_by).objective)(state.point.centre)
        oscillation = jnp.exp(state.point.log_amplitude) * self._curvature(field, state)
        return objective, jnp.hypot(norm(gradient), oscillation)

    def rests(
        self,
        field: GradientField,
        state: FlowState,
        before: Float[Array, ""],
        small: Float[Array, ""],
        *,
        asked: Bool[Array, ""],
    ) -> Bool[Array, ""]:
        """Tell whether the sharpness is below 2/η: beyond, an oscillation grows out of rounding."""

        def look() -> Bool[Array, ""]:
            return jnp.asarray(rate_at(self.learning_rate, 0.0)) * self._curvature(field, state) < 2

        return jax.lax.cond(asked, look, lambda: jnp.array(True))

    def oscillation(self, field: GradientField, state: FlowState) -> PyTree:
        """Return r u, as one row."""
        amplitude = self.vector_field(field.along(state.flattened_by)).at(0.0).amplitude(state.point)
        row = vectors.scaled(amplitude, state.point.unit)
        tree = row if state.flattened_by is None else state.flattened_by.tree(row)
        return jax.tree.map(lambda leaf: leaf[None], tree)

    def _curvature(self, field: GradientField, state: FlowState) -> Float[Array, ""]:
        """Return uᵀHu at the centre."""
        objective = field.along(state.flattened_by).objective
        return quadratic_form(objective, state.point.centre, state.point.unit)
