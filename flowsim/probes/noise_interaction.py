"""The interaction of the noise of gradients with the curvature of the whole risk."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..curvature import inner_product
from ..curvature.hessian import objective_of
from ..problems import Problem
from .batches import BatchMean, SampledProbe, mean_over_samples
from .gradient_noise import gradient_of
from .probe import PROBES, Label, Moment


@PROBES.register("noise_interaction")
class NoiseInteraction(SampledProbe):
    """E_B[gᵀHg]/‖∇R‖² for g = ∇R_B on minibatches of `batch` samples, H = ∇²R (Andreyev and Beneventano 2024).

    It is 2/η where a step of SGD leaves the whole risk as it was, in the mean and to second order; where R falls
    steadily it is less, and about a minimum 2/η is what it fluctuates around: it tells that SGD oscillates, not that it
    is unstable. From E_B[gᵀHg] = ∇RᵀH∇R + tr(HΣ_B), whose trace is a mean over single samples: exact for at most
    `draws` samples, else drawn until it is known to `rtol`, with `error` the half width of the 95 % interval. A sample
    costs a Hessian–vector product of all.
    """

    label = Label(
        "noise_interaction",
        "curvature of the risk along gradients of minibatches",
        "interaction with noise",
        logarithmic=False,
        parts=(
            Label(
                "noise_interaction_value",
                "curvature of the risk along gradients of minibatches, in the measure of the squared gradient",
                r"$E[g_B^\top H g_B] / \Vert \nabla R \Vert^2$",
            ),
            Label(
                "noise_interaction_error",
                "half width of the 95 % interval of the interaction",
                "error of the interaction",
            ),
        ),
    )

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return the interaction with its error."""
        objective, weights = objective_of(moment.network, moment.problem)
        mean, product = jax.linearize(jax.grad(objective), weights)
        square, along = inner_product(mean, mean), inner_product(mean, product(mean))
        share = self.sampler().variance_factor(moment.problem)

        def of_sample(sample: Problem) -> Float[Array, " one"]:
            off = jax.tree.map(jnp.subtract, gradient_of(moment.network, sample), mean)
            return inner_product(off, product(off))[None]

        def values(found: BatchMean) -> tuple[Float[Array, ""], Float[Array, ""]]:
            return (along + share * found.mean[0]) / square, share * found.half_widths[0] / square

        def is_precise(found: BatchMean) -> Bool[Array, ""]:
            return self.is_precise(*values(found))

        found = mean_over_samples(of_sample, moment, most=self.draws, is_precise=is_precise, of_all=True)
        value, error = values(found)
        return {"value": value, "error": error}
