"""When a run ends, and what its end is called."""

import dataclasses
import enum
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..compiling import compiled
from ..curvature import Surroundings, surroundings
from ..networks import cast, weight_dtype
from ..problems import Problem, check_problem
from .field import GradientField, constant, gradient_field, norm
from .growth import falls_for_ever, grows_along, is_lost_to_rounding

# The code of a run of small gradient that does not go on before second derivatives have been looked at.
ASKS = -1


# The part of the weights within which the end of the way lies where there is one without doubt.
_NEAR = 1e-3


class Outcome(enum.IntEnum):
    """How a run ended; `meaning` says it in a sentence."""

    RUNNING = 0
    CONVERGED = 1
    RISK_REACHED = 2
    FIXED_POINT = 3
    STATIONARY = 4
    TIME_LIMIT = 5
    STEP_LIMIT = 6
    DIVERGED = 7
    STALLED = 8
    SOLVER_FAILED = 9
    NO_MINIMIZER = 10
    MARGIN_REACHED = 11
    DIRECTION_REACHED = 12

    def __str__(self) -> str:
        return self.name

    @property
    def meaning(self) -> str:
        """One sentence: what happened and, where there is one, the remedy."""
        return _MEANINGS[self]

    @property
    def arrived(self) -> bool:
        """Whether the run reached its limit, by the criterion at which it was to stop."""
        return self in _ARRIVED

    @property
    def settled(self) -> bool:
        """Whether the run stands still: it arrived, or rounding holds it.

        Descent with a step too large to arrive may come to rest on a cycle or at a point where no weight changes; its
        end counts as one to be shown, although it is not the limit that was looked for.
        """
        return self.arrived or self is Outcome.FIXED_POINT

    @property
    def stays(self) -> bool:
        """Whether a flow would stay for ever where it ended, so that its end is where it is at all later times."""
        return self in _STAYS


_STAYS = (Outcome.CONVERGED, Outcome.STATIONARY, Outcome.FIXED_POINT)
_ARRIVED = (Outcome.CONVERGED, Outcome.RISK_REACHED, Outcome.MARGIN_REACHED, Outcome.DIRECTION_REACHED)
_MEANINGS = {
    Outcome.RUNNING: "the run has not ended",
    Outcome.CONVERGED: "the gradient norm and the way that is left fell to their tolerances, at a minimum",
    Outcome.RISK_REACHED: "the risk, or the excess risk, fell to its tolerance",
    Outcome.FIXED_POINT: "a step no longer changes any weight in floating point",
    Outcome.STATIONARY: "the gradient vanishes at a point that is not known to be a minimum, such as a saddle or the "
    "zero network: nothing moves; start from elsewhere, such as from a larger scale",
    Outcome.TIME_LIMIT: "the time limit t1 came first: raise t1",
    Outcome.STEP_LIMIT: "the step limit came first: allow more steps",
    Outcome.DIVERGED: "the risk left all bounds",
    Outcome.STALLED: "the step size fell to nothing: loosen rtol and atol, or use float64",
    Outcome.SOLVER_FAILED: "the solver gave up on a step: try another solver",
    Outcome.NO_MINIMIZER: "the risk falls ever further as the weights grow: it has no minimizer, or none in sight, "
    "such as for a logistic loss on separable data; stop at a time, a risk, a margin or a direction",
    Outcome.MARGIN_REACHED: "the margin of every sample rose to what was asked for",
    Outcome.DIRECTION_REACHED: "the weights grow in their own direction, up to the angle asked for",
}


class _OfThePrecision(float):
    """What stands where nothing is said: the number of double precision, and in single precision that of it."""


class Stopping(eqx.Module):
    """The criterion at which a run counts as arrived; `None` switches a part off.

    `gradient_norm`: ‖∇R(W)‖ (Euclidean, all weights together) at or below this (default: 1e-8, in float32 1e-4), at a
    minimum, with no more than
    `remaining` of the way left: the distance to the limit by second derivatives, relative to ‖W‖ (default: 1e-6, in
    float32 1e-3; infinity, which leaves it out, where `gradient_norm` is larger than by default). A gradient that fell
    by twelve digits (in float32 by four) counts as small too, as in the units of the problem 1e-8 may be out of reach.
    `excess_risk`: R − R_min at or below this. `risk`: R at or below this, for a network that can fit its data while
    R_min is not known. With several on, the first to come ends the run. Raises `ValueError` for a negative number.

    Two more are for a loss without a minimizer on separable data. `margin`: the least margin of all samples at or above
    this. `direction`: the angle between the weights and −∇R, in radians, at or below this, from where on every sample
    is on the right side and the risk a hundredth of that of the prediction zero. At the limit of a homogeneous network
    that angle is zero (Ji and Telgarsky 2020). For one linear layer −∇R turns to the direction of largest margin much
    sooner than the weights do, by 1/log t (Soudry et al. 2018): then it is of the size of the angle that they have left
    to go. It is no bound of that: it is small too where the weights turn back on their way.
    """

    gradient_norm: float | Float[Array, ""] | None = _OfThePrecision(1e-8)
    excess_risk: float | Float[Array, ""] | None = None
    risk: float | Float[Array, ""] | None = None
    remaining: float | Float[Array, ""] | None = None
    margin: float | Float[Array, ""] | None = None
    direction: float | Float[Array, ""] | None = None

    def __check_init__(self):
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not value >= 0:
                raise ValueError(f"{name} must be zero or more, or None to switch it off; got {value}")

    @classmethod
    def standard(cls, dtype: jnp.dtype) -> "Stopping":
        """Return the criterion used when none is given: ‖∇R‖ ≤ 1e-8, or 1e-4 for weights in float32."""
        return cls(gradient_norm=_standard(dtype)[0])


def stopping_for(stopping: Stopping | None, problem: Problem, dtype: jnp.dtype) -> Stopping:
    """Return the criterion for a problem and weights of type `dtype`, the standard one for `None`.

    Its numbers become arrays, so that another tolerance needs no new compilation. Raises `ValueError` for a
    gradient norm that the precision cannot resolve, for an excess risk where the minimum is not known, and for a margin
    or direction where there is none; `TypeError` for what is no problem.
    """
    check_problem(problem)
    if stopping is None:
        stopping = Stopping.standard(dtype)
    if isinstance(stopping.gradient_norm, _OfThePrecision):
        stopping = dataclasses.replace(stopping, gradient_norm=_standard(dtype)[0])
    if stopping.remaining is None:
        stopping = dataclasses.replace(stopping, remaining=_remaining_beside(stopping.gradient_norm, dtype))
    if stopping.excess_risk is not None and _is_unknown(problem.infimum):
        raise ValueError(
            "excess_risk cannot fall to a tolerance where the minimum is not known: give EmpiricalRisk its "
            "minimal_risk, or a problem of your own its infimum; or stop at a risk or a gradient_norm"
        )
    _check_margins(stopping, problem)
    bound, finest = stopping.gradient_norm, 8 * float(jnp.finfo(dtype).eps)
    if isinstance(bound, int | float) and 0 < bound < finest:
        raise ValueError(
            f"gradient_norm={bound:g} is below what {dtype} resolves: write {finest:.1g} or more"
            + (", or use float64 weights (jax.config.update('jax_enable_x64', True))" if dtype.itemsize < 8 else "")
        )
    return jax.tree.map(lambda number: constant(number, dtype), stopping)


def _check_margins(stopping: Stopping, problem: Problem) -> None:
    """Raise `ValueError` for a margin where samples have none, and for a direction where weights have a limit."""
    name = "direction" if stopping.margin is None else "margin"
    asked = stopping.margin is not None or stopping.direction is not None
    if asked and not problem.has_margins():
        raise ValueError(
            f"{name} is about samples of classes, of which {type(problem).__name__} knows none here: expected an "
            "EmpiricalRisk with flowsim.losses.Logistic() or CrossEntropy(); or stop at a risk"
        )
    if stopping.direction is not None and problem.attained:
        raise ValueError(
            "direction is that of weights which grow for ever, and the infimum of this loss is attained: expected "
            "flowsim.losses.Logistic() or CrossEntropy(); or stop at a gradient_norm"
        )


def _standard(dtype: jnp.dtype) -> tuple[float, float]:
    """Return the gradient norm, and the part of the way left, at which a run counts as arrived by default."""
    return (1e-4, 1e-3) if dtype.itemsize < 8 else (1e-8, 1e-6)


def _remaining_beside(gradient_norm: float | Float[Array, ""] | None, dtype: jnp.dtype) -> float:
    """Return what may be left of the way: anything, where more of a gradient is asked for than by default."""
    standard, remaining = _standard(dtype)
    return np.inf if isinstance(gradient_norm, int | float) and gradient_norm > standard else remaining


def _is_unknown(infimum: Float[Array, ""] | float) -> bool:
    return not isinstance(infimum, Tracer) and bool(np.isnan(infimum).any())


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
    # A large `remaining` leaves out how much of the way is left, and not whether there is an end to it.
    near = arrived & minimum & (norm(way) <= _NEAR * size) & ~is_lost_to_rounding(field, start)
    endless = jax.lax.cond(near, lambda: jnp.array(False), lambda: falls_for_ever(field, start, way))
    code = jnp.where(arrived & ~minimum & stays, Outcome.STATIONARY, Outcome.RUNNING)
    code = jnp.where(arrived & minimum, Outcome.CONVERGED, code)
    return jnp.where(endless, Outcome.NO_MINIMIZER, code).astype(jnp.int32)


def _on_the_floor(field: GradientField, weights: PyTree, precision: jnp.dtype) -> tuple[PyTree, Surroundings]:
    """Return weights on the floor of the valley that these are in, and what the risk looks like from there.

    How far off the floor a run is, is a matter of its steps. It may be little, and yet enough to tilt directions that
    are nearly flat by more than they curve.
    """

    def closer(here: PyTree, _: None) -> tuple[PyTree, tuple[PyTree, Surroundings]]:
        around = surroundings(field.objective, here, jax.grad(field.objective)(here), precision=precision)
        return jax.tree.map(jnp.add, here, around.fast), (here, around)

    _, found = jax.lax.scan(closer, weights, length=3)
    return jax.tree.map(lambda leaf: leaf[-1], found)


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


def or_else(code: Array, condition: Array, outcome: int) -> Array:
    """Return `outcome` where `condition` holds and no earlier reason ended the run."""
    return jnp.where((code == Outcome.RUNNING) & condition, jnp.asarray(outcome, code.dtype), code)
