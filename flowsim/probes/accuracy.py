"""How many samples are on the right side."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .probe import PROBES, Label, Moment, Probe


@PROBES.register("accuracy")
class Accuracy(Probe):
    """The share of samples whose prediction decides for the right class; NaN where the targets stand for none."""

    label: Label = eqx.field(
        static=True,
        default=Label(
            "accuracy", "share of samples whose prediction decides for the right class", "accuracy", "1", False
        ),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the share of samples of positive margin; a tie is no decision."""
        margins = moment.problem.margins(moment.network)
        return jnp.mean(jnp.where(jnp.isnan(margins), jnp.nan, (margins > 0).astype(margins.dtype)))
