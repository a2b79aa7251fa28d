"""Warm-up: a learning rate that rises to its nominal value."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .learning_rate import LEARNING_RATES, LEAST, LearningRate, Scalar, check_between


@LEARNING_RATES.register("warm_up")
class WarmUp(LearningRate):
    """η(t) rises from `start` times the `rate` at time 0 to the rate at `time`, and stays there.

    It is linear in the number of steps, as in training, or in the time of the flow. Linear in steps, η is the root of a
    linear function of time, as every step takes η: k steps from `start` s take about the `time` k(1 + s)η/2. Raises
    `ValueError` for options that cannot be.
    """

    rate: Scalar
    """η from `time` on, a number or another `flowsim.LearningRate`."""
    time: float
    """How long it rises."""
    start: float = 0.1
    """The part of the rate that it begins with: 1e-6 at least, at most 1."""
    linear_in: Literal["steps", "time"] = eqx.field(static=True, default="steps")
    """Whether it is linear in the number of steps or in time."""

    def __check_init__(self):
        check_between("time", self.time, 0)
        check_between("start", self.start, LEAST, 1)
        if self.linear_in not in ("steps", "time"):
            raise ValueError(f"linear_in must be steps or time, got {self.linear_in!r}")

    def factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return √(s² + (1 − s²) t/T), or s + (1 − s) t/T, and one from T on."""
        part = jnp.minimum(time / self.time, 1)
        if self.linear_in == "time":
            return self.start + (1 - self.start) * part
        return jnp.sqrt(self.start**2 + (1 - self.start**2) * part)

    def largest_factor(self, time: Float[Array, ""]) -> float:
        """Return one, to which it rises."""
        return 1.0
