"""Edge flow: gradient descent at the edge of stability, as a flow of its centre and its oscillation."""

from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from ..dynamics.dynamics import DYNAMICS
from ..dynamics.flow import MODELS
from ..dynamics.learning_rates import Scalar
from ..solvers.field import GradientField
from .edge_field import EdgeField
from .oscillation_flow import OscillationFlow


@MODELS.register("edge")
@DYNAMICS.register("edge")
class EdgeFlow(OscillationFlow):
    """The flow that gradient descent with the learning rate η follows while it oscillates from one step to the next.

    It follows the centre of the oscillation, in which weights, risk and sharpness are recorded, its direction and its
    amplitude (`flowsim.edge.edge_field` has the equations), in the time t = ηk of descent. Where the sharpness is below
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

    learning_rate: Scalar = None  # pyright: ignore[reportAssignmentType]
    """η of gradient descent, a number or a `flowsim.LearningRate`; in `compare`, `None`: that of each descent."""
    order: int = eqx.field(static=True, default=2)
    """What descent's steps change in the gradient flow: nothing for order one, −(η/2)H∇R for order two."""
    rtol: float | None = None
    """Relative tolerance of a step; by default 1e-4, as the model itself is a matter of η²."""
    atol: float | None = None
    """Absolute tolerance of a step; by default 1e-3·rtol."""

    def checked(self, dtype: jnp.dtype) -> Self:
        """Return the flow with its numbers as arrays, and the tolerances that it leaves open filled in.

        Raises `ValueError` for a learning rate that is not positive and finite, an order other than one and two, and
        tolerances that the precision cannot meet.
        """
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}: the edge flow is known up to order two in η")
        return super().checked(dtype)

    def vector_field(self, field: GradientField) -> EdgeField:
        """Return the right-hand side for centre, direction and amplitude."""
        return EdgeField(field, self._rate, self.order)

    def passes(self, evaluations: Int[Array, ""], steps: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Return three gradients and a product for each evaluation, two more for order two, and one for each check."""
        checks = steps + 1
        return 3 * evaluations + checks, (2 * self.order - 1) * evaluations + checks
