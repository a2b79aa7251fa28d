"""The table of outcomes: how a run may end, and which outcome counts where several conditions hold."""

import enum
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Bool


class Outcome(enum.IntEnum):
    """How a run ended: an integer, equal to the `code` of a trajectory, and its name; `meaning` says it in a sentence.

    The members are in the order in which they count: where the conditions of several hold at once, the run ended by the
    first of them. `converged`: at the limit; `as_asked`: at another criterion that was given; all others say what
    prevented both. `settled`: at rest.
    """

    condition: str
    """When a run ends so."""
    meaning: str
    """One sentence: what happened and, where there is one, the remedy."""

    def __new__(cls, code: int, condition: str, meaning: str) -> "Outcome":
        """Return the member with this `code`."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.condition, member.meaning = condition, meaning
        return member

    SOLVER_FAILED = (
        9,
        "a step could not be computed, or a learning rate is not positive when its step comes",
        "the solver gave up on a step, or the learning rate is not positive: try another solver or schedule",
    )
    DIVERGED = (
        7,
        "the risk or its gradient is not finite, or the risk is above 1/ε times its first value (or 1/ε, if larger)",
        "the risk left all bounds",
    )
    DIRECTION_REACHED = (
        12,
        "the angle between the weights and −∇R is at the `direction` that was asked for, on separable classes",
        "the angle between the weights and −∇R fell to what was asked for; that to the limit of their direction may be "
        "larger",
    )
    MARGIN_REACHED = (
        11,
        "the least margin of all samples is at the `margin` that was asked for",
        "the margin of every sample rose to what was asked for",
    )
    RISK_REACHED = (
        2,
        "the risk or the excess risk is at the tolerance that was asked for",
        "the risk, or the excess risk, fell to its tolerance",
    )
    NO_MINIMIZER = (
        10,
        "the risk falls below −1/ε times its first value; or second derivatives show that it falls without end as the "
        "weights grow, as on separable classes with cross-entropy",
        "the risk falls ever further as the weights grow: it has no minimizer, or none in sight, such as for a "
        "logistic loss on separable data; stop at a time, a risk, a margin or a direction",
    )
    CONVERGED = (
        1,
        "‖∇R‖ is at its tolerance (10⁻⁸; in float32 10⁻⁴); at most 10⁻⁶ of the way from the start to the limit is left "
        "(float32: 10⁻³), by second derivatives; and the limit is a minimum",
        "the gradient norm and the distance to the minimizer fell to their tolerances, at a minimum",
    )
    STATIONARY = (
        4,
        "‖∇R‖ is at its tolerance, and only rounding moves the weights; but this is not a minimum, or not known to be "
        "one: a saddle, or the zero network",
        "the gradient vanishes at a point that is not known to be a minimum, such as a saddle or the zero network: "
        "nothing moves; start from elsewhere, such as from a larger scale",
    )
    GRADIENT_REACHED = (
        13,
        "‖∇R‖ is at a tolerance larger than by default, and it is not known how far the limit is, or whether there is "
        "one",
        "the gradient norm fell to what was asked for, and it is not known how far the limit is, or whether there is "
        "one; a smaller gradient norm tells more",
    )
    FIXED_POINT = (
        3,
        "ten steps in a row (of descent: one) change the weights by no more than the rounding of all, and none grows",
        "a step no longer changes any weight in floating point",
    )
    TIME_LIMIT = (5, "time is at `t1`", "the run came to the time t1, short of its limit")
    STALLED = (
        8,
        "the step size of the integration fell to nothing",
        "the step size fell to nothing: loosen rtol and atol, or use float64",
    )
    STEP_LIMIT = (6, "the number of steps is at its limit", "the step limit came first: allow more steps")
    RUNNING = (0, "none of the above holds", "the run has not ended")

    def __str__(self) -> str:
        return self.name

    @property
    def words(self) -> str:
        """The outcome as tables and sentences word it."""
        return self.name.lower().replace("_", " ")

    @property
    def converged(self) -> bool:
        """Whether the run reached its limit."""
        return self is Outcome.CONVERGED

    @property
    def as_asked(self) -> bool:
        """Whether the run stopped at a criterion that was given, short of its limit.

        That is a time, a risk, a margin, an angle, or a gradient norm that tells nothing about the limit.
        """
        return self in _AS_ASKED

    @property
    def as_expected(self) -> bool:
        """Whether the run reached its limit or stopped at a criterion that was given."""
        return self.converged or self.as_asked

    @property
    def settled(self) -> bool:
        """Whether the run is at rest: it converged, or rounding holds it.

        Descent with a step too large to converge may come to rest on a cycle or at a point where no weight changes: a
        result to be shown, although not the limit.
        """
        return self in (Outcome.CONVERGED, Outcome.FIXED_POINT)

    @property
    def stays(self) -> bool:
        """Whether a flow would stay at its end for ever, which is then its position at all later times."""
        return self in (Outcome.CONVERGED, Outcome.STATIONARY, Outcome.FIXED_POINT)

    @property
    def ran_out(self) -> bool:
        """Whether the time or the steps of the run ran out, so that a longer run goes on."""
        return self in (Outcome.TIME_LIMIT, Outcome.STEP_LIMIT)


_AS_ASKED = (
    Outcome.TIME_LIMIT,
    Outcome.RISK_REACHED,
    Outcome.MARGIN_REACHED,
    Outcome.DIRECTION_REACHED,
    Outcome.GRADIENT_REACHED,
)


def decide(conditions: Mapping[Outcome, Bool[ArrayLike, "..."]]) -> Any:
    """Return as a number the first outcome of the table whose condition holds, RUNNING where none does.

    Conditions may be of any shapes that broadcast together. If none is an array of JAX, the number is NumPy's, and
    nothing is compiled.
    """
    on_device = any(isinstance(condition, jax.Array) for condition in conditions.values())
    where = jnp.where if on_device else np.where
    code: Any = np.int32(Outcome.RUNNING)
    for outcome in reversed(Outcome):
        if outcome in conditions:
            code = where(conditions[outcome], np.int32(outcome), code)
    return code
