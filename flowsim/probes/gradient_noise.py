"""The noise of the gradients of minibatches: its variance in all, and along the sharpest direction."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import inner_product, top_eigenpairs
from ..curvature.hessian import objective_of
from ..networks import split
from ..problems import Problem
from .batches import BatchProbe, mean_over_samples
from .probe import PROBES, Label, Moment


@PROBES.register("gradient_noise")
class GradientNoise(BatchProbe):
    """The covariance Σ_B of ∇R_B over minibatches of `batch` samples: `trace`, tr Σ_B, and `top`, σ_u² = uᵀΣ_Bu.

    u is the top eigenvector of the Hessian of the risk. Both are exact, from the gradients of all samples. `top` is NaN
    where the eigenvector could not be certified.
    """

    label = Label(
        "gradient_noise",
        "variance of the gradients of minibatches",
        "variance of gradients",
        parts=(
            Label("gradient_noise_trace", "total variance of the gradient of a minibatch", r"$\mathrm{tr}\,\Sigma_B$"),
            Label(
                "gradient_noise_top",
                "variance of the gradient of a minibatch along the top eigenvector of the Hessian",
                r"$\sigma_u^2 = u^\top \Sigma_B u$",
            ),
        ),
    )

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return the trace and the variance along the top eigenvector."""
        share = self.sampler().variance_factor(moment.problem)
        pair = top_eigenpairs(moment.network, moment.problem, count=1, dense=False).pair(0)
        top = jnp.where(pair.converged, variance_along(moment.network, moment.problem, pair.vector), jnp.nan)
        mean = gradient_of(moment.network, moment.problem)

        def square(sample: Problem) -> Float[Array, " one"]:
            off = jax.tree.map(jnp.subtract, gradient_of(moment.network, sample), mean)
            return inner_product(off, off)[None]

        trace = mean_over_samples(square, moment).mean[0]
        return {"trace": share * trace, "top": share * top}


def gradient_of(network: PyTree, problem: Problem) -> PyTree:
    """Return ∇R of a problem, as the weights of the network."""
    objective, weights = objective_of(network, problem)
    return jax.grad(objective)(weights)


def variance_along(network: PyTree, problem: Problem, direction: PyTree) -> Float[Array, ""]:
    """Return the variance of the derivatives of the risks of single samples along a direction, as the weights."""
    weights, rest = split(network)
    _, slopes = jax.jvp(lambda moved: problem.sample_risks(eqx.combine(moved, rest)), (weights,), (direction,))
    return jnp.var(slopes)
