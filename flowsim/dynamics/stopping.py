"""When a run ends, and what its end is called."""

import enum

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from ..networks import weight_dtype
from ..problems import Problem, check_problem
from .field import GradientField, constant, gradient_field, norm


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

    def __str__(self) -> str:
        return self.name

    @property
    def meaning(self) -> str:
        """One sentence: what happened and, where there is one, the remedy."""
        return _MEANINGS[self]

    @property
    def arrived(self) -> bool:
        """Whether the run reached its limit, by the criterion at which it was to stop."""
        return self in (Outcome.CONVERGED, Outcome.RISK_REACHED)

    @property
    def settled(self) -> bool:
        """Whether the run stands still: it arrived, or rounding holds it.

        Descent with a step too large to arrive may come to rest on a cycle or at a point where no weight changes; its
        end counts as one to be shown, although it is not the limit that was looked for.
        """
        return self.arrived or self is Outcome.FIXED_POINT


_MEANINGS = {
    Outcome.RUNNING: "the run has not ended",
    Outcome.CONVERGED: "the gradient norm fell to its tolerance at a minimum",
    Outcome.RISK_REACHED: "the risk, or the excess risk, fell to its tolerance",
    Outcome.FIXED_POINT: "a step no longer changes any weight in floating point",
    Outcome.STATIONARY: "the gradient vanishes at a point that is not a minimum, such as the zero network: "
    "nothing moves; start from a larger scale",
    Outcome.TIME_LIMIT: "the time limit t1 came first: raise t1",
    Outcome.STEP_LIMIT: "the step limit came first: allow more steps",
    Outcome.DIVERGED: "the risk left all bounds",
    Outcome.STALLED: "the step size fell to nothing: loosen rtol and atol, or use float64",
    Outcome.SOLVER_FAILED: "the solver gave up on a step: try another solver",
}


class Stopping(eqx.Module):
    """The criterion at which a run counts as arrived; `None` switches a part off.

    `gradient_norm`: ‖∇R(W)‖ (Euclidean, all weights together) at or below this, at a point that is not known
    to be a saddle or a plateau. `excess_risk`: R − R_min at or below this. `risk`: R at or below this, for a network
    that can fit its data while R_min is not known. With several on, the first to come ends the run. Raises
    `ValueError` for a negative number.
    """

    gradient_norm: float | Float[Array, ""] | None = 1e-8
    excess_risk: float | Float[Array, ""] | None = None
    risk: float | Float[Array, ""] | None = None

    def __check_init__(self):
        for name in ("gradient_norm", "excess_risk", "risk"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not value >= 0:
                raise ValueError(f"{name} must be zero or more, or None to switch it off; got {value}")

    @classmethod
    def standard(cls, dtype: jnp.dtype) -> "Stopping":
        """Return the criterion used when none is given: ‖∇R‖ ≤ 1e-8, or 1e-4 for weights in float32."""
        return cls(gradient_norm=1e-4 if dtype.itemsize < 8 else 1e-8)


def stopping_for(stopping: Stopping | None, problem: Problem, dtype: jnp.dtype) -> Stopping:
    """Return the criterion for a problem and weights of type `dtype`, the standard one for `None`.

    Its numbers become arrays, so that another tolerance needs no new compilation. Raises `ValueError` for a
    gradient norm that the precision cannot resolve, and for an excess risk where the minimum is not known; `TypeError`
    for what is no problem.
    """
    check_problem(problem)
    if stopping is None:
        stopping = Stopping.standard(dtype)
    if stopping.excess_risk is not None and _is_unknown(problem.infimum):
        raise ValueError(
            "excess_risk cannot fall to a tolerance where the minimum is not known: give EmpiricalRisk its "
            "minimal_risk, or a problem of your own its infimum; or stop at a risk or a gradient_norm"
        )
    bound, finest = stopping.gradient_norm, 8 * float(jnp.finfo(dtype).eps)
    if isinstance(bound, int | float) and 0 < bound < finest:
        raise ValueError(
            f"gradient_norm={bound:g} is below what {dtype} resolves: write {finest:.1g} or more"
            + (", or use float64 weights (jax.config.update('jax_enable_x64', True))" if dtype.itemsize < 8 else "")
        )
    return jax.tree.map(lambda number: constant(number, dtype), stopping)


def _is_unknown(infimum: Float[Array, ""] | float) -> bool:
    return not isinstance(infimum, Tracer) and bool(np.isnan(infimum).any())


def divergence_ceiling(objective: Float[Array, "*lanes"]) -> Float[Array, "*lanes"]:
    """Return the objective above which a run has diverged: 1/ε times its first value or one, ε the unit roundoff.

    Beyond that nothing of the starting point is left in the digits. A gradient flow never rises at all; descent from
    near a minimum may rise far above where it began, and come back.
    """
    return jnp.maximum(objective, 1) / jnp.finfo(objective.dtype).eps


def verdict(
    stopping: Stopping,
    field: GradientField,
    weights: PyTree,
    objective: Float[Array, ""],
    gradient_norm: Float[Array, ""],
    ceiling: Float[Array, ""],
) -> Int[Array, ""]:
    """Return the `Outcome` at these weights as a number: RUNNING, or the reason to end here."""
    tolerance = jnp.asarray(0.0 if stopping.gradient_norm is None else stopping.gradient_norm, gradient_norm.dtype)
    still = gradient_norm == 0
    small = (gradient_norm <= tolerance) | still
    bound = jnp.where(still, 0, tolerance)
    # The second look costs a forward pass, and is wanted only once the gradient is small.
    minimum = jax.lax.cond(
        small,
        lambda: jnp.asarray(field.problem.is_minimum(field.network(weights), bound)),
        lambda: jnp.array(False),
    )
    code = jnp.where(small & minimum, Outcome.CONVERGED, jnp.where(still, Outcome.STATIONARY, Outcome.RUNNING))
    if stopping.excess_risk is not None:
        reached = field.problem.excess_risk(field.network(weights)) <= stopping.excess_risk
        code = jnp.where(reached, Outcome.RISK_REACHED, code)
    if stopping.risk is not None:
        code = jnp.where(field.problem(field.network(weights)) <= stopping.risk, Outcome.RISK_REACHED, code)
    lost = ~jnp.isfinite(objective) | ~jnp.isfinite(gradient_norm) | (objective > ceiling)
    return jnp.where(lost, Outcome.DIVERGED, code).astype(jnp.int32)


def arrival(network: eqx.Module, problem: Problem, stopping: Stopping | None = None) -> Int[Array, ""]:
    """Return as a number the `Outcome` that `stopping` sees at `network`: RUNNING where a run would go on from there.

    `stopping` is as in `integrate`. Works under `jax.jit` and `jax.vmap`.
    """
    field, weights = gradient_field(network, problem)
    objective, gradient = jax.value_and_grad(field.objective)(weights)
    criterion = stopping_for(stopping, problem, weight_dtype(network))
    return verdict(criterion, field, weights, objective, norm(gradient), jnp.full_like(objective, jnp.inf))


def or_else(code: Array, condition: Array, outcome: Outcome) -> Array:
    """Return `outcome` where `condition` holds and no earlier reason ended the run."""
    return jnp.where((code == Outcome.RUNNING) & condition, jnp.asarray(outcome, code.dtype), code)
