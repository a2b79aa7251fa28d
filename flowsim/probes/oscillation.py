"""The oscillation that a model of descent predicts: its amplitude, and the risk averaged over it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..networks import split
from ..networks.weights import norm
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("oscillation")
class Oscillation(Probe):
    """√tr Σ, with Σ the covariance of the oscillation about the weights: NaN for dynamics that predict none."""

    label = Label("oscillation", "amplitude of the oscillation from step to step", r"$\sqrt{\mathrm{tr}\,\Sigma}$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the amplitude."""
        if moment.oscillation is None:
            return jnp.full_like(moment.time, jnp.nan)
        return norm(moment.oscillation)


@PROBES.register("mean_risk")
class MeanRisk(Probe):
    """The risk averaged over the oscillation, R + Σᵢ (½R(W + vᵢ) + ½R(W − vᵢ) − R) for Σ = Σᵢ vᵢvᵢᵀ.

    With a single vᵢ that is the mean of the two points between which descent oscillates. NaN where none is predicted.
    """

    label = Label("mean_risk", "risk in the mean over the oscillation", r"mean risk $\bar R$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the mean risk."""
        return _mean_over_oscillation(moment, moment.problem)


@PROBES.register("mean_excess_risk")
class MeanExcessRisk(Probe):
    """The excess risk in the mean over the oscillation, as `MeanRisk`, with R − R_min in place of R.

    It keeps its digits where the risk has none left: nothing is subtracted from R that the problem does not subtract
    itself. NaN where the minimum is not known, or no oscillation is predicted.
    """

    label = Label(
        "mean_excess_risk",
        "excess risk R(W) − R_min in the mean over the oscillation",
        r"mean excess risk $\bar R - R_\mathrm{min}$",
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the mean excess risk."""
        return _mean_over_oscillation(moment, moment.problem.excess_risk)


def _mean_over_oscillation(moment: Moment, risk: Callable[[Any], Array]) -> Float[Array, ""]:
    """Return a risk averaged over the oscillation at a moment, NaN where none is predicted."""
    if moment.oscillation is None:
        return jnp.full_like(moment.time, jnp.nan)
    weights, rest = split(moment.network)
    here = risk(moment.network)

    def excess(mode: Array) -> Array:
        sides = [jax.tree.map(lambda w, v, s=sign: w + s * v, weights, mode) for sign in (1, -1)]
        first, second = (risk(eqx.combine(side, rest)) for side in sides)
        return (first - here) / 2 + (second - here) / 2

    return here + jnp.sum(jax.vmap(excess)(moment.oscillation))
