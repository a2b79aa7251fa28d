"""The learning rate of the time, and the edge of stability that moves with it."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .probe import PROBES, Label, Moment, Probe


@PROBES.register("scheduled_rate")
class ScheduledRate(Probe):
    """η(t), the learning rate of a descent at the time, and of the flow that models one; NaN without a learning rate.

    It is recorded by itself where the learning rate changes.
    """

    label = Label("scheduled_rate", "learning rate at the time", r"$\eta(t)$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return η(t)."""
        return jnp.full_like(moment.gradient_norm, jnp.nan) if moment.learning_rate is None else moment.learning_rate


@PROBES.register("moving_edge")
class MovingEdge(Probe):
    """The curvature up to which a step at the time is stable: 2/η(t) for gradient descent; NaN where it is not known.

    It is recorded by itself where the learning rate changes.
    """

    label = Label("moving_edge", "curvature up to which steps at the time are stable", r"edge, $2/\eta(t)$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the threshold."""
        return jnp.full_like(moment.gradient_norm, jnp.nan) if moment.threshold is None else moment.threshold
