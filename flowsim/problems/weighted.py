"""A weighted sum over the samples of a problem, in place of their mean."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import Problem


class WeightedRisk(Problem):
    """Σ_i c_i R_i, with R_i the risk of a `problem` on its sample i, and c_i its entry in `weights`, (n,).

    With c_i = 1/n it is the risk of the problem. Weights may be negative.
    """

    problem: Problem
    weights: Float[Array, " n"]

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return the weighted sum."""
        risks = self.problem.sample_risks(network)
        return jnp.sum(self.weights.astype(risks.dtype) * risks)

    def pass_bytes(self, network: Any) -> float | None:
        """Return what a pass over the problem takes."""
        return self.problem.pass_bytes(network)

    def samples_at_once(self, network: Any) -> int | None:
        """Return how many samples of the problem are processed at a time."""
        return self.problem.samples_at_once(network)
