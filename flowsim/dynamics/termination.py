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
from .outcome import UNDECIDED, Outcome
from .stopping import Stopping


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
) -> Int[Array, ""]:
    """Return the `Outcome` at these weights as a number: RUNNING, or the reason to end here.

    It is UNDECIDED where the gradient is small and second derivatives, if they are `due`, have to tell whether this is
    the limit.
    """
    still = gradient_norm == 0
    small = (gradient_norm <= watch.small) | still
    # This costs a forward pass, and is needed only once the gradient is small.
    minimum = jax.lax.cond(
        small,
        lambda: jnp.asarray(field.problem.is_minimum(field.network(weights), stopping.remaining)),
        lambda: jnp.array(False),
    )
    undecided = still | (small & due)
    code = jnp.where(small & minimum, Outcome.CONVERGED, jnp.where(undecided, UNDECIDED, Outcome.RUNNING))
    if stopping.excess_risk is not None:
        reached = field.problem.excess_risk(field.network(weights)) <= stopping.excess_risk
        code = jnp.where(reached, Outcome.RISK_REACHED, code)
    if stopping.risk is not None:
        code = jnp.where(field.problem(field.network(weights)) <= stopping.risk, Outcome.RISK_REACHED, code)
    if stopping.margin is not None:
        least = jnp.min(field.problem.margins(field.network(weights)))
        code = jnp.where(least >= stopping.margin, Outcome.MARGIN_REACHED, code)
    if stopping.direction is not None:
        reached = grows_along(field, weights, stopping.direction)
        code = jnp.where(reached, Outcome.DIRECTION_REACHED, code)
    code = jnp.where(objective < -ceiling, Outcome.NO_MINIMIZER, code)  # it is not bounded below
    lost = ~jnp.isfinite(objective) | ~jnp.isfinite(gradient_norm) | (objective > ceiling)
    return jnp.where(lost, Outcome.DIVERGED, code).astype(jnp.int32)


def outcome_by_gradient(
    stopping: Stopping,
    network: PyTree,
    problem: Problem,
    objective: Float[Array, ""],
    gradient_norm: Float[Array, ""],
) -> Int[Array, ""]:
    """Return as a number the `Outcome` at `network`, RUNNING where a run goes on from there.

    `stopping` is what `stopping_for` returns. Where it is UNDECIDED, `outcome_by_curvature` decides.
    """
    field, weights = gradient_field(network, problem)
    infinite = jnp.full_like(objective, jnp.inf)
    small = jnp.asarray(0.0 if stopping.gradient_norm is None else stopping.gradient_norm, objective.dtype)
    watch = Watch(small, jnp.zeros_like(small), small, jnp.array(0))
    return check_termination(stopping, field, weights, objective, gradient_norm, infinite, watch, due=jnp.array(True))


def outcome_by_curvature(
    stopping: Stopping,
    start: PyTree,
    network: PyTree,
    problem: Problem,
    code: Int[Array, ""],
    threshold: Float[ArrayLike, ""] | None = None,
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the outcome `code` of a run from `start` to `network`, where UNDECIDED that by second derivatives.

    And the order to which the risk is flat at the limit: two unless that is known to be degenerate.

    `threshold` is the sharpness beyond which the run leaves a minimum, `None` where it never does.

    The check is compiled where it is needed, which is at few points; under `jax.jit` and `jax.vmap` always, and only
    the undecided runs of a batch pay for it.
    """
    if not isinstance(code, Tracer) and int(code) != UNDECIDED:
        return code, jnp.asarray(2.0)
    arguments = stopping, start, network, problem, threshold
    return _if_undecided(arguments, code) if is_traced((arguments, code)) else limit_outcome(*arguments)


@partial(compiled, few_calls=True)
def _if_undecided(arguments: tuple, code: Int[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    @sequential_vmap
    def decided(arrays: PyTree, code: Array) -> tuple[Array, Array]:
        decide = partial(limit_outcome, *eqx.combine(arrays, rest))
        two = jnp.asarray(2, jax.eval_shape(decide)[1].dtype)
        return jax.lax.cond(code == UNDECIDED, decide, lambda: (code, two))

    arrays, rest = eqx.partition(arguments, eqx.is_array)
    # An outcome is a whole number, and has no derivative.
    return decided(jax.lax.stop_gradient(arrays), code)


def grows_along(field: GradientField, weights: PyTree, angle: float | Float[Array, ""]) -> Bool[Array, ""]:
    """Tell whether weights that grow without bound do so in their own direction, up to an `angle`.

    Early on that may be by chance: weights that start at zero are, for a while, a multiple of the first gradient.
    """
    network = field.network(weights)
    late = field.problem.decreases_forever(network) & (field.problem(network) <= field.problem.null_risk(network) / 100)
    return late & (angle_between(field(0.0, weights, None), weights) <= angle)
