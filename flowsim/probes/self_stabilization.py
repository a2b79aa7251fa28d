"""The numbers of self-stabilization: how progressive sharpening and its remedy balance at the edge of stability."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..curvature import inner_product
from .probe import PROBES, Label, Moment, Probe
from .sharpening import slopes

_ALPHA = Label(
    "self_stabilization_alpha",
    "progressive sharpening, α = −⟨∇R, ∇S⟩",
    r"$\alpha = -\langle \nabla R, \nabla S \rangle$",
    logarithmic=False,
)
_BETA = Label(
    "self_stabilization_beta", "strength of self-stabilization, β = ‖∇S‖²", r"$\beta = \Vert \nabla S \Vert^2$"
)
_DELTA = Label(
    "self_stabilization_delta",
    "predicted size of the oscillation at the edge of stability, δ = √(2α/β), NaN where α < 0",
    r"$\delta = \sqrt{2 \alpha / \beta}$",
)


@PROBES.register("self_stabilization")
class SelfStabilization(Probe):
    """α = −⟨∇R, ∇S⟩, β = ‖∇S‖² and δ = √(2α/β) of Damian, Nichani and Lee (2023, section 4), at the weights.

    At the edge of stability an oscillation of size x along the top eigenvector changes S at the rate α − βx²/2: δ is
    that at which sharpening and self-stabilization are in balance, NaN where α < 0, as nothing sharpens there. The
    paper takes all three at the projection of the weights onto S ≤ 2/η; here they are those of the weights themselves.
    NaN too where the largest eigenvalue is not simple. It costs what `Sharpening` does.
    """

    label: Label = eqx.field(
        static=True,
        default=Label(
            "self_stabilization",
            "sharpening, self-stabilization and the oscillation of their balance",
            r"self-stabilization",
            parts=(_ALPHA, _BETA, _DELTA),
        ),
    )

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return α, β and δ under the names alpha, beta and delta."""
        sharpness, gradient = slopes(moment)
        alpha = -inner_product(sharpness.gradient, gradient)
        beta = inner_product(sharpness.gradient, sharpness.gradient)
        return {"alpha": alpha, "beta": beta, "delta": jnp.sqrt(2 * alpha / beta)}
