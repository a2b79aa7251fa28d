"""The largest eigenvalues of the Hessian along a run."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..curvature import top_eigenpairs
from ..networks import split
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("top_eigenvalues")
class TopEigenvalues(Probe):
    """The `count` largest eigenvalues of the Hessian of the risk, from the largest on, each certified by its residual.

    Each is there as often as it occurs. They take Lanczos from as many random vectors, and so some tens of
    Hessian–vector products for each of them at every record.
    """

    count: int = 3
    """How many of the largest eigenvalues are recorded."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "top_eigenvalues",
            "largest eigenvalues of the Hessian of the risk",
            r"eigenvalues $\lambda_i$ of the Hessian",
            logarithmic=False,
        ),
    )

    def __check_init__(self):
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise ValueError(f"count is {self.count!r}: expected how many eigenvalues to record, 1 or more")

    def measure(self, moment: Moment) -> Float[Array, " count"]:
        """Return the eigenvalues, NaN where one could not be certified. Raises `ValueError` for more than weights."""
        weights = sum(leaf.size for leaf in jax.tree.leaves(split(moment.network)[0]))
        if self.count > weights:
            raise ValueError(f"count is {self.count}: expected at most {weights}, the number of weights")
        found = top_eigenpairs(moment.network, moment.problem, count=self.count, dense=False)
        return jnp.where(found.converged, found.values, jnp.nan)
