"""Edge flow: gradient descent at the edge of stability, as a flow of its oscillation's centre and amplitude.

Gradient descent with learning rate η alternates around a centre wherever its sharpness is near 2/η. Iterates
w_k = x_k + (−1)^k v_k with the maps

    x_{k+1} = x_k − η ḡ,    v_{k+1} = (ηH̄ − I) v_k,    ḡ = ½(g₊ + g₋),    H̄v = ½(g₊ − g₋),    g± = ∇R(x ± v),

are those of descent exactly: x + v and x − v each take a step of descent, and change places. The edge flow is the flow
in time t = ηk whose solution these maps follow, x and v = r u being smooth. Its expansion in η begins with

    x' = −ḡ + (η/4) (H₊(v' − ḡ) − H₋(v' + ḡ)),    u' = (I − uuᵀ) H̄u / (ηh − 1),    h = uᵀH̄u,
    r' = (r/η) ln|ηh − 1| − (r/2) (ln|ηh − 1|)',

where H± = ∇²R(x ± v): without the second terms of x' and r' it is of order one. That of r' is none for r√(ηh − 1), the
geometric mean of two amplitudes: this is the r that is followed in order two, and x' has its ḡ − ∇R(x), of order r²,
divided by ηh − 1. Where η changes in time, 1/η in r' is (1 + η'/2)/η, as the k-th step begins at t(k) and takes
η(t(k)): then dt/dk = η − ηη'/2 up to higher orders. For v = 0 the second term of x' is −(η/2)H∇R, of which Barrett and
Dherin (2021, "Implicit gradient regularization") speak. The parts of the first order are those which Marion
(2026, arXiv 2606.18080, "Edge Flow") names in the abstract: a symmetrized risk, a Rayleigh quotient, an amplitude that
grows or decays as the sharpness is above or below 2/η.
"""

import math
from collections.abc import Callable
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..curvature import vectors
from ..dynamics.dynamics import DYNAMICS
from ..dynamics.flow import MODELS
from ..solvers.field import GradientField, norm
from .oscillation_flow import OscillationField, OscillationFlow, OscillationPoint


@MODELS.register("edge")
@DYNAMICS.register("edge")
class EdgeFlow(OscillationFlow):
    """The flow that gradient descent with the learning rate η follows while it oscillates from one step to the next.

    It follows the centre of the oscillation, in which weights, risk and sharpness are recorded, its direction and its
    amplitude (`flowsim.edge.edge_flow` has the equations), in the time t = ηk of descent. Where the sharpness is below
    2/η it is the gradient flow, up to what descent's steps change in it. At 2/η the oscillation grows, and holds the
    sharpness there.

    When it is noticed depends on how small it begins, and that on how fast descent came to the edge: anything between
    rounding and the oscillation itself. So before its first step a run follows descent to where the sharpness first
    passes 2/η, for at most 1000 steps (counted in the run's gradients and products), and measures what alternates there
    (`flowsim.edge.onset`). It is nothing more that the model takes from descent. Up to there r is held at that.

    The model takes descent to be smooth or to alternate. With learning rates far beyond 2/S, or while the weights cross
    a large part of their distance to the limit within a few steps, descent does neither, and no flow follows it.

    Steps are linearly implicit (`flowsim.solvers.LowRankExtrapolation`): accuracy alone limits them, so that a run
    along the edge may cost far fewer gradients than descent. A run raises `ValueError` for what `checked` refuses.
    """

    order: int = eqx.field(static=True, default=2)
    """What descent's steps change in the gradient flow: nothing for order one, −(η/2)H∇R for order two."""
    rtol: float | None = None
    """Relative tolerance of a step; by default 1e-4, as the model itself is a matter of η²."""
    atol: float | None = None
    """Absolute tolerance of a step; by default 0."""

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, an order other than one and two, and
        tolerances that the precision cannot meet.
        """
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}: the edge flow is known up to order two in η")
        return super().checked(dtype)

    def vector_field(self, field: GradientField) -> "EdgeField":
        """Return the right-hand side for centre, direction and amplitude."""
        return EdgeField(field, self)

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return three gradients and a product for each evaluation, two more for order two, and one for each check."""
        checks = steps + 1
        return 3 * evaluations + checks, (2 * self.order - 1) * evaluations + checks


class EdgeField(OscillationField):
    """The right-hand side of the edge flow, of order one or two in η."""

    field: GradientField
    model: EdgeFlow
    drift: Float[Array, ""] | None = None
    in_step: float = eqx.field(static=True, default=2.0)
    """The (ηω)² at which half of the second order of r is left."""

    def moved(self, point: OscillationPoint) -> OscillationPoint:
        """Return the derivative of a point in time."""
        eta, sides = self.model.learning_rate, Sides.of(self, point, linearized=self.model.order > 1)
        growth, slope = self.growth(sides.curvature)
        across = jax.tree.map(lambda a, b: a - sides.curvature * b, sides.image, sides.direction)
        turn = vectors.scaled(slope, across)
        later = self._later(sides)
        moved = jax.tree.map(lambda g, mean: -(g + later**2 * (mean - g)), sides.gradient, sides.mean)
        if self.model.order > 1:
            velocity = jax.tree.map(
                lambda u, v: sides.amplitude * (growth / self.time_of_step * u + v), sides.direction, turn
            )
            second = sides.second_difference(velocity)
            moved = jax.tree.map(lambda a, b: a + eta / 4 * _kept(eta, second, sides.mean) * b, moved, second)
        return self.derivative(point, moved, turn, growth)

    def growth(self, curvature: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return ηr'/r and its derivative by ηh, which is the rate at which the direction turns, too."""
        return log_factor(self.model.learning_rate * curvature - 1)

    def amplitude(self, point: OscillationPoint) -> Float[Array, ""]:
        """Return the amplitude r of descent's oscillation, not of that half a step later."""
        sides = Sides.of(self, point, linearized=False)
        return sides.amplitude * self._later(sides)

    def _later(self, sides: "Sides") -> Float[Array, ""]:
        """Return r over what is followed: one over the root of ηh − 1 in order two, where r changes slowly enough.

        Amplitude and sharpness drive each other in an oscillation of their own about the edge, of a frequency ω with
        ω² = r²‖∇S‖²/(ηh − 1), where ½r²∇S is ḡ − ∇R. The expansion is one in ηω, and where that is more than √2, with
        hardly four steps to a period, it means nothing.
        """
        if self.model.order == 1:
            return jnp.ones_like(sides.amplitude)
        slope = self.growth(sides.curvature)[1]
        bend = norm(vectors.difference(sides.mean, sides.gradient))
        frequency = 2 * self.model.learning_rate * jnp.sqrt(slope) * bend / sides.apart
        return slope ** (0.5 / (1 + frequency**4 / self.in_step**2))


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
    def of(cls, field: OscillationField, point: OscillationPoint, *, linearized: bool) -> "Sides":
        """Return what is reported at a point; `linearized` says whether products are asked for, too."""
        direction, gradient = point.unit, jax.grad(field.field.objective)
        amplitude, apart = field.lengths(point)
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


def _kept(eta: Float[Array, ""], second: PyTree, gradient: PyTree, *, power: int = 6) -> Float[Array, ""]:
    """Return the part of the term of second order that leaves half of −ḡ or more: nearly all where H > −½/η along ḡ.

    Beyond, at H = −2/η, the expansion would turn the field around, and climb to a maximum. With ϱ = −ηH along ḡ, the
    part is (1 + ϱ⁶)^(−1/6) for ϱ > 0, else one. That is min(1, 1/ϱ) without its kink: the error estimate of a step
    across a kink may be small by chance, whatever the error.
    """
    against, square = eta / 2 * vectors.inner_product(second, gradient), vectors.inner_product(gradient, gradient)
    ratio = jnp.maximum(against, 0) / jnp.where(square > 0, square, 1)
    return jnp.exp(-jnp.logaddexp(0.0, power * jnp.log(ratio)) / power)


def log_factor(
    exponent: Float[Array, ""], *, logarithm_above: float = 0.5, reach: float = 0.5
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return L(z) and L'(z) for z = ηh − 1: L is ln z above c = ½, and below it turns into a line of slope 1/c.

    Where descent would end an oscillation within a step, at ηh = 1, ln|ηh − 1| has a pole, and ηh < 1 makes none. With
    x = 1 − z/c, ln z is ln c − x + (ln(1 − x) + x). Below c the last term is taken at x/(1 + (x/a)⁴)^¼ instead of x, so
    that it is bounded by its value at the `reach` a, and L has no kink that a step could overlook.
    """
    x = 1 - exponent / logarithm_above
    below = jnp.maximum(x, 0) / reach
    bounded = jnp.minimum(x, 0) + reach * below / (1 + below**4) ** 0.25
    value = math.log(logarithm_above) - x + jnp.log1p(-bounded) + bounded
    return value, (1 + (1 + below**4) ** -1.25 * bounded / (1 - bounded)) / logarithm_above
