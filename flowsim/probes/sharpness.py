"""The sharpness along a run."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..curvature import top_eigenpair
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
