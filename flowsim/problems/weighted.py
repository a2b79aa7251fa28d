"""A weighted sum over the samples of a problem, in place of their mean."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import Problem


class WeightedRisk(Problem):
    """Σ_i c_i R_i, with R_i the risk of a problem on its sample i. With c_i = 1/n it is the risk of the problem.

    Raises `ValueError` for another number of weights than of samples.
    """

    problem: Problem
    """The problem."""
    weights: Float[Array, " n"]
    """c_i, which may be negative."""

    def __check_init__(self):
        count = self.problem.sample_count()
        if eqx.is_array(self.weights) and self.weights.shape != (count,):
            raise ValueError(f"the weights have shape {self.weights.shape}: expected ({count},), one for each sample")

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return the weighted sum."""
        risks = self.problem.sample_risks(network)
        return jnp.sum(self.weights.astype(risks.dtype) * risks)
