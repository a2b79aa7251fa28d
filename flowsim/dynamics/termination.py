"""The termination check: in every step by the gradient, and by second derivatives where that is small."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..networks.weights import angle_between
from ..problems import Problem
from ..runtime.compiling import compiled, is_traced
from ..solvers.field import GradientField, gradient_field
from .limit import limit_outcome
from .outcome import Outcome, decide
from .stopping import Stopping

OUTCOMES_OF_A_CHECK = (
    Outcome.DIVERGED,
    Outcome.DIRECTION_REACHED,
    Outcome.MARGIN_REACHED,
    Outcome.RISK_REACHED,
    Outcome.NO_MINIMIZER,
    Outcome.CONVERGED,
)


def divergence_ceiling(objective: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Return the objective above which a run has diverged: 1/ε times its first value or one, ε the unit roundoff.

    Beyond that no digit of the first value is left. The objective never rises along a gradient flow; along descent from
    near a minimum it may rise far above its first value, and come back.
    """
    return jnp.maximum(objective, 1) / jnp.finfo(objective.dtype).eps


class Watch(eqx.Module):
    """The gradient norms at which a run may have converged, and at which second derivatives are computed to decide it.

    A norm counts as small up to `small`: the requested norm, or the requested `share` of the largest in the run. Second
    derivatives are due at `bound` or less, and at a small norm after so many `attempts`: a check that finds the limit
    still far sets both anew.
    """

    small: Float[Array, ""]
    share: Float[Array, ""]
    bound: Float[Array, ""]
    attempts: Int[Array, ""]

    @classmethod
    def of(cls, stopping: Stopping, dtype: jnp.dtype) -> "Watch":
        """Return the watch before the first gradient."""
        none = jnp.zeros((), dtype)
        small = none if stopping.gradient_norm is None else jnp.asarray(stopping.gradient_norm)
        share = none if stopping.relative_gradient_norm is None else jnp.asarray(stopping.relative_gradient_norm)
        return cls(small, share, none, jnp.array(0))

    def seen(self, gradient_norm: Float[Array, ""]) -> "Watch":
        """Return the watch after a gradient of this norm, the largest finite number for one that is not known."""
        known = gradient_norm < jnp.finfo(gradient_norm.dtype).max
        small = jnp.maximum(self.small, jnp.where(known, self.share * gradient_norm, 0))
        return Watch(small, self.share, jnp.where(self.attempts > 0, self.bound, small), self.attempts)

    def after(self, attempts: Int[Array, ""], gradient_norm: Array) -> "Watch":
        """Return the watch after a check by second derivatives that found the limit still far."""
        return Watch(self.small, self.share, gradient_norm / 2, attempts + jnp.maximum(16, attempts // 4))


def check_termination(
    stopping: Stopping,
    field: GradientField,
    weights: PyTree,
    objective: Float[Array, ""],
    gradient_norm: Float[Array, ""],
    ceiling: Float[Array, ""],
    watch: Watch,
    *,
    due: Bool[Array, ""],
) -> tuple[dict[Outcome, Bool[Array, ""]], Bool[Array, ""]]:
    """Return the conditions of outcomes at these weights, and whether to ask second derivatives if none of them holds.

    They tell whether this is the limit, and are to be asked where the gradient is small and they are `due`, or zero.
    """
    still = gradient_norm == 0
    small = (gradient_norm <= watch.small) | still
    # This costs a forward pass, and is needed only once the gradient is small.
    minimum = jax.lax.cond(
        small,
        lambda: jnp.asarray(field.problem.is_minimum(field.network(weights), stopping.remaining)),
        lambda: jnp.array(False),
    )
    conditions = dict.fromkeys(OUTCOMES_OF_A_CHECK, jnp.array(False)) | {
        Outcome.DIVERGED: ~jnp.isfinite(objective) | ~jnp.isfinite(gradient_norm) | (objective > ceiling),
        Outcome.NO_MINIMIZER: objective < -ceiling,
        Outcome.CONVERGED: small & minimum,
    }
    if stopping.direction is not None:
        conditions[Outcome.DIRECTION_REACHED] = grows_along(field, weights, stopping.direction)
    if stopping.margin is not None:
        least = jnp.min(field.problem.margins(field.network(weights)))
        conditions[Outcome.MARGIN_REACHED] = least >= stopping.margin
    for risk, level in ((field.problem, stopping.risk), (field.problem.excess_risk, stopping.excess_risk)):
        if level is not None:
            conditions[Outcome.RISK_REACHED] |= risk(field.network(weights)) <= level
    return conditions, still | (small & due)


def outcome_by_gradient(
    stopping: Stopping,
    network: PyTree,
    problem: Problem,
    objective: Float[Array, ""],
    gradient_norm: Float[Array, ""],
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Return as a number the `Outcome` at `network`, RUNNING where a run goes on from there.

    And whether `outcome_by_curvature` has to tell whether this is the limit. `stopping` is what `stopping_for` returns.
    """
    field, weights = gradient_field(network, problem)
    infinite = jnp.full_like(objective, jnp.inf)
    small = jnp.asarray(0.0 if stopping.gradient_norm is None else stopping.gradient_norm, objective.dtype)
    watch = Watch(small, jnp.zeros_like(small), small, jnp.array(0))
    due = jnp.array(True)
    conditions, question = check_termination(
        stopping, field, weights, objective, gradient_norm, infinite, watch, due=due
    )
    code = decide(conditions)
    return code, question & (code == Outcome.RUNNING)


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


def grows_along(field: GradientField, weights: PyTree, angle: float | Float[Array, ""]) -> Bool[Array, ""]:
    """Tell whether weights that grow without bound do so in their own direction, up to an `angle`.

    Early on that may be by chance: weights that start at zero are, for a while, a multiple of the first gradient.
    """
    network = field.network(weights)
    late = field.problem.decreases_forever(network) & (field.problem(network) <= field.problem.null_risk(network) / 100)
    return late & (angle_between(field(0.0, weights, None), weights) <= angle)
