"""The criterion at which a run counts as converged, and its check in every step, by the gradient."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..formatting.numbers import rounded_down
from ..kinds import got
from ..networks.weights import angle_between
from ..problems import Problem, check_problem, has_identity_curvature
from ..solvers.field import GradientField, constant, gradient_field
from .outcome import Outcome, decide


class _OfThePrecision(float):
    """A default: this number in double precision, and another in single precision."""


class Stopping(eqx.Module):
    """The criterion at which a run counts as converged; `None` switches a part off. With several on, the first to come
    ends the run.

    A gradient that is small counts at a minimum alone: that is where the distance to the minimizer, by second
    derivatives, is small, too. Raises `ValueError` for a negative number, and for what is none.

    `margin` and `direction` are for a loss without a minimizer on separable data. At the limit of a homogeneous network
    the angle is zero (Ji and Telgarsky 2020). For one linear layer −∇R turns to the direction of largest margin much
    sooner than the weights do, by 1/log t (Soudry et al. 2018): then it is of the size of the angle that they have left
    to go. It is no bound of that: it is small too where the weights turn back on their way.
    """

    gradient_norm: float | Float[Array, ""] | None = _OfThePrecision(1e-8)
    """‖∇R(W)‖ (Euclidean, all weights together) at or below this; by default 1e-8, in float32 1e-4, and what
    is resolved in float16."""
    excess_risk: float | Float[Array, ""] | None = None
    """R − R_min at or below this."""
    risk: float | Float[Array, ""] | None = None
    """R at or below this, for a network that can fit its data while R_min is not known."""
    remaining: float | Float[Array, ""] | None = None
    """The distance to the minimizer by second derivatives, relative to the distance from the start. By default 1e-6, in
    float32 1e-3; infinity, which leaves it out, where `gradient_norm` is larger than by default: where the limit is
    then not known to be a minimum, the run ends with GRADIENT_REACHED, unless the Hessian is visibly that of a
    saddle."""
    margin: float | Float[Array, ""] | None = None
    """The least margin of all samples at or above this."""
    direction: float | Float[Array, ""] | None = None
    """The angle between the weights and −∇R, in radians, at or below this, from where on every sample is on the right
    side and the risk a hundredth of that of the prediction zero."""
    relative_gradient_norm: float | Float[Array, ""] | None = None
    """A gradient that fell to this share of the largest in the run counts as small too, as in the units of the problem
    1e-8 may be out of reach. By default 1e3·ε, which is 2e-13, in float32 1e-4; nothing where `gradient_norm` is
    given."""

    def __check_init__(self):
        for name, value in vars(self).items():
            if value is None or isinstance(value, jax.Array):
                continue
            known = np.asarray(value)
            if isinstance(value, list | tuple) or known.dtype.kind not in "iuf" or not (known >= 0).all():
                raise ValueError(f"{name} must be a number, zero or more, or None to switch it off; got {value!r}")

    @property
    def ends_early(self) -> bool:
        """Whether a run may end short of its limit: at a risk, a margin or an angle."""
        return any(part is not None for part in (self.excess_risk, self.risk, self.margin, self.direction))


def stopping_for(stopping: Stopping | None, problem: Problem, dtype: jnp.dtype) -> Stopping:
    """Return the criterion for a problem and weights of type `dtype`, the standard one for `None`.

    Its numbers become arrays, so that another tolerance needs no new compilation. Raises `ValueError` for a
    gradient norm that the precision cannot resolve, for an excess risk where the minimum is not known, and for a margin
    or direction where there is none; `TypeError` for what is no problem, and what is no `Stopping`.
    """
    check_problem(problem)
    if stopping is not None and not isinstance(stopping, Stopping):
        raise TypeError(
            "stopping must be None or a flowsim.Stopping, such as flowsim.Stopping(gradient_norm=1e-6), got "
            f"{got(stopping, Stopping) if isinstance(stopping, type) else repr(stopping)}"
        )
    stopping = Stopping() if stopping is None else stopping
    bound, share, remaining = stopping.gradient_norm, stopping.relative_gradient_norm, stopping.remaining
    standard, near = standard_bounds(dtype)
    by_default = isinstance(bound, _OfThePrecision)
    bound = standard if by_default else bound
    if share is None:
        # The share of the largest gradient of a run at which one may be made of rounding alone.
        share = 1e3 * float(jnp.finfo(dtype).eps) if by_default else 0.0
    if remaining is None:
        # With a gradient norm that is larger than by default, any distance to the minimizer will do.
        remaining = np.inf if isinstance(bound, int | float) and bound > standard else near
    stopping = dataclasses.replace(stopping, gradient_norm=bound, relative_gradient_norm=share, remaining=remaining)
    if stopping.excess_risk is not None and not isinstance(problem.infimum, Tracer) and np.isnan(problem.infimum).any():
        raise ValueError(
            "excess_risk cannot fall to a tolerance where the minimum is not known: give EmpiricalRisk its "
            "minimal_risk, or a problem of your own its infimum; or stop at a risk or a gradient_norm"
        )
    name = "direction" if stopping.margin is None else "margin"
    if (stopping.margin is not None or stopping.direction is not None) and not problem.has_margins():
        raise ValueError(
            f"{name} is about samples of classes, of which {type(problem).__name__} knows none here: expected an "
            "EmpiricalRisk with flowsim.losses.Logistic() or CrossEntropy(); or stop at a risk"
        )
    if stopping.direction is not None and has_identity_curvature(problem):
        raise ValueError(
            "direction is that of weights which grow for ever, and with weight decay they do not: leave out one of the "
            "two; or stop at a gradient_norm"
        )
    if stopping.direction is not None and problem.attained:
        raise ValueError(
            "direction is that of weights which grow for ever, and the infimum of this loss is attained: expected "
            "flowsim.losses.Logistic() or CrossEntropy(); or stop at a gradient_norm"
        )
    finest = finest_gradient_norm(dtype)
    if isinstance(bound, int | float) and 0 < bound < finest:
        raise ValueError(
            f"gradient_norm={bound:g} is below what {dtype} resolves: write {finest:.1g} or more"
            + (", or use float64 weights (jax.config.update('jax_enable_x64', True))" if dtype.itemsize < 8 else "")
        )
    return jax.tree.map(lambda number: constant(number, dtype), stopping)


def objective_floor(stopping: Stopping | None, problem: Problem, network: PyTree) -> float:
    """Return the objective at which the risk, or the excess risk, reaches its tolerance; −∞ without tolerances.

    The objective differs from both by constants, which are computed at a `network`.
    """
    levels = () if stopping is None else ((stopping.risk, problem), (stopping.excess_risk, problem.excess_risk))
    floors = [level - (of(network) - problem.objective(network)) for level, of in levels if level is not None]
    return max(map(float, floors), default=-np.inf)


def standard_bounds(dtype: jnp.dtype) -> tuple[float, float]:
    """Return the gradient norm, and the relative distance to the minimizer, at which a run converges by default."""
    return (max(1e-4, finest_gradient_norm(dtype)), 1e-3) if dtype.itemsize < 8 else (1e-8, 1e-6)


def finest_gradient_norm(dtype: jnp.dtype) -> float:
    """Return the smallest gradient norm that weights of a type resolve."""
    return rounded_down(8 * float(jnp.finfo(dtype).eps), digits=1)


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


def has_diverged(objective: Float[Array, "*batch"], ceiling: Float[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Tell whether a run has diverged: its objective is no finite number, or above the `divergence_ceiling`."""
    return ~jnp.isfinite(objective) | (objective > ceiling)


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
        Outcome.DIVERGED: has_diverged(objective, ceiling) | ~jnp.isfinite(gradient_norm),
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


def grows_along(field: GradientField, weights: PyTree, angle: float | Float[Array, ""]) -> Bool[Array, ""]:
    """Tell whether weights that grow without bound do so in their own direction, up to an `angle`.

    Early on that may be by chance: weights that start at zero are, for a while, a multiple of the first gradient.
    """
    network = field.network(weights)
    late = field.problem.decreases_forever(network) & (field.problem(network) <= field.problem.null_risk(network) / 100)
    return late & (angle_between(field(0.0, weights, None), weights) <= angle)
