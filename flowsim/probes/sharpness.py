"""The sharpness along a run, plain and preconditioned, the largest eigenvalues, and how the flow sharpens."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import (
    SharpnessGradient,
    inner_product,
    preconditioned_eigenpair,
    sharpness_gradient,
    top_eigenpair,
    top_eigenpairs,
)
from ..networks import split
from ..networks.weights import norm, weight_count
from ..problems import Problem
from .probe import OF_EIGENPAIR, PROBES, Label, Moment, Probe


@PROBES.register("sharpness")
class Sharpness(Probe):
    """The largest eigenvalue of the Hessian, always by Lanczos, which is cheaper than a full decomposition."""

    label = Label("sharpness", "sharpness, the largest eigenvalue of the Hessian of the risk", r"sharpness $S$")

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the sharpness, NaN where it could not be certified."""
        pair = top_eigenpair(moment.network, moment.problem, dense=False)
        return jnp.where(pair.converged, pair.value, jnp.nan)


@PROBES.register("preconditioned_sharpness")
class PreconditionedSharpness(Probe):
    """The largest eigenvalue of P^(−1/2) H P^(−1/2), P the preconditioner of the next step (Cohen et al. 2022).

    Of dynamics without a preconditioner it is the sharpness. It depends on the state of a run: where that is not known,
    as of the ends of the runs of a sweep, it is NaN.
    """

    label = Label(
        "preconditioned_sharpness",
        "largest eigenvalue of the Hessian of the risk, preconditioned as the steps are",
        r"preconditioned sharpness $\lambda_1(P^{-1} H)$",
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the preconditioned sharpness, NaN where it could not be certified."""
        if moment.state is None:
            return jnp.full_like(moment.gradient_norm, jnp.nan)
        if moment.preconditioner is None:
            pair = top_eigenpair(moment.network, moment.problem, dense=False)
        else:
            pair = preconditioned_eigenpair(moment.network, moment.problem, moment.preconditioner)
        return jnp.where(pair.converged, pair.value, jnp.nan)


@PROBES.register("top_eigenvalues")
class TopEigenvalues(Probe):
    """The `count` largest eigenvalues of the Hessian of the risk, from the largest on, each certified by its residual.

    Each is there as often as it occurs. They take Lanczos from as many random vectors, and so some tens of
    Hessian–vector products for each of them at every record.
    """

    count: int = 3
    """How many of the largest eigenvalues are recorded."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "top_eigenvalues",
            "largest eigenvalues of the Hessian of the risk",
            r"eigenvalues $\lambda_i$ of the Hessian",
            logarithmic=False,
        ),
    )
    """What it is called in tables and figures."""

    def __check_init__(self):
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise ValueError(f"count is {self.count!r}: expected how many eigenvalues to record, 1 or more")

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for more eigenvalues than a network has weights."""
        weights = weight_count(network)
        if self.count > weights:
            raise ValueError(f"count is {self.count}: expected at most {weights}, the number of weights")

    def gradients(self, network: PyTree) -> float:
        """Return about those of a search for each."""
        return OF_EIGENPAIR * self.count

    def measure(self, moment: Moment) -> Float[Array, " count"]:
        """Return the eigenvalues, NaN where one could not be certified. Raises `ValueError` for more than weights."""
        self.check(moment.network, moment.problem)
        found = top_eigenpairs(moment.network, moment.problem, count=self.count, dense=False)
        return jnp.where(found.converged, found.values, jnp.nan)


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

    label = Label(
        "sharpening",
        "how the sharpness changes along the gradient flow",
        r"sharpening",
        logarithmic=False,
        parts=(_RATE, _COSINE),
    )

    def gradients(self, network: PyTree) -> float:
        """Return about those of two searches."""
        return 2 * OF_EIGENPAIR

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

    label = Label(
        "self_stabilization",
        "sharpening, self-stabilization and the oscillation of their balance",
        r"self-stabilization",
        parts=(_ALPHA, _BETA, _DELTA),
    )

    def gradients(self, network: PyTree) -> float:
        """Return about those of two searches."""
        return 2 * OF_EIGENPAIR

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return α, β and δ under the names alpha, beta and delta."""
        sharpness, gradient = _gradients(moment)
        alpha = -inner_product(sharpness.gradient, gradient)
        beta = inner_product(sharpness.gradient, sharpness.gradient)
        return {"alpha": alpha, "beta": beta, "delta": jnp.sqrt(2 * alpha / beta)}
