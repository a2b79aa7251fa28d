"""How a run ended."""

import enum

import jax.numpy as jnp
from jaxtyping import Array

# The code of a run of small gradient whose outcome second derivatives have to decide before it goes on.
UNDECIDED = -1


class Outcome(enum.IntEnum):
    """How a run ended: an integer, equal to the `code` of a trajectory, and its name; `meaning` says it in a sentence.

    `converged`: at the limit; `as_asked`: at another criterion that was given; all others say what prevented both.
    `settled`: at rest.
    """

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
    GRADIENT_REACHED = 13

    def __str__(self) -> str:
        return self.name

    @property
    def meaning(self) -> str:
        """One sentence: what happened and, where there is one, the remedy."""
        return _MEANINGS[self]

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
    def settled(self) -> bool:
        """Whether the run is at rest: it converged, or rounding holds it.

        Descent with a step too large to converge may come to rest on a cycle or at a point where no weight changes: a
        result to be shown, although not the limit.
        """
        return self.converged or self is Outcome.FIXED_POINT

    @property
    def stays(self) -> bool:
        """Whether a flow would stay at its end for ever, which is then its position at all later times."""
        return self in _STAYS


_STAYS = (Outcome.CONVERGED, Outcome.STATIONARY, Outcome.FIXED_POINT)
_AS_ASKED = (
    Outcome.TIME_LIMIT,
    Outcome.RISK_REACHED,
    Outcome.MARGIN_REACHED,
    Outcome.DIRECTION_REACHED,
    Outcome.GRADIENT_REACHED,
)
_MEANINGS = {
    Outcome.RUNNING: "the run has not ended",
    Outcome.CONVERGED: "the gradient norm and the distance to the minimizer fell to their tolerances, at a minimum",
    Outcome.RISK_REACHED: "the risk, or the excess risk, fell to its tolerance",
    Outcome.FIXED_POINT: "a step no longer changes any weight in floating point",
    Outcome.STATIONARY: "the gradient vanishes at a point that is not known to be a minimum, such as a saddle or the "
    "zero network: nothing moves; start from elsewhere, such as from a larger scale",
    Outcome.TIME_LIMIT: "the run came to the time t1, short of its limit",
    Outcome.STEP_LIMIT: "the step limit came first: allow more steps",
    Outcome.DIVERGED: "the risk left all bounds",
    Outcome.STALLED: "the step size fell to nothing: loosen rtol and atol, or use float64",
    Outcome.SOLVER_FAILED: "the solver gave up on a step: try another solver",
    Outcome.NO_MINIMIZER: "the risk falls ever further as the weights grow: it has no minimizer, or none in sight, "
    "such as for a logistic loss on separable data; stop at a time, a risk, a margin or a direction",
    Outcome.MARGIN_REACHED: "the margin of every sample rose to what was asked for",
    Outcome.DIRECTION_REACHED: "the angle between the weights and −∇R fell to what was asked for; that to the limit of "
    "their direction may be larger",
    Outcome.GRADIENT_REACHED: "the gradient norm fell to what was asked for, and it is not known how far the limit is, "
    "or whether there is one; a smaller gradient norm tells more",
}


def or_else(code: Array, condition: Array, outcome: int | Array) -> Array:
    """Return `outcome` where `condition` holds and no earlier reason ended the run."""
    return jnp.where((code == Outcome.RUNNING) & condition, jnp.asarray(outcome, code.dtype), code)
