"""The size of the gradient."""

import equinox as eqx
from jaxtyping import Array, Float

from .probe import PROBES, Label, Moment, Probe


@PROBES.register("gradient_norm")
class GradientNorm(Probe):
    """‖∇R(W)‖ over all weights together."""

    label: Label = eqx.field(
        static=True,
        default=Label(
            "gradient_norm", "norm of the gradient over all weights, ‖∇R(W)‖", r"gradient norm $\Vert \nabla R \Vert$"
        ),
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return ‖∇R(W)‖, which the run knows."""
        return moment.gradient_norm
