"""Whether a run ends where it is: looked at in every step, and by second derivatives where the gradient is small."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..compiling import compiled
from ..curvature import Surroundings, surroundings
from ..networks import cast, weight_dtype
from ..problems import Problem
from .field import GradientField, gradient_field, norm
from .growth import falls_for_ever, grows_along
from .outcome import ASKS, Outcome
from .stopping import Stopping

# The part of the weights within which the end of the way lies where there is one without doubt.
_NEAR = 1e-3


def divergence_ceiling(objective: Float[Array, "*lanes"]) -> Float[Array, "*lanes"]:
    """Return the objective above which a run has diverged: 1/ε times its first value or one, ε the unit roundoff.

    Beyond that nothing of the starting point is left in the digits. A gradient flow never rises at all; descent from
    near a minimum may rise far above where it began, and come back.
    """
    return jnp.maximum(objective, 1) / jnp.finfo(objective.dtype).eps


class Watch(eqx.Module):
    """At which gradient a run looks whether it has arrived, and at which it looks at second derivatives.

    A norm of `small` or less is worth a look. One of `bound` or less is worth a look at second derivatives, and so is a
    small one after so many `attempts`: a look that finds the limit still far sets both anew.
    """

    small: Float[Array, ""]
    bound: Float[Array, ""]
    attempts: Int[Array, ""]

    @classmethod
    def of(cls, stopping: Stopping, weights: PyTree, objective: Array, gradient_norm: Array) -> "Watch":
        """Return the watch at the start of a run, whose first objective and gradient give the units."""
        if stopping.gradient_norm is None:
            small = jnp.zeros_like(gradient_norm)
        else:
            size = norm(weights)
            unit = jnp.maximum(gradient_norm, objective / jnp.where(size > 0, size, jnp.inf))
            rounding = 1e3 * jnp.finfo(gradient_norm.dtype).eps * unit
            small = jnp.maximum(stopping.gradient_norm, jnp.where(jnp.isfinite(rounding), rounding, 0))
        return cls(small, small, jnp.array(0))

    def after(self, attempts: Int[Array, ""], gradient_norm: Array) -> "Watch":
        """Return the watch after a look that found the limit still far."""
        return Watch(self.small, gradient_norm / 2, attempts + jnp.maximum(16, attempts // 4))


def verdict(
    stopping: Stopping,
    field: GradientField,
    weights: PyTree,
    objective: Float[Array, ""],
    gradient_norm: Float[Array, ""],
    ceiling: Float[Array, ""],
    watch: Watch,
    *,
    due: Bool[Array, ""],
) -> Int[Array, ""]:
    """Return the `Outcome` at these weights as a number: RUNNING, or the reason to end here.

    It is ASKS where a small gradient leaves the question whether this is the limit to second derivatives, if a look at
    them is `due`.
    """
    still = gradient_norm == 0
    small = (gradient_norm <= watch.small) | still
    # The second look costs a forward pass, and is wanted only once the gradient is small.
    minimum = jax.lax.cond(
        small,
        lambda: jnp.asarray(field.problem.is_minimum(field.network(weights), stopping.remaining)),
        lambda: jnp.array(False),
    )
    asks = still | (small & due)
    code = jnp.where(small & minimum, Outcome.CONVERGED, jnp.where(asks, ASKS, Outcome.RUNNING))
    if stopping.excess_risk is not None:
        reached = field.problem.excess_risk(field.network(weights)) <= stopping.excess_risk
        code = jnp.where(reached, Outcome.RISK_REACHED, code)
    if stopping.risk is not None:
        code = jnp.where(field.problem(field.network(weights)) <= stopping.risk, Outcome.RISK_REACHED, code)
    if stopping.margin is not None:
        least = jnp.min(field.problem.margins(field.network(weights)))
        code = jnp.where(least >= stopping.margin, Outcome.MARGIN_REACHED, code)
    if stopping.direction is not None:
        settled = grows_along(field, weights, stopping.direction)
        code = jnp.where(settled, Outcome.DIRECTION_REACHED, code)
    lost = ~jnp.isfinite(objective) | ~jnp.isfinite(gradient_norm) | (objective > ceiling)
    return jnp.where(lost, Outcome.DIVERGED, code).astype(jnp.int32)


def _second_verdict(stopping: Stopping, network: PyTree, problem: Problem) -> Int[Array, ""]:
    """Return the `Outcome` that second derivatives see where the gradient is small, in the highest precision there is.

    CONVERGED: next to nothing is left of the way, and no direction curves down, or the risk is its infimum.
    STATIONARY: one does, or none curves at all, and rounding alone would decide where to go. NO_MINIMIZER: the end of
    the way is not that near, and the risk falls for ever instead. Else RUNNING.
    """
    precision = weight_dtype(network)
    field, start = gradient_field(cast(network, jnp.result_type(float)), problem)
    field, start = field.flattened(start)
    weights, around = _on_the_floor(field, start, precision)
    size, remaining = norm(weights), jnp.asarray(stopping.remaining)
    way = jax.tree.map(lambda here, there, step: there - here + step, start, weights, around.step)
    gain = field.objective(start) - field.objective(weights) + around.gain
    arrived = (norm(way) <= remaining * size) & ~(gain > remaining**2 * problem.null_risk(network))
    curves_up = around.certified & ~around.curves_down & (around.radius > 0)
    minimum = curves_up | (field.problem.excess_risk(field.network(weights)) <= 0)
    stays = around.leaving <= 10 * jnp.finfo(precision).eps * around.radius * size
    # A large `remaining` leaves out how much of the way is left, and not whether there is an end to it. Where the risk
    # may fall for ever no way is short beside the weights: they are as large as a large learning rate threw them.
    without_doubt = ~field.problem.falls_for_ever(field.network(start))
    near = arrived & minimum & (norm(way) <= _NEAR * size) & without_doubt
    endless = jax.lax.cond(near, lambda: jnp.array(False), lambda: falls_for_ever(field, start, way))
    code = jnp.where(arrived & ~minimum & stays, Outcome.STATIONARY, Outcome.RUNNING)
    code = jnp.where(arrived & minimum, Outcome.CONVERGED, code)
    return jnp.where(endless, Outcome.NO_MINIMIZER, code).astype(jnp.int32)


def _on_the_floor(field: GradientField, weights: PyTree, precision: jnp.dtype) -> tuple[PyTree, Surroundings]:
    """Return weights on the floor of the valley that these are in, and what the risk looks like from there.

    How far off the floor a run is, is a matter of its steps. It may be little, and yet enough to tilt directions that
    are nearly flat by more than they curve.
    """

    def look(here: PyTree) -> Surroundings:
        return surroundings(field.objective, here, jax.grad(field.objective)(here), precision=precision)

    def closer(_: int, found: tuple[PyTree, PyTree, Surroundings]) -> tuple[PyTree, PyTree, Surroundings]:
        here = found[0]
        around = look(here)
        return jax.tree.map(jnp.add, here, around.fast), here, around

    unseen = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(look, weights))
    return jax.lax.fori_loop(0, 3, closer, (weights, weights, unseen))[1:]


def first_verdict(
    stopping: Stopping,
    network: PyTree,
    problem: Problem,
    objective: Float[Array, ""],
    gradient_norm: Float[Array, ""],
) -> Int[Array, ""]:
    """Return as a number the `Outcome` at `network`, RUNNING where a run goes on from there.

    `stopping` is what `stopping_for` returns. Where it is ASKS, `settled_verdict` knows more.
    """
    field, weights = gradient_field(network, problem)
    infinite = jnp.full_like(objective, jnp.inf)
    small = jnp.asarray(0.0 if stopping.gradient_norm is None else stopping.gradient_norm, objective.dtype)
    watch = Watch(small, small, jnp.array(0))
    return verdict(stopping, field, weights, objective, gradient_norm, infinite, watch, due=jnp.array(True))


def settled_verdict(stopping: Stopping, network: PyTree, problem: Problem, code: Int[Array, ""]) -> Int[Array, ""]:
    """Return a verdict as it is, or where it is ASKS, that of second derivatives.

    What looks at them is compiled where it is asked for, which is at few points; under `jax.jit` and `jax.vmap` in any
    case, where only the lanes that ask pay.
    """
    known = not isinstance(code, Tracer) and int(code) != ASKS
    return code if known else _looked_at(stopping, network, problem, code)


@partial(compiled, few_calls=True)
def _looked_at(stopping: Stopping, network: PyTree, problem: Problem, code: Int[Array, ""]) -> Int[Array, ""]:
    @sequential_vmap
    def looked_at(arguments: PyTree, code: Array) -> Array:
        look = partial(_second_verdict, *eqx.combine(arguments, rest))
        return jax.lax.cond(code == ASKS, look, lambda: code)

    arrays, rest = eqx.partition((stopping, network, problem), eqx.is_array)
    # A verdict is a whole number, and has no derivative.
    return looked_at(jax.lax.stop_gradient(arrays), code)
