"""What is measured of a network where a run begins or ends."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..curvature import sharpness
from ..dynamics import Outcome, Stopping, outcome_by_curvature, outcome_by_gradient, stopping_for
from ..networks import split, weight_dtype
from ..networks.weights import norm
from ..probes import Moment, Probe, columns_of
from ..problems import Problem
from ..runtime.compiling import compiled


def measure(network: eqx.Module, problem: Problem, stopping: Stopping | None) -> dict[str, Any]:
    """Return what costs no more than a gradient.

    `verdict` is the outcome by `stopping` without second derivatives, and whether these are to be asked.
    """
    return _measure(network, problem, stopping_for(stopping, problem, weight_dtype(network)))


@compiled
def _measure(network: eqx.Module, problem: Problem, stopping: Stopping) -> dict[str, Any]:
    weights, rest = split(network)
    objective, gradient = jax.value_and_grad(lambda moved: problem.objective(eqx.combine(moved, rest)))(weights)
    gradient_norm = norm(gradient)
    return {
        "risk": problem(network),
        "excess_risk": problem.excess_risk(network),
        "squared_distance": problem.squared_distance(network),
        "gradient_norm": gradient_norm,
        "verdict": outcome_by_gradient(stopping, network, problem, objective, gradient_norm),
    }


def settled_outcome(
    start: eqx.Module,
    network: eqx.Module,
    problem: Problem,
    stopping: Stopping | None,
    verdict: tuple[jax.Array, jax.Array],
) -> Outcome:
    """Return the outcome by `stopping` at the end of a run from `start`, given the `verdict` of `measure` there."""
    criterion = stopping_for(stopping, problem, weight_dtype(network))
    by_gradient, question = verdict
    by_curvature, _ = outcome_by_curvature(criterion, start, network, problem, question)
    return Outcome(int(by_gradient) or int(by_curvature))


@compiled
def measure_probes(
    probes: tuple[Probe, ...], network: eqx.Module, problem: Problem, gradient_norm: jax.Array
) -> dict[str, jax.Array]:
    """Return what probes measure at the end of a run, where there is neither a state of the dynamics nor a clock.

    One array for each column: a probe that measures a dict fills several.
    """
    moment = Moment(network, problem, None, jnp.asarray(jnp.nan), gradient_norm)
    found = {probe.label.name: probe.measure(moment) for probe in probes}
    return {column: values for _, column, values in columns_of(found)}


@compiled
def risk_of(network: eqx.Module, problem: Problem) -> jax.Array:
    """Return the risk."""
    return problem(network)


@compiled
def distance(network: eqx.Module, other: eqx.Module) -> jax.Array:
    """Return the distance between the weights of two networks."""
    return norm(jax.tree.map(jnp.subtract, split(network)[0], split(other)[0]))


def sharpness_of(network: eqx.Module, problem: Problem, *, dense_up_to: int = 128) -> float:
    """Return the sharpness, NaN where it cannot be certified.

    A sweep needs many, so Lanczos, whose program is longer and whose run is shorter, pays from fewer weights on than
    elsewhere, those beyond `dense_up_to`: at 105 weights both ways take 0.8 ms, at 230 Lanczos takes a third (linear
    networks) or a fifth (GELU) of the time.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))
    try:
        return float(sharpness(network, problem, dense=None if size <= dense_up_to else False))
    except RuntimeError:
        return float("nan")
