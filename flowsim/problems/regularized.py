"""Weight decay as part of the risk."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from ..networks import split
from ..runtime.compiling import with_standard_options
from .problem import Outputs, Problem, check_problem, on_samples


class RegularizedRisk(Problem):
    """R + (λ/2)‖W‖², with ‖W‖² the sum of all squared weights.

    Its gradient is ∇R + λW and its Hessian that of R plus λI, which linearly implicit steps take as it is
    (`identity_curvature`): a flow of small λ costs hardly more than one of large λ, though it needs a time of order
    1/λ. Where λ is less than the rounding of the Hessian, ε times its largest eigenvalue, no limit is certified. Risk
    and excess risk are those of the sum, whose infimum is not known, so excess risks are NaN, also for λ = 0, and the
    theorems on deep linear networks, which are about R alone, are not applied to it. Distances to w*, margins, samples
    and label noise are those of the `problem`; a sample's risk is R's on that sample plus the whole of the decay, and
    so is that of a minibatch. The weights are all arrays of floats that a run moves, biases too.

    What decays apart from the gradient, as in AdamW, is `flowsim.DecoupledDecay`, and the flow that is left as λ → 0
    `flowsim.NormFlow`.

    Args:
        problem: The problem whose risk is R.
        weight_decay: λ, a finite number, zero or more.

    Raises:
        TypeError: For what is no problem.
        ValueError: For a λ that cannot be.
    """

    problem: Problem
    weight_decay: Float[Array, ""]

    @with_standard_options
    def __init__(self, problem: Problem, weight_decay: ArrayLike):
        check_problem(problem)
        decay = weight_decay if isinstance(weight_decay, jax.Array) else np.asarray(weight_decay)
        is_number = decay.ndim == 0 and decay.dtype.kind in "iuf"
        if not is_number or not (isinstance(decay, Tracer) or 0 <= float(decay) < np.inf):
            raise ValueError(f"weight_decay must be a finite number, zero or more, got {weight_decay!r}")
        self.problem = problem
        self.weight_decay = jnp.asarray(weight_decay, jnp.result_type(float))

    def decay(self, network: Any) -> Float[Array, ""]:
        """Return (λ/2)‖W‖²."""
        weights, _ = split(network)
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights)]
        return self.weight_decay / 2 * sum(squares, jnp.zeros((), self.weight_decay.dtype))

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return R + (λ/2)‖W‖²."""
        return self.problem(network) + self.decay(network)

    def objective(self, network: Any) -> Float[Array, ""]:
        """Return the objective of the problem plus the decay."""
        return self.problem.objective(network) + self.decay(network)

    def without_decay(self) -> Problem:
        """Return the problem whose risk is R."""
        return self.problem.without_decay()

    def squared_distance(self, network: Any) -> Float[Array, ""]:
        """Return that of the problem, to the regressor that is optimal without decay."""
        return self.problem.squared_distance(network)

    def null_risk(self, network: Any) -> Float[Array, ""] | float:
        """Return that of the problem."""
        return self.problem.null_risk(network)

    def check_start(self, network: Any) -> None:
        """Raise `ValueError` where the problem does."""
        self.problem.check_start(network)

    def margins(self, network: Any) -> Float[Array, " n"]:
        """Return those of the problem."""
        return self.problem.margins(network)

    def has_margins(self) -> bool:
        """Tell whether the problem has margins."""
        return self.problem.has_margins()

    def sample_count(self) -> int | None:
        """Return the number of samples of the problem."""
        return self.problem.sample_count()

    def subsample(self, chosen: Int[Array, " batch"]) -> "RegularizedRisk | None":
        """Return the risk on these samples, with the same decay; `None` without samples."""
        if self.problem.sample_count() is None:
            return None
        return eqx.tree_at(lambda whole: whole.problem, self, on_samples(self.problem, chosen))

    def sample_risks(self, network: Any) -> Float[Array, " n"]:
        """Return the risk on each sample, with the whole of the decay in each of them."""
        return self.problem.sample_risks(network) + self.decay(network)

    def with_label_noise(self, key: PRNGKeyArray, deviation: Float[Array, ""] | float) -> "RegularizedRisk | None":
        """Return the problem with noise on its labels, and the same decay; `None` where no labels are numbers."""
        noisy = self.problem.with_label_noise(key, deviation)
        return None if noisy is None else eqx.tree_at(lambda whole: whole.problem, self, noisy)

    def pass_bytes(self, network: Any) -> float | None:
        """Return that of the problem."""
        return self.problem.pass_bytes(network)

    def samples_at_once(self, network: Any) -> int | None:
        """Return that of the problem."""
        return self.problem.samples_at_once(network)

    @property
    def identity_curvature(self) -> Float[Array, ""] | float:
        """λ, and what the problem itself has."""
        return self.weight_decay + self.problem.identity_curvature

    def curved_outputs(self, network: Any) -> Outputs | None:
        """Return those of the problem."""
        return self.problem.curved_outputs(network)

    def rank(self, network: Any) -> int | None:
        """Return that of the problem: the decay is no part of GᵀG."""
        return self.problem.rank(network)

    def jacobian_passes(self, network: Any) -> int | None:
        """Return that of the problem."""
        return self.problem.jacobian_passes(network)

    def output_jacobian(self, as_network: Callable[[PyTree], Any], weights: PyTree) -> PyTree | None:
        """Return that of the problem."""
        return self.problem.output_jacobian(as_network, weights)

    def output_gram(self, network: Any) -> Float[Array, "m m"] | None:
        """Return that of the problem."""
        return self.problem.output_gram(network)
