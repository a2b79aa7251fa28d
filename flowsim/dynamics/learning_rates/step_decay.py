"""Step decay: a learning rate that falls by a factor at given times."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .learning_rate import LEARNING_RATES, LearningRate, Scalar, check_between


@LEARNING_RATES.register("step_decay")
class StepDecay(LearningRate):
    """η(t) is the `rate` times `decay` to the power of how many of the `times` have come.

    Raises `ValueError` for times that do not increase, and a decay that is none.
    """

    rate: Scalar
    times: tuple[float, ...]
    """When it falls, in increasing order."""
    decay: float = 0.1
    """By which factor it falls each time: above 0, at most 1."""

    def __check_init__(self):
        times = np.asarray(self.times)
        if times.ndim != 1 or not times.size or times.dtype.kind not in "iuf" or not self._increase(times):
            raise ValueError(f"times must be a list of increasing times above zero, got {self.times!r}")
        check_between("decay", self.decay, 0, 1)

    @staticmethod
    def _increase(times: np.ndarray) -> bool:
        return bool(np.isfinite(times).all() and (np.diff(times, prepend=0) > 0).all())

    def factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return decay^n after n of the times; a time of a step misses one that is meant to be the same by rounding."""
        here = jnp.asarray(time) * (1 + 8 * jnp.finfo(jnp.asarray(time).dtype).eps)
        return self.decay ** jnp.sum(here >= jnp.asarray(self.times))
