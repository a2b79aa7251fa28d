"""How far below 2/η the noise of minibatches keeps the sharpness: predicted, and as it is."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..curvature import inner_product, sharpness_gradient, top_eigenpairs
from ..curvature.hessian import objective_of
from ..networks import split
from .batches import BatchProbe
from .gradient_noise import gradient_of, variance_along
from .probe import PROBES, Label, Moment


@PROBES.register("sharpness_gap")
class SharpnessGap(BatchProbe):
    """The gap of the sharpness below 2/η that SGD comes to rest at: `predicted`, ηβσ_u²/(4α), and `measured`, 2/η − S.

    α = −⟨∇R, ∇S⟩, β = ‖∇S‖², and σ_u² is the variance of the gradient of a minibatch of `batch` samples along the top
    eigenvector u (Liao, Kolomvaki and Kyrillidis 2026, arXiv:2604.21016): under this noise a mode of curvature S has
    the variance 2α/β at which self-stabilization holds sharpening. All is taken at the centre of the oscillation, where
    ⟨∇R, u⟩ = 0 on the line along u through the weights: so α is that of the motion along the edge and not of the
    oscillation about it. `predicted` is NaN where α is not positive, as nothing sharpens there; both are without a
    learning rate, and where S has no derivative.

    Both are for steps W − ηg: of SGD and of noisy full-batch descent, without momentum or substeps. The formula is for
    gaps that are small compared to 2/η, and leaves out that curvatures differ from batch to batch, which on data that
    are fitted is most of the gap (`MeanSquareSharpness`), and that S fluctuates with the oscillation: where the gap is
    not large compared to √(α/2), it may be off by more than itself.
    """

    label = Label(
        "sharpness_gap",
        "gap of the sharpness below 2/η",
        r"gap $2/\eta - S$",
        logarithmic=False,
        parts=(
            Label(
                "sharpness_gap_predicted",
                "gap below 2/η that gradient noise predicts",
                r"$\eta\beta\sigma_u^2/4\alpha$",
            ),
            Label(
                "sharpness_gap_measured",
                "gap below 2/η of the sharpness at the centre of the oscillation",
                r"$2/\eta - S$",
                "1",
                False,
            ),
        ),
    )

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return both gaps."""
        if moment.learning_rate is None:
            return dict.fromkeys(("predicted", "measured"), jnp.full_like(moment.gradient_norm, jnp.nan))
        rate, centre = moment.learning_rate, _centre(moment)
        found = sharpness_gradient(centre, moment.problem, dense=False)
        alpha = -inner_product(found.gradient, gradient_of(centre, moment.problem))
        beta = inner_product(found.gradient, found.gradient)
        share = self.sampler().variance_factor(moment.problem)
        gap = rate * beta * share * variance_along(centre, moment.problem, found.vector) / (4 * alpha)
        return {
            "predicted": jnp.where(found.converged & (alpha > 0), gap, jnp.nan),
            "measured": jnp.where(found.converged, 2 / rate - found.value, jnp.nan),
        }


def _centre(moment: Moment, *, passes: int = 2, steps: int = 3) -> eqx.Module:
    """Return the network on a line along u through the weights where ⟨∇R, u⟩ = 0, u its own top eigenvector.

    The eigenvector turns along the line, to opposite sides at the two ends of an oscillation: so the line is drawn once
    more, along the eigenvector at the centre that was found first.
    """
    weights, rest = split(moment.network)
    objective, _ = objective_of(moment.network, moment.problem)

    def along_its_vector(_: int, found: eqx.Module) -> eqx.Module:
        pairs = top_eigenpairs(eqx.combine(found, rest), moment.problem, count=1, dense=False)
        direction = pairs.pair(0).vector

        def nearer(_: int, here: eqx.Module) -> eqx.Module:
            slope, change = jax.jvp(jax.grad(objective), (here,), (direction,))
            length = inner_product(slope, direction) / inner_product(change, direction)
            return jax.tree.map(lambda w, u: w - length * u, here, direction)

        return jax.lax.fori_loop(0, steps, nearer, weights)

    return eqx.combine(jax.lax.fori_loop(0, passes, along_its_vector, weights), rest)
