"""Step decay: a learning rate that falls by a factor at given times."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .learning_rate import LEARNING_RATES, LEAST, LearningRate, Scalar, check_between


@LEARNING_RATES.register("step_decay")
class StepDecay(LearningRate):
    """η(t) is the `rate` times `decay` to the power of how many of the `times` have come.

    Raises `ValueError` for times that do not increase, and a decay that is none.
    """

    rate: Scalar
    """η at time 0, a number or another `flowsim.LearningRate`."""
    times: tuple[float, ...]
    """When it falls, in increasing order."""
    decay: float = 0.1
    """By which factor it falls each time: 1e-6 at least, at most 1."""

    def __check_init__(self):
        check_between("decay", self.decay, LEAST, 1)
        if isinstance(self.times, Tracer) or any(isinstance(time, Tracer) for time in jax.tree.leaves(self.times)):
            return
        try:
            times = np.array([float(time) for time in self.times])
        except (TypeError, ValueError):  # of what is no list, or no list of numbers
            times = np.array([])
        if not times.size or not np.isfinite(times).all() or not (np.diff(times, prepend=0) > 0).all():
            raise ValueError(f"times must be a list of increasing times above zero, got {self.times!r}")

    def factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return decay^n after n of the times; a time of a step misses one that is meant to be the same by rounding."""
        here = jnp.asarray(time) * (1 + 8 * jnp.finfo(jnp.asarray(time).dtype).eps)
        return self.decay ** jnp.sum(here >= jnp.asarray(self.times))

    def largest_factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return the factor at the time, as it never rises."""
        return self.factor(time)
