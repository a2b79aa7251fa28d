"""Progressive sharpening along a run, and self-stabilization, which balances it at the edge of stability."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import SharpnessGradient, inner_product, sharpness_gradient
from ..networks import split
from ..networks.weights import norm
from .probe import PROBES, Label, Moment, Probe

_RATE = Label(
    "sharpening_rate",
    "rate at which the sharpness changes along the gradient flow, dS/dt = −⟨∇S, ∇R⟩",
    r"sharpening $\dot S = -\langle \nabla S, \nabla R \rangle$",
    logarithmic=False,
)
_COSINE = Label(
    "sharpening_cosine",
    "cosine of the angle between ∇S and ∇R, −1 where the flow climbs S straight up",
    r"cosine of $\nabla S$ and $\nabla R$",
    logarithmic=False,
)


@PROBES.register("sharpening")
class Sharpening(Probe):
    """How the gradient flow through the weights sharpens: `rate`, dS/dt = −⟨∇S, ∇R⟩, and `cosine`, that of ∇S and ∇R.

    Along a descent too they are those of the gradient flow from there. The integral of the rate over the time of a flow
    is the change of its sharpness. NaN where the largest eigenvalue is not simple, and the cosine where a gradient is
    zero. At each record it takes a search for two eigenpairs, and some four products more.
    """

    label: Label = eqx.field(
        static=True,
        default=Label(
            "sharpening",
            "how the sharpness changes along the gradient flow",
            r"sharpening",
            logarithmic=False,
            parts=(_RATE, _COSINE),
        ),
    )

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return the rate and the cosine."""
        sharpness, gradient = _gradients(moment)
        product = inner_product(sharpness.gradient, gradient)
        sizes = norm(sharpness.gradient) * norm(gradient)
        return {"rate": -product, "cosine": jnp.where(sizes > 0, product / sizes, jnp.nan)}


def _gradients(moment: Moment) -> tuple[SharpnessGradient, PyTree]:
    """Return ∇S, by Lanczos, NaN where the sharpness has no derivative to the precision, and ∇R, as the weights."""
    weights, rest = split(moment.network)
    found = sharpness_gradient(moment.network, moment.problem, dense=False)
    known = jax.tree.map(lambda leaf: jnp.where(found.converged, leaf, jnp.nan), found.gradient)
    gradient = jax.grad(lambda moved: moment.problem.objective(eqx.combine(moved, rest)))(weights)
    return eqx.tree_at(lambda slope: slope.gradient, found, known), gradient


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
        sharpness, gradient = _gradients(moment)
        alpha = -inner_product(sharpness.gradient, gradient)
        beta = inner_product(sharpness.gradient, sharpness.gradient)
        return {"alpha": alpha, "beta": beta, "delta": jnp.sqrt(2 * alpha / beta)}
