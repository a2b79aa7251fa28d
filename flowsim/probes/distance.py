"""How far a run has come from where it began."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..networks import split
from ..networks.weights import norm
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("distance_travelled")
class DistanceTravelled(Probe):
    """‖W(t) − W(0)‖, the distance of the weights to those at which the run began.

    Of a fork that is where the run began that it goes on from, as `compare` knows; `descend(..., after=...)` by itself
    begins anew. NaN where the start of a run is not known.
    """

    start: PyTree = None
    """The network at which the run began."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "distance_travelled",
            "distance of the weights to those at the start, ‖W(t) − W(0)‖",
            r"$\Vert W(t) - W(0) \Vert$",
        ),
    )
    """What it is called in tables and figures."""

    def begin(self, network: PyTree) -> Self:
        """Return the probe of a run that begins at this network."""
        return self if self.start is not None else replace(self, start=split(network)[0])

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the distance."""
        if self.start is None:
            return jnp.full_like(moment.gradient_norm, jnp.nan)
        return norm(jax.tree.map(jnp.subtract, split(moment.network)[0], self.start))
