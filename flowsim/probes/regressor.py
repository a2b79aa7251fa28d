"""How far a network's regressor is from the optimal one."""

import equinox as eqx
from jaxtyping import Array, Float

from .probe import PROBES, Label, Moment, Probe


@PROBES.register("squared_distance")
class SquaredDistance(Probe):
    """‖π − w*‖², NaN without a regressor."""

    label: Label = eqx.field(
        static=True,
        default=Label(
            "squared_distance",
            "squared distance of the regressor to the optimum, ‖π − w*‖²",
            r"squared distance $\Vert \pi - w^\star \Vert^2$",
        ),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return ‖π − w*‖²."""
        return moment.problem.squared_distance(moment.network)
