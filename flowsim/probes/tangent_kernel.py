"""The tangent kernel along a run: its largest eigenvalue, and how far the gradient is in its direction."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import eigenpairs_lanczos, inner_product
from ..curvature.hessian import scattered_starts
from ..networks import split
from ..networks.weights import norm
from ..problems import Problem
from .gradient_noise import gradient_of
from .probe import OF_EIGENPAIR, PROBES, Label, Moment, Probe


@PROBES.register("tangent_kernel")
class TangentKernel(Probe):
    """The largest eigenvalue of the tangent kernel K = GGᵀ, and the `alignment` of the gradient with its direction.

    G is the Jacobian in the weights of the outputs for all samples, each scaled by a root of its loss's second
    derivative, as `Problem.curved_outputs`: of the mean squared error of n samples, K is 2/n times the neural tangent
    kernel (Jacot, Gabriel and Hongler 2018). Its nonzero eigenvalues are those of the Gauss–Newton matrix
    GᵀG, and where residuals are small those of the Hessian: so `largest` beside S tells what residuals make of S.
    `alignment` is the share of ‖∇R‖² along the top eigenvector of GᵀG, from 0 to 1, NaN where the gradient is zero;
    with weight decay its gradient is part of ∇R, and G is not.
    Both are NaN where the eigenvalue could not be certified. K is never formed: some tens of products at each record.
    """

    label = Label(
        "tangent_kernel",
        "the tangent kernel of the outputs",
        "tangent kernel",
        parts=(
            Label(
                "tangent_kernel_largest",
                "largest eigenvalue of the tangent kernel, and of the Gauss–Newton matrix",
                r"$\lambda_1(G G^\top)$",
            ),
            Label(
                "tangent_kernel_alignment",
                "share of the squared gradient along the top direction of the tangent kernel",
                r"$\cos^2$ of $\nabla R$ and the top of $G^\top G$",
                logarithmic=False,
            ),
        ),
    )

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a problem that is no function of a known number of outputs."""
        _outputs(network, problem)

    def gradients(self, network: PyTree) -> float:
        """Return about those of a search."""
        return OF_EIGENPAIR

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return the largest eigenvalue and the alignment."""
        weights, rest = split(moment.network)
        outputs = _outputs(moment.network, moment.problem)
        _, jacobian = jax.linearize(lambda moved: outputs(eqx.combine(moved, rest)), weights)
        transpose = jax.linear_transpose(jacobian, weights)
        pair = eigenpairs_lanczos(lambda vector: transpose(jacobian(vector))[0], scattered_starts(weights, 1)).pair(0)
        gradient = gradient_of(moment.network, moment.problem)
        size = norm(gradient)
        cosine = inner_product(gradient, pair.vector) / size
        known = pair.converged & (size > 0)
        return {
            "largest": jnp.where(pair.converged, pair.value, jnp.nan),
            "alignment": jnp.where(known, cosine**2, jnp.nan),
        }


def _outputs(network: PyTree, problem: Problem) -> Callable[[PyTree], Array]:
    outputs = problem.curved_outputs(network)
    if outputs is None:
        raise ValueError(
            f"a {type(problem).__name__} has no tangent kernel: expected a risk with curved_outputs, as an "
            "EmpiricalRisk or a LinearRegression"
        )
    return outputs
