"""The interface of a problem: a risk, and what else may be known of it."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

Outputs = Callable[[Any], Float[Array, " m"]]


class Problem(eqx.Module):
    """A risk to be descended. A network may be any pytree that the problem understands.

    To add one, subclass it, put the data into its fields as JAX arrays, and define `__call__`:

        class Quartic(flowsim.Problem):
            target: jax.Array

            def __call__(self, network):
                return jnp.mean((network.weight - self.target) ** 4)

    The risk alone is enough; all other methods are optional abilities, with defaults for a problem that lacks them.
    `infimum` gives excess risks, `is_minimum` spares a converged run the second derivatives, and `curved_outputs` lets
    `integrate` take linearly implicit steps, which stiffness does not limit.
    """

    @abc.abstractmethod
    def __call__(self, network: Any, /) -> Float[Array, ""]:
        """Return the risk R, a scalar."""

    def risk(self, network: Any, /) -> Float[Array, ""]:
        """Return the risk R of a network, a scalar: `problem.risk(network)` is `problem(network)` by name."""
        return self(network)

    @property
    def infimum(self) -> Float[Array, ""] | float:
        """The infimum of the risk, R_min; NaN where it is not known."""
        return float("nan")

    @property
    def lower_bound(self) -> Float[Array, ""] | float:
        """A lower bound of the risk: by default the infimum; NaN where none is known."""
        return self.infimum

    def least_excess_risk(self, network: Any, /) -> Float[Array, ""] | float:
        """Return the least excess risk that a network of this kind can have, if it has no other local minimum.

        NaN where either is not known, as by default: second derivatives then decide what is a minimum.
        """
        return float("nan")

    def objective(self, network: Any, /) -> Float[Array, ""]:
        """Return the function that is minimized: the risk up to a constant, without cancellation near the limit."""
        return self(network)

    def without_decay(self) -> "Problem":
        """Return the problem without the part of its risk that is weight decay: by default it has none."""
        return self

    def excess_risk(self, network: Any, /) -> Float[Array, ""]:
        """Return R − R_min, NaN where R_min is not known."""
        return self(network) - self.infimum

    def squared_distance(self, network: Any, /) -> Float[Array, ""]:
        """Return ‖π − w*‖², π the network's regressor and w* the optimal one; NaN for a problem that has none."""
        return _unknown(network)

    def is_minimum(self, network: Any, remaining: Any, /) -> Bool[Array, ""]:
        """Tell whether a network of small gradient is known to be a minimizer, up to a relative distance `remaining`.

        Where it is not known, as by default, a run computes second derivatives.
        """
        return jnp.array(False)

    def null_risk(self, network: Any, /) -> Float[Array, ""] | float:
        """Return the scale of the risk: that of a model which always predicts zero; NaN where there is none."""
        return float("nan")

    def check_start(self, network: Any, /) -> None:
        """Raise `ValueError` where runs from this network could not be right. By default nothing is checked."""

    def margins(self, network: Any, /) -> Float[Array, " n"]:
        """Return the classification margin of each sample, (n,); one NaN for a problem without classes."""
        return _unknown(network)[None]

    def has_margins(self) -> bool:
        """Tell whether `margins` are numbers."""
        return False

    def sample_count(self) -> int | None:
        """Return the number of samples over which the risk is a mean; `None` for a problem without samples."""
        return None

    def subsample(self, chosen: Int[Array, " batch"], /) -> "Problem | None":
        """Return the mean risk over the samples with these indices, repeats included; `None` without samples.

        Its expectation over uniformly drawn indices is the risk.
        """
        return None

    def sample_risks(self, network: Any, /) -> Float[Array, " n"]:
        """Return the risk on each sample alone, (n,), whose mean is R; one NaN for a problem without samples.

        Raises `ValueError` for one that has samples and no `subsample`.
        """
        count = self.sample_count()
        if count is None:
            return _unknown(network)[None]

        return jax.vmap(lambda number: on_samples(self, number[None])(network))(jnp.arange(count))

    def with_label_noise(self, key: PRNGKeyArray, deviation: Float[Array, ""] | float, /) -> "Problem | None":
        """Return the problem with independent noise N(0, deviation²) on every target; `None` where none are numbers."""
        return None

    @property
    def attained(self) -> bool:
        """Whether some prediction attains the infimum of the loss; True where this is not known."""
        return True

    def decreases_forever(self, network: Any, /) -> Bool[Array, ""]:
        """Tell whether the risk is known to decrease for ever as the predictions of this network are scaled up.

        It does for a loss without a minimizer, such as the logistic one, once every sample is classified correctly.
        Where it is not known, as by default, a run decides from how the risk decreases.
        """
        return jnp.array(False)

    def pass_bytes(self, network: Any, /) -> float | None:
        """Estimate the bytes that a derivative of the risk stores of a pass over all samples; `None` where unknown."""
        return None

    def samples_at_once(self, network: Any, /) -> int | None:
        """Return how many samples are processed at a time; `None` for all at once."""
        return None

    def curved_outputs(self, network: Any, /) -> Outputs | None:
        """Return a function of networks whose Jacobian G at `network` makes GᵀG the Gauss–Newton matrix of the risk.

        `None` where the risk is not a function of a known number m of outputs. Where they are outputs of samples, all
        those of one sample stand in a row.
        """
        return None

    @property
    def identity_curvature(self) -> Float[Array, ""] | float:
        """The multiple of the identity in the Hessian beside what the outputs curve: zero without weight decay."""
        return 0.0

    def rank(self, network: Any, /) -> int | None:
        """Return m, the largest rank that the Gauss–Newton matrix can have; `None` where `curved_outputs` is."""
        outputs = self.curved_outputs(network)
        return None if outputs is None else eqx.filter_eval_shape(outputs, network).size

    def jacobian_passes(self, network: Any, /) -> int | None:
        """Return the cost of the Jacobian of the curved outputs, in gradients; `None` where `curved_outputs` is."""
        return self.rank(network)

    def output_jacobian(self, as_network: Callable[[PyTree], Any], weights: PyTree, /) -> PyTree | None:
        """Return G at `as_network(weights)` as the weights with a leading axis of m rows.

        `None` where nothing is faster than `jax.jacrev` of the curved outputs.
        """
        return None

    def output_gram(self, network: Any, /) -> Float[Array, "m m"] | None:
        """Return GGᵀ at `network` in closed form, `None` where there is none."""
        return None


def on_samples(problem: Problem, chosen: Int[Array, " batch"]) -> Problem:
    """Return the problem on the samples with these indices; `ValueError` for one that cannot tell it."""
    known = problem.subsample(chosen)
    if known is None:
        raise ValueError(f"{type(problem).__name__} has samples and no subsample(chosen): define both, or neither")
    return known


def has_identity_curvature(problem: Problem) -> bool:
    """Tell whether a problem has weight decay; True where that is traced."""
    curvature = problem.identity_curvature
    return isinstance(curvature, Tracer) or float(curvature) != 0


def check_problem(problem: object, network: object = None) -> None:
    """Raise `TypeError` for what is not a `Problem`, and for one that stands in the place of the `network`."""
    if isinstance(network, Problem):
        raise TypeError(
            f"the network is a {type(network).__name__}, which is a problem: write the network first, then the problem"
        )
    if not isinstance(problem, Problem):
        given = f"the class {problem.__name__} itself" if isinstance(problem, type) else f"a {type(problem).__name__}"
        given = "an array" if isinstance(problem, jax.Array) else given  # a tracer, too
        raise TypeError(
            f"the problem is {given}: expected a flowsim.LinearRegression, a flowsim.EmpiricalRisk, a "
            "flowsim.Risk(function), or an object of a class of your own that subclasses flowsim.Problem and defines "
            "__call__(network), the risk"
        )


def _unknown(network: Any) -> Float[Array, ""]:
    """Return NaN in the precision of a network, without a pass through it."""
    weights = jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))
    return jnp.full((), jnp.nan, jnp.result_type(*weights) if weights else float)
