"""Whether a run ends where it is: looked at in every step, and by second derivatives where the gradient is small."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..problems import Problem
from ..runtime.compiling import compiled
from ..solvers.field import GradientField, gradient_field
from .growth import grows_along
from .limit import second_verdict
from .outcome import ASKS, Outcome
from .stopping import Stopping


def divergence_ceiling(objective: Float[Array, "*lanes"]) -> Float[Array, "*lanes"]:
    """Return the objective above which a run has diverged: 1/ε times its first value or one, ε the unit roundoff.

    Beyond that nothing of the starting point is left in the digits. A gradient flow never rises at all; descent from
    near a minimum may rise far above where it began, and come back.
    """
    return jnp.maximum(objective, 1) / jnp.finfo(objective.dtype).eps


class Watch(eqx.Module):
    """At which gradient a run looks whether it has arrived, and at which it looks at second derivatives.

    A norm of `small` or less is worth a look: the norm asked for, or the `share` asked for of the largest in the run.
    One of `bound` or less is worth a look at second derivatives, and so is a small one after so many `attempts`: a look
    that finds the limit still far sets both anew.
    """

    small: Float[Array, ""]
    share: Float[Array, ""]
    bound: Float[Array, ""]
    attempts: Int[Array, ""]

    @classmethod
    def of(cls, stopping: Stopping, gradient_norm: Float[Array, ""]) -> "Watch":
        """Return the watch at the start of a run, where the gradient has this norm."""
        none = jnp.zeros_like(gradient_norm)
        small = none if stopping.gradient_norm is None else jnp.asarray(stopping.gradient_norm)
        share = none if stopping.relative_gradient_norm is None else jnp.asarray(stopping.relative_gradient_norm)
        return cls(small, share, none, jnp.array(0)).seen(gradient_norm)

    def seen(self, gradient_norm: Float[Array, ""]) -> "Watch":
        """Return the watch after a gradient of this norm, in whose units a small one is measured from then on.

        The largest number there is stands for a norm that is not known.
        """
        known = gradient_norm < jnp.finfo(gradient_norm.dtype).max
        small = jnp.maximum(self.small, jnp.where(known, self.share * gradient_norm, 0))
        return Watch(small, self.share, jnp.where(self.attempts > 0, self.bound, small), self.attempts)

    def after(self, attempts: Int[Array, ""], gradient_norm: Array) -> "Watch":
        """Return the watch after a look that found the limit still far."""
        return Watch(self.small, self.share, gradient_norm / 2, attempts + jnp.maximum(16, attempts // 4))


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
    code = jnp.where(objective < -ceiling, Outcome.NO_MINIMIZER, code)  # it is not bounded below
    lost = ~jnp.isfinite(objective) | ~jnp.isfinite(gradient_norm) | (objective > ceiling)
    return jnp.where(lost, Outcome.DIVERGED, code).astype(jnp.int32)


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
    watch = Watch(small, jnp.zeros_like(small), small, jnp.array(0))
    return verdict(stopping, field, weights, objective, gradient_norm, infinite, watch, due=jnp.array(True))


def settled_verdict(
    stopping: Stopping,
    start: PyTree,
    network: PyTree,
    problem: Problem,
    code: Int[Array, ""],
    threshold: Float[ArrayLike, ""] | None = None,
) -> Int[Array, ""]:
    """Return a verdict on a run from `start` to `network` as it is, or where it is ASKS, that of second derivatives.

    `threshold` is the sharpness beyond which the run leaves a minimum, `None` where it never does.

    What looks at them is compiled where it is asked for, which is at few points; under `jax.jit` and `jax.vmap` in any
    case, where only the lanes that ask pay.
    """
    known = not isinstance(code, Tracer) and int(code) != ASKS
    return code if known else _looked_at(stopping, start, network, problem, code, threshold)


@partial(compiled, few_calls=True)
def _looked_at(
    stopping: Stopping,
    start: PyTree,
    network: PyTree,
    problem: Problem,
    code: Int[Array, ""],
    threshold: Float[ArrayLike, ""] | None,
) -> Int[Array, ""]:
    @sequential_vmap
    def looked_at(arguments: PyTree, code: Array) -> Array:
        look = partial(second_verdict, *eqx.combine(arguments, rest))
        return jax.lax.cond(code == ASKS, look, lambda: code)

    arrays, rest = eqx.partition((stopping, start, network, problem, threshold), eqx.is_array)
    # A verdict is a whole number, and has no derivative.
    return looked_at(jax.lax.stop_gradient(arrays), code)
