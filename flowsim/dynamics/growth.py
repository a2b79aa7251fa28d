"""Weights that grow for ever, as the infimum of their risk lies at infinity."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..curvature import inner_product
from ..networks.norms import angle_between
from ..solvers.field import GradientField, norm

# The part of the gradient that a slope has to be: less may be rounding, where a gradient is to be zero along a step.
_SLOPE = 1e-6


def grows_along(field: GradientField, weights: PyTree, angle: float | Float[Array, ""]) -> Bool[Array, ""]:
    """Tell whether weights that will grow for ever do so in their own direction, up to an `angle`.

    Early on they may do so by chance: those that start at zero are, for a while, a multiple of the first gradient.
    """
    network = field.network(weights)
    late = field.problem.falls_for_ever(network) & (field.problem(network) <= field.problem.null_risk(network) / 100)
    return late & (angle_between(field(0.0, weights, None), weights) <= angle)


def falls_for_ever(field: GradientField, weights: PyTree, way: PyTree) -> Bool[Array, ""]:
    """Tell whether the risk falls for ever as the weights grow, and there is no minimizer where it could end.

    It does where the loss is known to fall for ever as the predictions of these weights grow, and they do grow with the
    weights: such a risk comes as close as one likes to an infimum that no prediction has. Where nothing is known of the
    loss, it is taken to do so if it still falls at eight times the `way` at whose end a minimum should be.
    """
    growth = jax.tree.map(lambda weight: weight / 16, weights)  # (1 + 8/16)^L times the prediction, L layers deep
    steps = jax.tree.map(lambda *pair: jnp.stack(pair), growth, way)
    grown, gone = jax.lax.map(partial(_falls_on, field, weights), steps)  # so the gradient is compiled once
    return gone | (grown & field.problem.falls_for_ever(field.network(weights))) | is_lost_to_rounding(field, weights)


def is_lost_to_rounding(field: GradientField, weights: PyTree) -> Bool[Array, ""]:
    """Tell whether a risk that falls towards zero for ever, and never is zero, is zero in floats."""
    network = field.network(weights)
    return field.problem.falls_for_ever(network) & (field.problem(network) <= 0)


def _falls_on(field: GradientField, weights: PyTree, step: PyTree) -> Bool[Array, ""]:
    """Tell whether the risk falls as far as eight times a step, less and less steeply, and the weights grow.

    Where the gradient grows too, a plateau or a saddle is left behind. Far out the risk may fall by less than floats
    resolve.
    """

    def slope(times: Array) -> tuple[Array, Array, Array]:
        there = jax.tree.map(lambda weight, change: weight + times * change, weights, step)
        gradient = jax.grad(field.objective)(there)
        return inner_product(gradient, step), norm(gradient), norm(there)

    slopes, steepness, sizes = jax.lax.map(slope, jnp.array([0.0, 2, 4, 8], jax.tree.leaves(weights)[0].dtype))
    falls = (slopes[0] < -_SLOPE * steepness[0] * norm(step)) & jnp.all(slopes <= 0)
    # Across the step a gradient may stay, as where some classes overlap and others are separable.
    flattens = jnp.all(jnp.diff(slopes) >= 0) & (slopes[-1] > slopes[0]) & jnp.all(steepness[1:] < steepness[0])
    return falls & flattens & (sizes[-1] > sizes[0])
