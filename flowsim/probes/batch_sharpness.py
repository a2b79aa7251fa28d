"""The batch sharpness: the curvature of the risk on a minibatch along its own gradient."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..curvature import inner_product
from ..curvature.hessian import objective_of
from ..problems import Problem
from .batches import BatchMean, SampledProbe, mean_over_batches
from .probe import PROBES, Label, Moment

_SYMBOL = r"batch sharpness"


@PROBES.register("batch_sharpness")
class BatchSharpness(SampledProbe):
    """E_B[gᵀHg/‖g‖²] for g = ∇R_B and H = ∇²R_B on minibatches B of `batch` samples (Andreyev and Beneventano 2024).

    That is what SGD brings to 2/η, and keeps there, where gradient descent does so with the sharpness (their claim,
    arXiv:2412.20553). `ratio` is E_B[gᵀHg]/E_B[‖g‖²], which is 2/η where a step leaves the risk of its own batch as it
    was, in the mean and to second order. `error` and `ratio_error` are half widths of 95 % intervals, zero where all
    minibatches were listed: at most `draws`; more are drawn until both are known to `rtol`. With a batch of all samples
    both are gᵀHg/‖g‖² of the risk. NaN where the gradient of a minibatch vanishes. A minibatch costs its gradient and
    a Hessian–vector product.
    """

    label = Label(
        "batch_sharpness",
        "curvature of minibatches along their gradients",
        _SYMBOL,
        logarithmic=False,
        parts=(
            Label("batch_sharpness_mean", "mean curvature of a minibatch along its gradient", _SYMBOL, "1", False),
            Label(
                "batch_sharpness_error",
                "half width of the 95 % interval of the mean curvature",
                "error of the batch sharpness",
            ),
            Label(
                "batch_sharpness_ratio",
                "mean curvature of minibatches, each weighted by its squared gradient",
                r"$E[g_B^\top H_B g_B] / E[\Vert g_B \Vert^2]$",
                "1",
                False,
            ),
            Label(
                "batch_sharpness_ratio_error",
                "half width of the 95 % interval of the weighted mean",
                "error of the weighted mean",
            ),
        ),
    )

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return mean and ratio with their errors."""

        def of_batch(batch: Problem) -> Float[Array, " three"]:
            objective, weights = objective_of(moment.network, batch)
            slope, product = jax.linearize(jax.grad(objective), weights)
            curvature, square = inner_product(slope, product(slope)), inner_product(slope, slope)
            return jnp.stack([curvature / square, curvature, square])

        def values(found: BatchMean) -> dict[str, Float[Array, ""]]:
            ratio, error = found.ratio(1, 2)
            return {"mean": found.mean[0], "error": found.half_widths[0], "ratio": ratio, "ratio_error": error}

        def is_precise(found: BatchMean) -> Bool[Array, ""]:
            known = values(found)
            both = (("mean", "error"), ("ratio", "ratio_error"))
            return jnp.all(jnp.stack([self.is_precise(known[one], known[error]) for one, error in both]))

        return values(mean_over_batches(of_batch, moment, self.sampler(), most=self.draws, is_precise=is_precise))
