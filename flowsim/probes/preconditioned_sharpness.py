"""The sharpness along a run in the coordinates in which a preconditioned descent takes its steps."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..curvature import preconditioned_eigenpair, top_eigenpair
from .probe import PROBES, Label, Moment, Probe


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
