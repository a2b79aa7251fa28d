"""What the flow asks of a problem, and nothing more."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

Outputs = Callable[[Any], Float[Array, " m"]]


class Problem(eqx.Module):
    """A risk to be descended. A network may be any pytree that the problem understands.

    To add one, subclass it, put the data into its fields as JAX arrays, and define `__call__`:

        class Quartic(flowsim.Problem):
            target: jax.Array

            def __call__(self, network):
                return jnp.mean((network.weight - self.target) ** 4)

    All else is an ability that a problem may have. Here stands what is done without it: a risk alone is descended all
    the same. `infimum` makes excess risks known, `is_minimum` spares a run that arrived the second derivatives, and
    `curved_outputs` lets `integrate` take the steps of a linearly implicit method, which stiffness does not limit.
    """

    @abc.abstractmethod
    def __call__(self, network: Any, /) -> Float[Array, ""]:
        """Return the risk R, a scalar."""

    @property
    def infimum(self) -> Float[Array, ""] | float:
        """The infimum of the risk, R_min; NaN where it is not known."""
        return float("nan")

    @property
    def lower_bound(self) -> Float[Array, ""] | float:
        """A bound that no risk is below: the infimum, as here, or what else is known; NaN where nothing is."""
        return self.infimum

    def least_excess_risk(self, network: Any, /) -> Float[Array, ""] | float:
        """Return the least excess risk that a network of this kind can have, if it has no other local minimum.

        NaN where either is not known, as here: what is a minimum is then told by second derivatives.
        """
        return float("nan")

    def objective(self, network: Any, /) -> Float[Array, ""]:
        """Return what is descended: the risk up to a constant, so computed that it keeps its digits near the limit."""
        return self(network)

    def excess_risk(self, network: Any, /) -> Float[Array, ""]:
        """Return R − R_min, NaN where R_min is not known."""
        return self(network) - self.infimum

    def squared_distance(self, network: Any, /) -> Float[Array, ""]:
        """Return ‖π − w*‖², π the network's regressor and w* the optimal one; NaN for a problem that has none."""
        return jnp.full_like(self(network), jnp.nan)

    def is_minimum(self, network: Any, remaining: Any, /) -> Bool[Array, ""]:
        """Tell whether a network of small gradient is known to be at a minimizer, up to a share `remaining` of the way.

        Where it is not known, as here, a run asks second derivatives.
        """
        return jnp.array(False)

    def null_risk(self, network: Any, /) -> Float[Array, ""] | float:
        """Return the unit of risks: the risk of a model that always answers zero; NaN where there is none."""
        return float("nan")

    def check_start(self, network: Any, /) -> None:
        """Raise `ValueError` where runs from this network could not be right. By default, nothing is known of that."""

    def margins(self, network: Any, /) -> Float[Array, " n"]:
        """Return by how much each sample is on the right side; NaN, for one sample, where there are no sides."""
        return jnp.full_like(self(network), jnp.nan)[None]

    def has_margins(self) -> bool:
        """Tell whether `margins` are numbers."""
        return False

    def sample_count(self) -> int | None:
        """Return how many samples the risk is the mean over; `None` where it holds none, as here."""
        return None

    def on_samples(self, chosen: Int[Array, " batch"], /) -> "Problem | None":
        """Return the risk on the samples of these numbers, with repeats as often as they are; `None` without samples.

        That is their mean, so that its own mean over all samples, each as often, is the risk.
        """
        return None

    @property
    def attained(self) -> bool:
        """Whether the infimum of a loss is one that some prediction has; True where nothing is known of that."""
        return True

    def falls_for_ever(self, network: Any, /) -> Bool[Array, ""]:
        """Tell whether the risk is known to fall for ever as the predictions of this network grow in proportion.

        So it is under a loss that no prediction brings to its infimum, once every sample is on the right side. Where it
        is not known, as here, a run judges by how the risk falls around it.
        """
        return jnp.array(False)

    def pass_bytes(self, network: Any, /) -> float | None:
        """Return about how many bytes a derivative of the risk keeps of a pass over all samples; `None`: not known."""
        return None

    def samples_at_once(self, network: Any, /) -> int | None:
        """Return how many samples the risk computes on at a time; `None` for all at once."""
        return None

    def curved_outputs(self, network: Any, /) -> Outputs | None:
        """Return a function of networks whose Jacobian G at `network` makes GᵀG the Gauss–Newton matrix of the risk.

        `None` where the weights do not enter through a number m of outputs that is known.
        """
        return None

    def rank(self, network: Any, /) -> int | None:
        """Return m, the largest rank that the Gauss–Newton matrix can have; `None` where `curved_outputs` is."""
        outputs = self.curved_outputs(network)
        return None if outputs is None else eqx.filter_eval_shape(outputs, network).size

    def jacobian_passes(self, network: Any, /) -> int | None:
        """Return what the Jacobian of the curved outputs costs, in gradients; `None` where `curved_outputs` is."""
        return self.rank(network)

    def output_jacobian(self, as_network: Callable[[PyTree], Any], weights: PyTree, /) -> PyTree | None:
        """Return G at `as_network(weights)` as the weights with a leading axis of m rows.

        `None` where nothing does that sooner than `jax.jacrev` of the curved outputs.
        """
        return None

    def output_gram(self, network: Any, /) -> Float[Array, "m m"] | None:
        """Return GGᵀ at `network` in closed form, `None` where there is none."""
        return None


def check_problem(problem: object) -> None:
    """Raise `TypeError` for what is not a `Problem`."""
    if not isinstance(problem, Problem):
        given = f"the class {problem.__name__} itself" if isinstance(problem, type) else f"a {type(problem).__name__}"
        raise TypeError(
            f"the problem is {given}: expected a flowsim.LinearRegression, a flowsim.EmpiricalRisk, a "
            "flowsim.Risk(function), or an object of a class of your own that subclasses flowsim.Problem and defines "
            "__call__(network), the risk"
        )
