"""Where the flow ends at a degenerate point, at which the risk is flat to more than second order."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import hessian_product, inner_product, local_quadratic_model
from ..curvature.vectors import difference, row, scaled, where
from ..solvers.field import GradientField, norm
from .predicted_limit import shaken


class DegenerateLimit(eqx.Module):
    """The limit of a run that approaches it algebraically: R = R(limit) + c·x^k along a line, k > 2.

    There x falls like t^(−1/(k−2)), and a Newton step leads from x to ρx with ρ = (k−2)/(k−1), whatever the number of
    dimensions (Euler: Hw = (k−1)∇R for a risk of degree k). So the lengths of three Newton steps, each with its own
    Hessian, tell ρ, and the way that is left is the last step over 1−ρ (Aitken).
    """

    limit: PyTree
    order: Float[Array, ""]
    """k, which need not be whole."""
    curvature: Float[Array, ""]
    """The curvature along the line, where the run is."""
    certain: Bool[Array, ""]
    """Whether the steps are those of a power of x, beyond rounding."""
    rises: Bool[Array, ""]
    """Whether the risk rises on the other side of the limit as it does on this one,"""
    falls: Bool[Array, ""]
    """or falls there as it rises here: the limit is half-stable, as that of x³ at zero."""


class _Walk(eqx.Module):
    """A walk along the floor of a valley: where it is, and what its Newton steps have shown, one entry each.

    `direction` and `curvature` are those of the last step, and `along` the slope in that direction at the last turn.
    """

    here: PyTree
    limit: PyTree
    direction: PyTree
    curvature: Float[Array, ""]
    lengths: Float[Array, " steps"]
    slopes: Float[Array, " steps"]
    cosine: Float[Array, ""]
    rounding: Float[Array, ""]
    along: Float[Array, ""]


def degenerate_limit(
    field: GradientField,
    floor: PyTree,
    precision: jnp.dtype,
    *,
    apart: float = 100.0,
    steady: float = 0.1,
    mirrored: float = 0.3,
) -> DegenerateLimit:
    """Return the degenerate limit of a run in this `precision` that is near the `floor` of a valley.

    Newton steps lead along the valley, and two more behind each of them, in the fast directions alone, back onto its
    floor. The first of four comes from beside the floor and does not count. Behind the last one the walk goes on from
    its mirror image beyond the predicted limit: there the slope tells whether the risk rises on that side, too.

    Directions of resolved curvature take part in a step by their eigenvalues. What is left of the gradient has one
    direction near such a limit, and its curvature is a Rayleigh quotient, which keeps its digits where the
    decomposition of a matrix with larger eigenvalues has none.

    Args:
        field: The vector field −∇R.
        floor: The weights.
        precision: That of the run, which may be lower than that of the weights.
        apart: A direction whose curvature is so many times that of the valley is fast; it is resolved where it is so
            many times its rounding.
        steady: The relative change up to which the ratio of the steps counts as constant.
        mirrored: The share of the slope that is found on the far side at least, where it is to be the same.
    """
    steps, returns = 4, 2
    turns = steps * (1 + returns) + 1
    nothing, still = jnp.zeros_like(norm(floor)), jax.tree.map(jnp.zeros_like, floor)
    gradient = jax.grad(field.objective)

    def turn(index: Int[Array, ""], walk: _Walk) -> _Walk:
        here, number, onward = walk.here, index // (1 + returns), index % (1 + returns) == 0
        slopes = jax.lax.map(lambda seed: gradient(where(seed > 0, shaken(here, precision, seed), here)), jnp.arange(3))
        slope = row(slopes, 0)
        model, product = local_quadratic_model(field.objective, here, slope), hessian_product(field.objective, here)
        components = model.coordinates(slope)
        resolved = model.values > apart * model.rounded_zero(model.radius)
        fast = resolved & (model.values > apart * walk.curvature) & (index > 0)
        slow = jnp.where(fast, 0, components)
        noise = jnp.stack([model.coordinates(difference(row(slopes, seed), slope)) for seed in (1, 2)])
        rounding = jnp.max(jnp.linalg.norm(jnp.where(fast, 0, noise), axis=1))

        # A direction along which the risk is constant has a slope by the rounding of its vector, and no curvature.
        leftover = jnp.where(resolved, 0, components)
        digits = jnp.finfo(components.dtype).eps ** 0.5
        rest = model.vector(jnp.where(jnp.linalg.norm(leftover) > digits * jnp.linalg.norm(slow), leftover, 0))
        size = norm(rest)
        unit = scaled(jnp.where(size > 0, 1 / size, 0), rest)
        flat = inner_product(unit, product(unit))
        newton = jnp.where(resolved, -components / jnp.where(resolved, model.values, 1), 0)
        step = jax.tree.map(lambda a, b: a - jnp.where(flat > 0, size / flat, 0) * b, model.vector(newton), unit)
        length = norm(step)
        direction = scaled(jnp.where(length > 0, 1 / length, 0), step)
        left = 1 / (1 - length / walk.lengths[number - 1])  # the sum of a geometric series
        way = jnp.where(number == steps - 1, 2 * left, 1)
        back = model.vector(jnp.where(fast, newton, 0))
        moved = jax.tree.map(lambda w, a, b: w + jnp.where(onward, way * a, b), here, step, back)
        stepped = _Walk(
            here=moved,
            limit=jax.tree.map(lambda w, a: w + left * a, here, step),
            direction=direction,
            curvature=inner_product(direction, product(direction)),
            lengths=walk.lengths.at[number].set(length),
            slopes=walk.slopes.at[number].set(jnp.linalg.norm(slow)),
            cosine=inner_product(direction, walk.direction),
            rounding=rounding,
            along=walk.along,
        )
        along = inner_product(model.vector(slow), walk.direction)
        returned = dataclasses.replace(walk, here=moved, along=along)
        return where(onward & (number < steps), stepped, returned)

    none = jnp.zeros((steps,), nothing.dtype)
    begin = _Walk(floor, floor, still, nothing, none, none, nothing, nothing, nothing)
    walk = jax.lax.fori_loop(0, turns, turn, begin)
    _, before, ratio = walk.lengths[1:] / walk.lengths[:-1]
    order = 1 + 1 / (1 - ratio)
    # While a step falls by ρ, the slope falls by ρ^(k−1).
    fall = jnp.log(walk.slopes[-1] / walk.slopes[-2]) / jnp.log(ratio)
    is_power = (ratio > 0.25) & (ratio < 1) & (jnp.abs(ratio - before) <= steady * (1 - ratio))
    is_power &= (jnp.abs(fall - (order - 1)) <= 2 * steady * (order - 1)) & (walk.cosine >= 1 - steady)
    far = walk.along / walk.slopes[-1]
    return DegenerateLimit(
        limit=walk.limit,
        order=order,
        curvature=walk.curvature,
        certain=is_power & (walk.slopes[-1] > 10 * walk.rounding),
        rises=(far > mirrored) & (far < 1 / mirrored),
        falls=(far < -mirrored) & (far > -1 / mirrored),
    )
