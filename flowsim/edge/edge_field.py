"""The field of the edge flow: the centre of descent's oscillation, its direction and its amplitude.

Gradient descent with learning rate η alternates around a centre wherever its sharpness is near 2/η. Iterates
w_k = x_k + (−1)^k v_k with the maps

    x_{k+1} = x_k − η ḡ,    v_{k+1} = (ηH̄ − I) v_k,    ḡ = ½(g₊ + g₋),    H̄v = ½(g₊ − g₋),    g± = ∇R(x ± v),

are those of descent exactly: x + v and x − v each take a step of descent, and change places. The edge flow is the flow
in time t = ηk whose solution these maps follow, x and v = r u being smooth. Its expansion in η begins with

    x' = −ḡ + (η/4) (H₊(v' − ḡ) − H₋(v' + ḡ)),    u' = (I − uuᵀ) H̄u / (ηh − 1),    h = uᵀH̄u,
    r' = (r/η) ln|ηh − 1| − (r/2) (ln|ηh − 1|)',

where H± = ∇²R(x ± v): without the second terms of x' and r' it is of order one. That of r' is none for r√(ηh − 1), the
geometric mean of two amplitudes: this is the r that is followed in order two, and x' has its ḡ − ∇R(x), of order r²,
divided by ηh − 1. For v = 0 the second term of x' is −(η/2)H∇R, of which Barrett and Dherin (2021, "Implicit gradient
regularization") speak. The parts of the first order are those which Marion
(2026, arXiv 2606.18080, "Edge Flow") names in the abstract: a symmetrized risk, a Rayleigh quotient, an amplitude that
grows or decays as the sharpness is above or below 2/η.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import GaussNewton, dominant_curvature, vectors
from ..curvature.eigenpair import decomposition
from ..curvature.hessian import quadratic_form
from ..solvers.field import GradientField, Measured, norm

Point = TypeVar("Point")


class EdgeCurvature(eqx.Module):
    """An approximation of −∂F/∂y for the edge flow F, y = (x, u, ln r), with a cheap resolvent.

    With A = GᵀG, of low rank, near the Hessian at the centre x, and S its largest eigenvalue:

        x' ≈ −(A + ½ηA²) x − r² ∇S ln r,    u' ≈ −(h − A)₊ u / (ηh − 1),    (ln r)' ≈ ⟨∇S, x⟩ / (ηh − 1) − ϱ ln r,

    with ½ηA² in an edge flow of order two alone, and ϱ the renewal of the oscillation. Oscillation and sharpness drive
    each other: without the terms in ∇S steps would have to resolve the oscillations of period 2π/√(2α) about the edge,
    where α is the rate at which the gradient flow sharpens.
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
        """`slope` is 1/(ηh − 1), and `bend` the η/2 before A², or zero."""
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


class EdgePoint(eqx.Module):
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


class EdgeField(eqx.Module):
    """The right-hand side of the edge flow, of order one or two in the `learning_rate` η.

    An oscillation decays no further than to what it begins with at the edge, the amplitude s of the onset, and to
    rounding: (s/r)⁴/η is added to r'/r, which is nothing where descent oscillates. What it begins with is used up while
    it grows, s'/s = −20r'/r down to rounding: the next one begins with what is left of this one.
    """

    field: GradientField
    learning_rate: Float[Array, ""]
    order: int = eqx.field(static=True)
    largest_logarithm: float = eqx.field(static=True, default=3.0)
    """An amplitude beyond e³ is that of a run which diverges."""
    in_step: float = eqx.field(static=True, default=2.0)
    """The (ηω)² at which half of the second order of r is left."""
    used_up: float = eqx.field(static=True, default=20.0)
    """How many times as fast as an oscillation grows, what it began with falls."""
    largest_rank: int = eqx.field(static=True, default=128)
    """The rank up to which Gauss–Newton matrices of linear networks are taken. In the bent valleys of others they leave
    out too much:"""
    dimension: int = eqx.field(static=True, default=24)
    """so many products with the Hessian tell which directions are stiff,"""
    scattered: float = eqx.field(static=True, default=0.3)
    """from a start with this share of all directions."""

    def __call__(self, t: object, point: EdgePoint, args: object) -> EdgePoint:
        """Return the derivative of a point in time; it depends on neither `t` nor `args`."""
        eta, sides = self.learning_rate, Sides.of(self.field, point, self.largest_logarithm, linearized=self.order > 1)
        growth, slope = log_factor(eta * sides.curvature - 1)
        across = jax.tree.map(lambda a, b: a - sides.curvature * b, sides.image, sides.direction)
        turn = vectors.scaled(slope, across)
        later = self._later(sides)
        moved = jax.tree.map(lambda g, mean: -(g + later**2 * (mean - g)), sides.gradient, sides.mean)
        if self.order > 1:
            velocity = jax.tree.map(lambda u, v: sides.amplitude * (growth / eta * u + v), sides.direction, turn)
            second = sides.second_difference(velocity)
            moved = jax.tree.map(lambda a, b: a + eta / 4 * _kept(eta, second, sides.mean) * b, moved, second)
        return EdgePoint(moved, turn, (growth + self.renewal(point)) / eta, self._used_up(point, growth) / eta)

    def amplitude(self, point: EdgePoint) -> Float[Array, ""]:
        """Return the amplitude r of descent's oscillation, not of that half a step later."""
        sides = Sides.of(self.field, point, self.largest_logarithm, linearized=False)
        return sides.amplitude * self._later(sides)

    def _later(self, sides: "Sides") -> Float[Array, ""]:
        """Return r over what is followed: one over the root of ηh − 1 in order two, where r changes slowly enough.

        Amplitude and sharpness drive each other in an oscillation of their own about the edge, of a frequency ω with
        ω² = r²‖∇S‖²/(ηh − 1), where ½r²∇S is ḡ − ∇R. The expansion is one in ηω, and where that is more than √2, with
        hardly four steps to a period, it means nothing.
        """
        if self.order == 1:
            return jnp.ones_like(sides.amplitude)
        slope = log_factor(self.learning_rate * sides.curvature - 1)[1]
        bend = norm(vectors.difference(sides.mean, sides.gradient))
        frequency = 2 * self.learning_rate * jnp.sqrt(slope) * bend / sides.apart
        return slope ** (0.5 / (1 + frequency**4 / self.in_step**2))

    def renewal(self, point: EdgePoint) -> Float[Array, ""]:
        """Return (s/r)⁴."""
        least = jnp.exp(point.log_onset) + least_amplitude(point.centre, point.direction)
        return (least * jnp.exp(-point.log_amplitude)) ** 4

    def _used_up(self, point: EdgePoint, growth: Float[Array, ""]) -> Float[Array, ""]:
        """Return ηs'/s."""
        left = jnp.exp(point.log_onset) - least_amplitude(point.centre, point.direction)
        return -self.used_up * jnp.maximum(growth, 0) * jnp.maximum(left * jnp.exp(-point.log_onset), 0)

    def measured(self, point: EdgePoint) -> Measured:
        """Return the derivative; nothing is known of the objective at the centre."""
        return Measured(self(None, point, None), jnp.full_like(point.log_amplitude, jnp.nan))

    def gauss_newton(self, point: EdgePoint) -> EdgeCurvature:
        """Return what a linearly implicit method takes for the derivative of the field."""
        centre, direction = point.centre, point.unit
        gradient, product = jax.linearize(jax.grad(self.field.objective), centre)
        curvature, sharpening = jax.value_and_grad(lambda x: quadratic_form(self.field.objective, x, direction))(centre)
        return EdgeCurvature(
            self._low_rank(centre, product, jax.tree.map(jnp.add, direction, _unit(gradient))),
            sharpening,
            curvature=curvature,
            amplitude=jnp.exp(jnp.minimum(point.log_amplitude, self.largest_logarithm)),
            slope=log_factor(self.learning_rate * curvature - 1)[1],
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


class Sides(eqx.Module):
    """What the gradients at the centre x, at x + v and at x − v report: ∇R and ḡ, H̄u and its part h along u.

    `apart` is the amplitude, or the distance below which a difference of gradients is too much of rounding, if that is
    larger: then H̄ is the Hessian at the centre.
    """

    direction: PyTree
    amplitude: Float[Array, ""]
    apart: Float[Array, ""]
    gradient: PyTree
    mean: PyTree
    image: PyTree
    curvature: Float[Array, ""]
    product: Callable[[PyTree], PyTree] | None

    @classmethod
    def of(cls, field: GradientField, point: EdgePoint, largest_logarithm: float, *, linearized: bool) -> "Sides":
        """Return what is reported at a point; `linearized` says whether products are asked for, too."""
        direction, gradient = point.unit, jax.grad(field.objective)
        amplitude = jnp.exp(jnp.minimum(point.log_amplitude, largest_logarithm))
        known = jnp.finfo(amplitude.dtype)
        apart = jnp.maximum(amplitude, known.eps**0.5 * norm(point.centre) + known.tiny)
        here, image = jax.jvp(gradient, (point.centre,), (direction,))
        both = jax.tree.map(lambda x, u: jnp.stack([x + amplitude * u, x - amplitude * u]), point.centre, direction)
        slopes, product = jax.linearize(jax.vmap(gradient), both) if linearized else (jax.vmap(gradient)(both), None)
        mean = jax.tree.map(lambda pair: (pair[0] + pair[1]) / 2, slopes)
        quotient = jax.tree.map(lambda pair: (pair[0] - pair[1]) / (2 * apart), slopes)
        image = vectors.where(amplitude < apart, image, quotient)
        curvature = vectors.inner_product(direction, image)
        return cls(direction, amplitude, apart, here, mean, image, curvature, product)

    def second_difference(self, velocity: PyTree) -> PyTree:
        """Return H₊(v' − ḡ) − H₋(v' + ḡ), where `velocity` is v'."""
        assert self.product is not None
        ways = jax.tree.map(lambda v, g: jnp.stack([v - g, -v - g]), velocity, self.mean)
        return jax.tree.map(lambda pair: pair[0] + pair[1], self.product(ways))


def least_amplitude(weights: PyTree, direction: PyTree) -> Float[Array, ""]:
    """Return the length along `direction` of what a step loses as it rounds the weights, and above zero.

    The error of a rounding is spread evenly over the last bit, so that its root mean square is a quarter of the ε|wᵢ|
    which is about that bit.
    """
    known = jnp.finfo(vectors.dtype_of(weights))
    return known.eps / 4 * norm(jax.tree.map(jnp.multiply, weights, direction)) + known.tiny


def _kept(eta: Float[Array, ""], second: PyTree, gradient: PyTree) -> Float[Array, ""]:
    """Return the part of the term of second order that leaves half of −ḡ: all of it where H > −1/η along ḡ.

    Beyond, at H = −2/η, the expansion would turn the field around, and climb to a maximum.
    """
    against, square = eta / 4 * vectors.inner_product(second, gradient), vectors.inner_product(gradient, gradient)
    return jnp.where(against > square / 2, square / 2 / jnp.where(against > 0, against, 1), 1)


def log_factor(exponent: Float[Array, ""], *, tangent_below: float = 0.5) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return ln z and 1/z for z = ηh − 1, below ½ those of the tangent there.

    Where descent would end an oscillation within a step, at ηh = 1, ln|ηh − 1| has a pole, and ηh < 1 makes none.
    """
    inside = jnp.maximum(exponent, tangent_below)
    return jnp.log(inside) + jnp.minimum(exponent - tangent_below, 0) / tangent_below, 1 / inside


def _unit(vector: PyTree) -> PyTree:
    length = norm(vector)
    return vectors.divided(vector, jnp.where(length > 0, length, 1))
