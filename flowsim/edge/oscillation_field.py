"""What the fields of flows that follow a centre and its oscillation have in common, and the point that they move."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import GaussNewton, dominant_curvature, vectors
from ..curvature.eigenpair import decomposition
from ..curvature.hessian import quadratic_form
from ..dynamics.learning_rates import Scalar, is_scheduled, rate_and_slope
from ..solvers.field import GradientField, Measured, norm

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
            return dataclasses.replace(
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
    learning_rate: eqx.AbstractVar[Scalar]
    order: eqx.AbstractVar[int]
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
        """Return the field at a time, its learning rate a number."""
        if not is_scheduled(self.learning_rate):
            return self
        eta, slope = rate_and_slope(self.learning_rate, t)
        return dataclasses.replace(self, learning_rate=eta, drift=slope)  # pyright: ignore[reportCallIssue]

    @property
    def time_of_step(self) -> Float[Array, ""]:
        """What dt/dk is for the smooth time t(k) of the k-th step, which takes η(t): η, or η/(1 + η'/2)."""
        return self.learning_rate if self.drift is None else self.learning_rate / (1 + self.drift / 2)

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
            renewal=4 * self.renewal(point) / self.learning_rate,
            bend=self.learning_rate / 2 * (self.order > 1),
        )

    def _low_rank(self, centre: PyTree, product: Callable[[PyTree], PyTree], towards: PyTree) -> GaussNewton:
        """Return the Gauss–Newton matrix where it has a closed form, else the part of the Hessian that curves most."""
        if self.field.knows_gram(centre) and (self.field.rank(centre) or 0) <= self.largest_rank:
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


def least_amplitude(weights: PyTree, direction: PyTree) -> Float[Array, ""]:
    """Return the length along `direction` of what a step loses as it rounds the weights, and above zero.

    The error of a rounding is spread evenly over the last bit, so that its root mean square is a quarter of the ε|wᵢ|
    which is about that bit.
    """
    known = jnp.finfo(vectors.dtype_of(weights))
    return known.eps / 4 * norm(jax.tree.map(jnp.multiply, weights, direction)) + known.tiny


def _unit(vector: PyTree) -> PyTree:
    length = norm(vector)
    return vectors.divided(vector, jnp.where(length > 0, length, 1))
