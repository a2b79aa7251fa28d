"""The sharpness along a run, plain and preconditioned, and the largest eigenvalues of the Hessian."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..curvature import preconditioned_eigenpair, top_eigenpair, top_eigenpairs
from ..networks import split
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("sharpness")
class Sharpness(Probe):
    """The largest eigenvalue of the Hessian, always by Lanczos, which is cheaper than a full decomposition."""

    label: Label = eqx.field(
        static=True,
        default=Label("sharpness", "sharpness, the largest eigenvalue of the Hessian of the risk", r"sharpness $S$"),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the sharpness, NaN where it could not be certified."""
        pair = top_eigenpair(moment.network, moment.problem, dense=False)
        return jnp.where(pair.converged, pair.value, jnp.nan)


@PROBES.register("preconditioned_sharpness")
class PreconditionedSharpness(Probe):
    """The largest eigenvalue of P^(−1/2) H P^(−1/2), P the preconditioner of the next step (Cohen et al. 2022).

    Of dynamics without a preconditioner it is the sharpness. It depends on the state of a run: where that is not known,
    as of the ends of the runs of a sweep, it is NaN.
    """

    label: Label = eqx.field(
        static=True,
        default=Label(
            "preconditioned_sharpness",
            "largest eigenvalue of the Hessian of the risk, preconditioned as the steps are",
            r"preconditioned sharpness $\lambda_1(P^{-1} H)$",
        ),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the preconditioned sharpness, NaN where it could not be certified."""
        if moment.state is None:
            return jnp.full_like(moment.gradient_norm, jnp.nan)
        if moment.preconditioner is None:
            pair = top_eigenpair(moment.network, moment.problem, dense=False)
        else:
            pair = preconditioned_eigenpair(moment.network, moment.problem, moment.preconditioner)
        return jnp.where(pair.converged, pair.value, jnp.nan)


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
