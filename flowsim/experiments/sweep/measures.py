"""What is measured of a network where a run begins or ends."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ...compiling import compiled
from ...curvature import sharpness
from ...dynamics import Stopping, arrival
from ...networks import split
from ...norms import norm
from ...probes import Moment, Probe
from ...problems import Problem


def measured(network: eqx.Module, problem: Problem, stopping: Stopping | None) -> dict[str, jax.Array]:
    """Return what costs no more than a gradient, and `arrival`, the outcome that `stopping` sees here."""
    return _standard(network, problem) | {"arrival": arrival(network, problem, stopping)}


@compiled
def _standard(network: eqx.Module, problem: Problem) -> dict[str, jax.Array]:
    weights, rest = split(network)
    gradient = jax.grad(lambda moved: problem.objective(eqx.combine(moved, rest)))(weights)
    return {
        "risk": problem(network),
        "excess_risk": problem.excess_risk(network),
        "squared_distance": problem.squared_distance(network),
        "gradient_norm": norm(gradient),
    }


@compiled
def probed(
    probes: tuple[Probe, ...], network: eqx.Module, problem: Problem, gradient_norm: jax.Array
) -> dict[str, jax.Array]:
    """Return what probes measure at the end of a run, where there is neither a state of the dynamics nor a clock."""
    moment = Moment(network, problem, None, jnp.asarray(jnp.nan), gradient_norm)
    return {probe.label.name: probe.measure(moment) for probe in probes}


@compiled
def risk_of(network: eqx.Module, problem: Problem) -> jax.Array:
    """Return the risk."""
    return problem(network)


@compiled
def distance(network: eqx.Module, other: eqx.Module) -> jax.Array:
    """Return the distance between the weights of two networks."""
    return norm(jax.tree.map(jnp.subtract, split(network)[0], split(other)[0]))


def sharpness_of(network: eqx.Module, problem: Problem) -> float:
    """Return the sharpness, NaN where it cannot be certified."""
    try:
        return float(sharpness(network, problem))
    except RuntimeError:
        return float("nan")
