"""The squared norm of the weights, which weight decay makes smaller."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..networks import split, weight_dtype
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("squared_norm")
class SquaredNorm(Probe):
    """‖W‖², the sum of all squared weights."""

    label = Label("squared_norm", "squared norm of all weights, ‖W‖²", r"squared norm $\Vert W \Vert^2$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return ‖W‖²."""
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(split(moment.network)[0])]
        return sum(squares, jnp.zeros((), weight_dtype(moment.network)))
