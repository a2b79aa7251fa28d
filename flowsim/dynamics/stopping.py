"""The criterion at which a run counts as converged."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from ..formatting.numbers import rounded_down
from ..kinds import got
from ..problems import Problem, check_problem, has_identity_curvature
from ..solvers.field import constant


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

    @classmethod
    def standard(cls, dtype: jnp.dtype) -> "Stopping":
        """Return the criterion used when none is given: ‖∇R‖ ≤ 1e-8, or 1e-4 for weights in float32."""
        return cls(gradient_norm=standard_bounds(dtype)[0], relative_gradient_norm=_rounding(dtype))


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
        share = _rounding(dtype) if by_default else 0.0
    if remaining is None:
        # With a gradient norm that is larger than by default, any distance to the minimizer will do.
        remaining = np.inf if isinstance(bound, int | float) and bound > standard else near
    stopping = dataclasses.replace(stopping, gradient_norm=bound, relative_gradient_norm=share, remaining=remaining)
    if stopping.excess_risk is not None and not isinstance(problem.infimum, Tracer) and np.isnan(problem.infimum).any():
        raise ValueError(
            "excess_risk cannot fall to a tolerance where the minimum is not known: give EmpiricalRisk its "
            "minimal_risk, or a problem of your own its infimum; or stop at a risk or a gradient_norm"
        )
    _check_margins(stopping, problem)
    finest = _finest(dtype)
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


def _check_margins(stopping: Stopping, problem: Problem) -> None:
    """Raise `ValueError` for a margin where samples have none, and for a direction where weights have a limit."""
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


def standard_remaining(dtype: jnp.dtype) -> float:
    """Return the relative distance to the minimizer at which a run counts as converged by default."""
    return standard_bounds(dtype)[1]


def _rounding(dtype: jnp.dtype) -> float:
    """Return the share of the largest gradient of a run at which one may be made of rounding alone."""
    return 1e3 * float(jnp.finfo(dtype).eps)


def standard_bounds(dtype: jnp.dtype) -> tuple[float, float]:
    """Return the gradient norm, and the relative distance to the minimizer, at which a run converges by default."""
    return (max(1e-4, _finest(dtype)), 1e-3) if dtype.itemsize < 8 else (1e-8, 1e-6)


def _finest(dtype: jnp.dtype) -> float:
    """Return the smallest gradient norm that weights of a type resolve."""
    return rounded_down(8 * float(jnp.finfo(dtype).eps), digits=1)
