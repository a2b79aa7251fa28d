"""Rod flow: two consecutive iterates of gradient descent, as a flow of their midpoint and of half their difference.

Regis and Chewi (2026, arXiv 2602.01480, "Rod Flow") take descent's iterates for the ends w̄ ± δ of a rod. Of the
midpoint w̄ and of Σ = δ⊗δ descent makes exact difference equations, and in the time t = ηk these are

    dw̄/dt = −½(g₊ + g₋) − (η/8)(H₊ + H₋)(g₊ + g₋),    dΣ/dt = (η/4)(g₊⊗g₊ + g₋⊗g₋) − (2/η)Σ,

where g± and H± are gradient and Hessian at w̄ ± δ. While descent is smooth, δ is half a step, and at the edge it is the
oscillation. A Σ of rank one has to turn from the first to the second, and what the second begins with is lost. So here
δ = s ± r u is both, with either sign as often, and Σ = s⊗s + r² u⊗u. The half step s is what Σ holds of a smooth
movement, and the projection of dΣ/dt onto the tangents of u⊗u is the equation of the rest:

    s = −(η/2)∇R(w̄),    r'/r = ((ηh/2)² − 1)/η,    u' = (η/2) h (I − uuᵀ) H̄u,    h = uᵀH̄u,

where H̄u is half the difference of the gradients for both signs over r, in the mean over both ends, as are ḡ and what
the term in η has in the place of (H₊ + H₋)(g₊ + g₋).
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..curvature import vectors
from ..dynamics.dynamics import DYNAMICS
from ..dynamics.flow import MODELS
from ..solvers.field import GradientField
from .oscillation_flow import OscillationField, OscillationFlow, OscillationPoint


@MODELS.register("rod")
@DYNAMICS.register("rod")
class RodFlow(OscillationFlow):
    """The flow of the rod between two consecutive iterates of gradient descent with the learning rate η.

    It follows the midpoint of the rod, in which weights, risk and sharpness are recorded, and the part of half its
    length that alternates, with its direction, in the time t = ηk of descent (`flowsim.edge.rod_flow` has the equations
    of Regis and Chewi 2026, and what is made of them where the rod is to stay one). That part begins as that of
    `flowsim.EdgeFlow`, with what descent's own iterates alternate by.

    Below 2/η it is closer to descent than the edge flow of order two, as it looks at the gradient half a step to both
    sides. At the edge its amplitude is of first order in η, and bursts of the oscillation end somewhere else. While ηh
    is small its direction turns slowly, so that it is late at an edge which comes within some ten steps.

    Steps are linearly implicit, as those of the edge flow. A run raises `ValueError` for what `checked` refuses.
    """

    rtol: float | None = None
    """Relative tolerance of a step; by default 1e-4, as the model itself is a matter of η²."""
    atol: float | None = None
    """Absolute tolerance of a step; by default 0."""

    order: ClassVar[int] = 2

    def vector_field(self, field: GradientField) -> "RodField":
        """Return the right-hand side for midpoint, direction and amplitude."""
        return RodField(field, self)

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return five gradients and as many products for each evaluation, and one of both for each check."""
        checks = steps + 1
        return 5 * evaluations + checks, 5 * evaluations + checks


class RodField(OscillationField):
    """The right-hand side of the rod flow."""

    field: GradientField
    model: RodFlow
    drift: Float[Array, ""] | None = None

    def moved(self, point: OscillationPoint) -> OscillationPoint:
        """Return the derivative of a point in time."""
        eta, unit, gradient = self.model.learning_rate, point.unit, jax.grad(self.field.objective)
        amplitude, apart = self.lengths(point)
        here, image = jax.jvp(gradient, (point.centre,), (unit,))
        # The four ends: both halves of the step, each with both signs of the oscillation.
        halves, signs = jnp.array([-1.0, -1.0, 1.0, 1.0], eta.dtype), jnp.array([1.0, -1.0, -1.0, 1.0], eta.dtype)
        ends = jax.tree.map(
            lambda x, g, u: (
                x[None] + jnp.multiply.outer(halves * eta / 2, g) + jnp.multiply.outer(signs * amplitude, u)
            ),
            point.centre,
            here,
            unit,
        )
        slopes, product = jax.linearize(jax.vmap(gradient), ends)
        mean = vectors.combination(jnp.full_like(signs, 0.25), slopes)
        quotient = vectors.combination(signs / (4 * apart), slopes)
        image = vectors.where(amplitude < apart, image, quotient)
        curvature = vectors.inner_product(unit, image)
        growth, slope = self.growth(curvature)
        turn = jax.tree.map(lambda a, b: slope * (a - curvature * b), image, unit)
        # Of each rod, between opposite ends, (g₊ + g₋)/2 at both.
        pairs = jax.tree.map(lambda leaf: (leaf + leaf[jnp.array([2, 3, 0, 1])]) / 2, slopes)
        second = vectors.combination(jnp.full_like(signs, 0.25), product(pairs))
        moved = jax.tree.map(lambda g, b: -g - eta / 2 * b, mean, second)
        return self.derivative(point, moved, turn, growth)

    def growth(self, curvature: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return ηr'/r, and its derivative by ηh, which is the rate at which the direction turns, too."""
        half = self.model.learning_rate * jnp.maximum(curvature, 0) / 2
        return half**2 - 1, half

    def amplitude(self, point: OscillationPoint) -> Float[Array, ""]:
        """Return r."""
        return self.lengths(point)[0]
