"""Cosine decay: a learning rate that falls along half a period of a cosine."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .learning_rate import LEARNING_RATES, LEAST, LearningRate, Scalar, check_between


@LEARNING_RATES.register("cosine_decay")
class CosineDecay(LearningRate):
    """η(t) falls from the `rate` at time 0 along half a cosine to `final` times it at `time`, and stays there.

    Loshchilov and Hutter (2017, "SGDR") let it fall so, in the number of steps; here it is time, of which later steps
    take less. With no `final` rate no number of steps would get there: it must be above zero. Raises `ValueError` for
    options that cannot be.
    """

    rate: Scalar
    """η at time 0, a number or another `flowsim.LearningRate`."""
    time: float
    """How long it falls."""
    final: float = 0.01
    """The part of the rate that is left: 1e-6 at least, at most 1."""

    def __check_init__(self):
        check_between("time", self.time, 0)
        check_between("final", self.final, LEAST, 1)

    def factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return f + (1 − f)(1 + cos(πt/T))/2, and f from T on."""
        part = jnp.minimum(time / self.time, 1)
        return self.final + (1 - self.final) * (1 + jnp.cos(jnp.pi * part)) / 2

    def largest_factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return the factor at the time, as it never rises."""
        return self.factor(time)
