"""The oscillation that a model of descent predicts: its size, and the risk in the mean over it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..networks import split
from ..norms import norm
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("oscillation")
class Oscillation(Probe):
    """√tr Σ, with Σ the covariance of the oscillation about the weights: NaN for dynamics that predict none."""

    label: Label = eqx.field(
        static=True,
        default=Label("oscillation", "amplitude of the oscillation from step to step", r"$\sqrt{\mathrm{tr}\,\Sigma}$"),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the amplitude."""
        if moment.oscillation is None:
            return jnp.full_like(moment.time, jnp.nan)
        return norm(moment.oscillation)


@PROBES.register("mean_risk")
class MeanRisk(Probe):
    """The risk in the mean over the oscillation, R + Σᵢ (½R(W + vᵢ) + ½R(W − vᵢ) − R) for Σ = Σᵢ vᵢvᵢᵀ.

    With a single vᵢ that is the mean of the two points between which descent swings. NaN where none is predicted.
    """

    label: Label = eqx.field(
        static=True, default=Label("mean_risk", "risk in the mean over the oscillation", r"mean risk $\bar R$")
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the mean risk."""
        if moment.oscillation is None:
            return jnp.full_like(moment.time, jnp.nan)
        weights, rest = split(moment.network)
        here = moment.problem(moment.network)

        def more(swing: Array) -> Array:
            sides = [jax.tree.map(lambda w, v, s=sign: w + s * v, weights, swing) for sign in (1, -1)]
            first, second = (moment.problem(eqx.combine(side, rest)) for side in sides)
            return (first - here) / 2 + (second - here) / 2

        return here + jnp.sum(jax.vmap(more)(moment.oscillation))
