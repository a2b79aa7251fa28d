"""The squared norm of the weights, which weight decay makes smaller."""

from jaxtyping import Array, Float

from ..networks import split
from ..networks.weights import norm
from .probe import PROBES, Label, Moment, Probe


@PROBES.register("squared_norm")
class SquaredNorm(Probe):
    """‖W‖², the sum of all squared weights."""

    label = Label("squared_norm", "squared norm of all weights, ‖W‖²", r"squared norm $\Vert W \Vert^2$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return ‖W‖²."""
        return norm(split(moment.network)[0]) ** 2
