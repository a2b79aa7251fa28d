"""Whether weights of small gradient are at the limit of their flow, and whether that is a minimum."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..curvature import (
    eigenpairs_lanczos,
    extreme_eigenpairs,
    hessian_product,
    inner_product,
)
from ..curvature.sharpness import differentiable_sharpness
from ..curvature.vectors import row, scattered_like, where
from ..networks import cast, weight_dtype
from ..problems import Problem
from ..runtime.compiling import compiled, is_traced
from ..solvers.field import GradientField, gradient_field, norm
from .degenerate_limit import degenerate_limit
from .outcome import Outcome, decide
from .predicted_limit import PredictedLimit, predict_limit, shaken
from .stopping import Stopping, standard_bounds


class _Seen(eqx.Module):
    """A run from `start` that is at a `network` of small gradient."""

    start: PyTree
    network: PyTree
    problem: Problem

    @property
    def precision(self) -> jnp.dtype:
        """The precision in which the run computes."""
        return weight_dtype(self.network)

    def in_highest_precision(self) -> tuple[GradientField, PyTree, PyTree]:
        """Return the field, and the weights where the run is and where it began."""
        highest = jnp.result_type(float)
        apart, weights = gradient_field(cast(self.network, highest), self.problem)
        field, here = apart.flattened(weights)
        return field, here, apart.flattened(gradient_field(cast(self.start, highest), self.problem)[1])[1]


class _Prospect(eqx.Module):
    """What is known before the curvature at the limit is.

    The run is `at_limit`, and if that is no minimum, it `leaves`; or a gradient norm is `enough`, whatever the limit.
    Unless it is `known`, or makes no difference, whether this is a `minimum` is to be asked. At a `bounded` one the
    risk does not fall for ever. The limit may be `degenerate`, which is to be asked too: then the risk is flat to an
    `order` of more than two, and curvatures up to `flat` there count as zero.
    """

    at_limit: Bool[Array, ""]
    leaves: Bool[Array, ""]
    enough: Bool[Array, ""]
    known: Bool[Array, ""]
    minimum: Bool[Array, ""]
    bounded: Bool[Array, ""]
    degenerate: Bool[Array, ""]
    order: Float[Array, ""]
    flat: Float[Array, ""]


def outcome_by_curvature(
    stopping: Stopping,
    start: PyTree,
    network: PyTree,
    problem: Problem,
    question: Bool[Array, ""],
    threshold: Float[ArrayLike, ""] | None = None,
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the outcome by second derivatives of a run from `start` to `network`, RUNNING without a `question`.

    And the order to which the risk is flat at the limit: two unless that is known to be degenerate. `threshold` is the
    sharpness beyond which the run leaves a minimum, `None` where it never does.

    The check is compiled where it is needed, which is at few points; under `jax.jit` and `jax.vmap` always, and only
    the undecided runs of a batch pay for it.
    """
    if not isinstance(question, Tracer) and not bool(question):
        return jnp.asarray(Outcome.RUNNING, jnp.int32), jnp.asarray(2.0)
    arguments = stopping, start, network, problem, threshold
    return _answer(arguments, question) if is_traced((arguments, question)) else limit_outcome(*arguments)


@partial(compiled, few_calls=True)
def _answer(arguments: tuple, question: Bool[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    arrays, rest = eqx.partition(arguments, eqx.is_array)
    # A rule of batching sees its arguments only: what the functions of a problem close over becomes one of them.
    outcome_of = eqx.filter_closure_convert(lambda given: limit_outcome(*eqx.combine(given, rest)), arrays)
    parts, static = eqx.partition((outcome_of, arrays), eqx.is_array)

    @sequential_vmap
    def answered(parts: PyTree, question: Array) -> tuple[Array, Array]:
        outcome_of, arrays = eqx.combine(parts, static)
        outcome = partial(outcome_of, arrays)
        two = jnp.asarray(2, jax.eval_shape(outcome)[1].dtype)
        return jax.lax.cond(question, outcome, lambda: (jnp.asarray(Outcome.RUNNING, jnp.int32), two))

    # An outcome is a whole number, and has no derivative.
    return answered(jax.lax.stop_gradient(parts), question)


def limit_outcome(
    stopping: Stopping, start: PyTree, network: PyTree, problem: Problem, threshold: Float[ArrayLike, ""] | None = None
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the `Outcome` of a run from `start` at a `network` of small gradient, in the highest precision there is.

    And the order to which the risk is flat at its limit: two unless that is degenerate.

    `threshold` is the sharpness beyond which a run leaves a minimum, even if only rounding perturbs it.

    CONVERGED: a minimum, and the distance to it is negligible relative to the distance from the start.
    STATIONARY: the point is no minimum, or not known to be one, and rounding alone would decide where to go.
    NO_MINIMIZER: the limit is not that near, and the risk decreases for ever. GRADIENT_REACHED: only a gradient norm
    was requested, and it is not known how far the limit is, or whether there is one. Else RUNNING.

    Each question is a program of its own, which outside of `jax.jit` and `jax.vmap` is compiled only where it is asked.
    """
    if threshold is None or type(problem).is_minimum is Problem.is_minimum:
        return _by_curvature(stopping, start, network, problem, threshold)
    known = _on_host(_is_known_minimum(stopping, network, problem))
    stays = partial(_while_stable, network, problem, threshold)
    found = _choose(known, stays, lambda: _by_curvature(stopping, start, network, problem, threshold))
    return jax.tree.map(jnp.asarray, found)


@partial(compiled, few_calls=True)
def _is_known_minimum(stopping: Stopping, network: PyTree, problem: Problem) -> Bool[Array, ""]:
    return problem.is_minimum(network, stopping.remaining)


def _while_stable(
    network: PyTree, problem: Problem, threshold: Float[ArrayLike, ""]
) -> tuple[Int[ArrayLike, ""], Float[ArrayLike, ""]]:
    """Return CONVERGED for a minimizer whose sharpness is not beyond a `threshold`."""
    found = differentiable_sharpness(network, problem, dense=None, rtol=None)
    beyond = is_beyond(found.value, threshold, weight_dtype(network))
    code = _choose(beyond, lambda: np.int32(Outcome.RUNNING), lambda: np.int32(Outcome.CONVERGED))
    return code, np.asarray(2.0)


def is_beyond(sharpness: Any, threshold: Any, precision: jnp.dtype) -> Any:
    """Tell whether a run leaves a minimum of this sharpness: it is above the threshold by more than half the digits."""
    return sharpness > threshold * (1 + float(jnp.finfo(precision).eps) ** 0.5)


def _by_curvature(
    stopping: Stopping, start: PyTree, network: PyTree, problem: Problem, threshold: Float[ArrayLike, ""] | None
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the outcome where nothing else tells whether this is a minimum."""
    seen = _Seen(start, network, problem)
    end, prospect = _prospect(seen, stopping)
    degenerate = _on_host(prospect.degenerate)
    end, prospect = _choose(
        degenerate, lambda: _degenerate_prospect(seen, stopping, end, prospect), lambda: (end, prospect)
    )
    prospect = _on_host(prospect)
    minimum = _choose(prospect.known, lambda: prospect.minimum, lambda: _curves_up(seen, end, prospect.flat))
    endless = _choose(minimum & prospect.bounded, lambda: np.False_, lambda: _has_no_minimizer(seen, end))
    code = decide(
        {
            Outcome.NO_MINIMIZER: endless,
            Outcome.CONVERGED: prospect.at_limit & minimum,
            Outcome.STATIONARY: prospect.at_limit & ~minimum & ~prospect.leaves,
            Outcome.GRADIENT_REACHED: prospect.enough,
        }
    )
    if threshold is not None:
        minimizer = (code == Outcome.CONVERGED) | (code == Outcome.GRADIENT_REACHED)
        sharper = _choose(minimizer, lambda: _is_sharper(seen, end, jnp.asarray(threshold)), lambda: np.False_)
        code = _choose(sharper, lambda: np.int32(Outcome.RUNNING), lambda: code)
    return jnp.asarray(code), jnp.asarray(prospect.order)


def _choose(question: Bool[ArrayLike, ""], chosen: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Return what `chosen` does where the question is true, else `otherwise`; outside of any program from one alone."""
    if is_traced(question):
        return jax.lax.cond(question, chosen, otherwise)
    return _on_host(chosen() if question else otherwise())


def _on_host(answers: Any) -> Any:
    """Return answers on the host, where arithmetic compiles nothing; within a program, as they are."""
    return answers if is_traced(answers) else jax.device_get(answers)


@partial(compiled, sized_by=[0], few_calls=True)
def _prospect(seen: _Seen, stopping: Stopping) -> tuple[PredictedLimit, _Prospect]:
    """Return the predicted limit, and what the outcome there depends on."""
    field, here, origin = seen.in_highest_precision()
    problem, network, precision = field.problem, field.network(here), seen.precision
    end, risk = predict_limit(field, here, precision)
    distance, travelled = _norm_between(end.limit, here), _norm_between(here, origin)
    gain = risk - end.objective - jnp.sum(end.slope * end.steps[0]) / 2
    remaining = jnp.asarray(stopping.remaining)
    near = (distance <= remaining * (travelled + distance)) | (distance <= 10 * jnp.finfo(precision).eps * norm(here))
    near = near & ~(gain > remaining**2 * seen.problem.null_risk(seen.network))
    # A large `remaining` leaves out the distance to the minimizer, and not whether this is a minimum.
    share = jnp.minimum(remaining, standard_bounds(precision)[1]) ** 2

    # Where the minimum risk of the network is known, and no other minimum, it decides. So does the infimum, where the
    # limit reaches it. Else curvature does.
    exact = problem.excess_risk(network) - problem.least_excess_risk(network)
    excess, first = (_above_bound(problem, field.network(weights)) for weights in (here, origin))
    null = jnp.asarray(problem.null_risk(network), exact.dtype)
    unit = jnp.where(jnp.isfinite(null), null, first)
    tiny = 10 * float(jnp.finfo(precision).eps) * unit
    lowest = problem.attained & (jnp.abs(excess) <= tiny)
    best = lowest | (problem.attained & (excess <= 4 * gain) & (excess >= -tiny))  # below: the infimum is wrong
    decided = ~jnp.isnan(exact)
    minimum = jnp.where(decided, exact <= jnp.maximum(4 * gain, share * unit), best)

    # What is less than the rounding of the Hessian takes part in no Newton step.
    decay = jnp.asarray(problem.identity_curvature, exact.dtype)
    resolved = (decay == 0) | (decay >= jnp.finfo(exact.dtype).eps * end.around.radius)
    certain, enough = end.is_certain() & resolved, jnp.isinf(remaining) & ~decided & ~end.around.falls_off()
    # At the infimum to rounding, the distance to a degenerate minimum need not be known.
    at_limit = (near & certain) | (lowest & ~certain)
    return end, _Prospect(
        at_limit=at_limit,
        leaves=end.leaves(),
        enough=enough,
        known=decided | best | ~(near & certain),
        minimum=minimum,
        # Else no distance is short: a large learning rate may have led the weights far out.
        bounded=near & certain & ~problem.decreases_forever(network),
        degenerate=~certain | end.leaves(),
        order=jnp.asarray(2.0, exact.dtype),
        flat=jnp.zeros_like(exact),
    )


@partial(compiled, sized_by=[0], few_calls=True)
def _degenerate_prospect(
    seen: _Seen, stopping: Stopping, end: PredictedLimit, prospect: _Prospect
) -> tuple[PredictedLimit, _Prospect]:
    """Return the predicted limit and the prospect where the limit is degenerate, else both as they are."""
    field, here, origin = seen.in_highest_precision()
    predicted = degenerate_limit(field, end.floor, seen.precision)
    distance, travelled = _norm_between(predicted.limit, here), _norm_between(here, origin)
    allowed = jnp.asarray(stopping.remaining) * (travelled + distance)
    # A flow that is at the infimum to rounding is not followed on to where the curvature is rounding of the largest.
    curvature = predicted.curvature * (allowed / distance) ** (predicted.order - 2)
    lost = curvature <= jnp.finfo(seen.precision).eps * end.around.radius
    minimum = prospect.known & prospect.minimum
    at_limit = (distance <= allowed) | (prospect.at_limit & minimum & lost)
    there = _Prospect(
        at_limit=at_limit,
        leaves=jnp.array(False),
        enough=jnp.array(False),
        known=minimum | ~at_limit | predicted.falls,
        minimum=minimum & ~predicted.falls,
        bounded=at_limit & ~predicted.falls,
        degenerate=prospect.degenerate,
        order=predicted.order,
        flat=predicted.curvature / 10,
    )
    certain = predicted.certain & (predicted.rises | predicted.falls)
    flattest = dataclasses.replace(end, limit=predicted.limit, drift=jnp.zeros_like(end.drift))
    return where(certain, flattest, end), where(certain, there, prospect)


@partial(compiled, sized_by=[0], few_calls=True)
def _is_sharper(seen: _Seen, end: PredictedLimit, threshold: Float[Array, ""]) -> Bool[Array, ""]:
    """Tell whether the sharpness at the limit is beyond a `threshold`."""
    field, _, _ = seen.in_highest_precision()
    start = jax.tree.map(lambda leaf: leaf[None], scattered_like(end.limit, 0))
    if end.around.complete:
        sharpness = jnp.max(end.around.values)
    else:
        digits = float(jnp.finfo(seen.precision).eps) ** 0.5
        sharpness = eigenpairs_lanczos(hessian_product(field.objective, end.limit), start, rtol=digits).pair(0).value
    return is_beyond(sharpness, threshold, seen.precision)


def _norm_between(there: PyTree, here: PyTree) -> Float[Array, ""]:
    return norm(jax.tree.map(jnp.subtract, there, here))


def _above_bound(problem: Problem, network: PyTree) -> Float[Array, ""]:
    """Return the excess risk, or what the risk is above a bound that it cannot pass; NaN where there is none."""
    excess = problem.excess_risk(network)
    return jnp.where(jnp.isnan(excess), problem(network) - problem.lower_bound, excess)


def _curves_up(seen: _Seen, end: PredictedLimit, zero: Float[ArrayLike, ""]) -> Bool[ArrayLike, ""]:
    """Tell whether the limit is a minimum, as far as the smallest eigenvalue of the Hessian there can tell.

    It is if that is positive beyond its own error, and not if it is negative beyond that, whatever its share of the
    largest. Directions that are flat to rounding, or to `zero`, are those of a valley of minima if no gradient is left
    along them, and if the risk does not fall a little further out either, as near a degenerate saddle. A direction that
    curves down here, and may not where the weights are rounded otherwise, is none of these where its rounding changes
    the risk by all that it is. Where nothing curves at all the risk has to be constant, or higher by more than
    rounding: at the zero network of many layers only derivatives of higher order lead down.
    """
    upwards, in_valley, risk, noise = _lowest_curvature(seen, end, jnp.asarray(zero))
    upwards, in_valley = _on_host((upwards, in_valley))
    down = _choose(in_valley, lambda: _leads_down(seen, end, risk, noise), lambda: np.False_)
    return upwards | (in_valley & ~down)


@partial(compiled, sized_by=[0], few_calls=True)
def _lowest_curvature(
    seen: _Seen, end: PredictedLimit, zero: Float[Array, ""]
) -> tuple[Bool[Array, ""], Bool[Array, ""], Array, Array]:
    """Return whether every direction curves upwards at the limit, whether this may be a valley, the risk, its noise."""
    field, _, origin = seen.in_highest_precision()
    ends = extreme_eigenpairs(field.objective, end.limit)
    lowest, residual, direction = ends.values[-1], ends.residuals[-1], row(ends.vectors, -1)
    radius = jnp.max(jnp.abs(ends.values))
    two = jax.tree.map(lambda *leaves: jnp.stack(leaves), end.limit, shaken(end.limit, seen.precision, 1))
    along = jax.lax.map(lambda at: inner_product(direction, hessian_product(field.objective, at)(direction)), two)
    eps = jnp.finfo(radius.dtype).eps
    # Batched products may have more rounding than one alone, which shows in the quotient along the vector.
    own = 4 * residual + end.around.rounded_zero(radius) + jnp.abs(along[0] - lowest) + zero
    error = own + 10 * jnp.abs(along[0] - along[1])
    # Beyond 256 weights the end of a crowded spectrum is found slowly, and a negative eigenvalue apart from it soon.
    certified = jnp.all(ends.residuals <= 64 * eps**0.5 * radius)
    flat = certified & (jnp.abs(lowest) <= error) & ~jnp.any(end.drift != 0)
    rounding = float(jnp.finfo(seen.precision).eps) * norm(end.limit)
    risk, first = field.objective(end.limit), jnp.abs(field.objective(origin))
    noise = 64 * eps * jnp.maximum(jnp.abs(risk), first)
    resolved = (lowest >= -own) | (-lowest * rounding**2 / 2 <= jnp.maximum(jnp.abs(risk), noise))
    return certified & (lowest > error), flat & resolved, risk, noise


@partial(compiled, sized_by=[0], few_calls=True)
def _leads_down(seen: _Seen, end: PredictedLimit, risk: Array, noise: Array) -> Bool[Array, ""]:
    """Tell whether the objective is below the `risk` of the limit, beyond the `noise`, on floors of valleys near it.

    They are looked for along random mixtures of the flat directions, up to a tenth of the weights and of the distance
    travelled: from there in a few Newton steps down all directions that curve. Where none does, any gradient there
    counts, unless the objective is higher there beyond the noise. Beyond 256 weights the flat directions are not known,
    and nothing is looked for.
    """
    around, limit = end.around, end.limit
    field, _, origin = seen.in_highest_precision()
    nothing_curves = around.radius == 0
    if not around.complete:
        return nothing_curves
    gradient, count = jax.grad(field.objective), len(around.values)
    curved = around.values > 1e-6 * around.radius

    def lower(where: tuple[Array, Array]) -> Bool[Array, ""]:
        reach, seed = where
        mixture = jnp.where(around.upwards, 0, scattered_like(jnp.zeros(count, reach.dtype), seed))
        length = jnp.linalg.norm(mixture)
        away = jnp.where(length > 0, reach / length, 0) * mixture

        def down(_: int, found: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
            there, steepest = found
            slope = around.coordinates(gradient(there))
            step = jnp.where(curved, -slope / jnp.where(curved, around.values, 1), 0)
            there = jax.tree.map(jnp.add, there, around.vector(step * jnp.minimum(1, reach / jnp.linalg.norm(step))))
            return there, jnp.maximum(steepest, jnp.max(jnp.abs(slope)))

        start = jax.tree.map(jnp.add, limit, around.vector(away))
        there, steepest = jax.lax.fori_loop(0, 6, down, (start, jnp.zeros_like(reach)))
        change = field.objective(there) - risk
        return (change < -noise) | (nothing_curves & (steepest > 0) & (change <= noise))

    reaches = jnp.stack([0.1 * norm(limit), 0.03 * norm(limit), 0.1 * _norm_between(limit, origin)])
    reaches = jnp.where(nothing_curves & (reaches == 0), 1, reaches)  # a run that began at zero went nowhere
    seeds = jnp.arange(1, 7)
    probes = jnp.repeat(reaches, len(seeds)), jnp.tile(seeds, len(reaches))
    return jnp.any(jax.lax.map(lower, probes))


@partial(compiled, sized_by=[0], few_calls=True)
def _has_no_minimizer(seen: _Seen, end: PredictedLimit) -> Bool[Array, ""]:
    """Tell whether the risk decreases towards its infimum as the weights grow without bound, and never attains it.

    It does where the loss is known to decrease for ever as the predictions of these weights grow, and they do grow with
    the weights; also where such a risk is already zero in floats. Where nothing is known of the loss, it is taken to do
    so if it still decreases at eight times the step at whose end a minimum should be.
    """
    field, weights, _ = seen.in_highest_precision()
    network, step = field.network(weights), jax.tree.map(jnp.subtract, end.limit, weights)
    growth = jax.tree.map(lambda weight: weight / 16, weights)  # (1 + 8/16)^L times the prediction, L layers deep
    steps = jax.tree.map(lambda *pair: jnp.stack(pair), growth, step)
    grown, gone = jax.lax.map(partial(_falls_on, field, weights), steps)  # so the gradient is compiled once
    return gone | (field.problem.decreases_forever(network) & (grown | (field.problem(network) <= 0)))


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
    # A slope below 1e-6 of the gradient may be rounding, where a gradient is to be zero along a step.
    falls = (slopes[0] < -1e-6 * steepness[0] * norm(step)) & jnp.all(slopes <= 0)
    # Across the step a gradient may stay, as where some classes overlap and others are separable.
    flattens = jnp.all(jnp.diff(slopes) >= 0) & (slopes[-1] > slopes[0]) & jnp.all(steepness[1:] < steepness[0])
    return falls & flattens & (sizes[-1] > sizes[0])
