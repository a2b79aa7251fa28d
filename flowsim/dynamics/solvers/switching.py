"""An explicit method that changes with what limits its step."""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..spectral_radius import SpectralRadius, scaled
from ..work import Work, no_work
from .chebyshev import CAP_MARGIN, RADIUS_MARGIN, chebyshev_step, defect, reach_of, stages_for, worthwhile
from .error import growth, scaled_norm
from .proposal import Proposal, ProposingSolver
from .registry import SOLVERS

# Evaluations of a step, the first being the last of the step before.
_TSIT5_EVALUATIONS = 6
# Three quarters of its real stability interval, 3.3.
_TSIT5_INTERVAL = 2.5


class _State(eqx.Module):
    slope: PyTree
    radius: SpectralRadius
    stabilized: Bool[Array, ""]
    work: Work


@SOLVERS.register("StabilitySwitching")
class StabilitySwitching(ProposingSolver):
    """Tsit5 while accuracy limits the step, `RungeKuttaChebyshev` while stability does.

    After each step the error that either method would make is known: that of Tsit5 from its embedded formula, that
    of the second-order method from the defect of the trapezoidal rule over the step; and so is the spectral radius ρ,
    which is followed by `iterations` steps of power iteration. The next step is taken by the method that covers more
    time per evaluation of f. Memory: y0 and twelve arrays of its size.
    """

    rtol: float | Float[Array, ""] | None = None
    atol: float | Float[Array, ""] | None = None
    max_stages: int = eqx.field(static=True, default=500)
    iterations: int = eqx.field(static=True, default=2)

    interpolation_cls: ClassVar[Callable[..., diffrax.ThirdOrderHermitePolynomialInterpolation]] = (
        diffrax.ThirdOrderHermitePolynomialInterpolation
    )

    def order(self, terms: Any) -> int:
        """Return 5, that of Tsit5, with which a run begins."""
        return 5

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return f(y0) and a first estimate of the spectral radius."""
        radius = SpectralRadius.first(lambda y: terms.vf(t0, y, args), y0)
        return _State(terms.vf(t0, y0, args), radius, jnp.array(False), no_work())

    def work(self, solver_state: _State) -> Work:
        """Return the work of all steps so far."""
        return solver_state.work

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step, and choose the method of the next."""
        h, slope = t1 - t0, solver_state.slope
        radius = solver_state.radius.followed(lambda y: terms.vf(t0, y, args), y0, self.iterations)
        bound = RADIUS_MARGIN * radius.value
        stages = stages_for(h * bound, self.max_stages)

        def by_tsit5() -> tuple:
            y1, error, _, state, _ = diffrax.Tsit5().step(terms, t0, t1, y0, args, (jnp.array(False), slope), False)
            _, last = cast(tuple, state)
            return y1, last, scaled_norm(error, y0, y1, self.rtol, self.atol), jnp.array(_TSIT5_EVALUATIONS)

        def by_chebyshev() -> tuple:
            y1 = chebyshev_step(lambda c, y: terms.vf(t0 + c * h, y, args), y0, slope, h, stages)
            return y1, terms.vf(t1, y1, args), jnp.full_like(bound, jnp.inf), stages

        stabilized = solver_state.stabilized | (h * bound > _TSIT5_INTERVAL)
        y1, last, size5, evaluations = jax.lax.cond(stabilized, by_chebyshev, by_tsit5)
        size2 = defect(y0, y1, slope, last, h, self.rtol, self.atol)
        size2 = jnp.where(stabilized & (stages >= self.max_stages), jnp.inf, size2)
        next_stabilized, longest = self._next(h, bound, size5, size2, stabilized)
        size = jnp.where(stabilized, size2, size5)
        factor = jnp.where(stabilized, worthwhile(longest / h, slope, last), longest / h)
        state = _State(last, radius, next_stabilized, solver_state.work + Work(evaluations, jnp.array(self.iterations)))
        dense = {"y0": y0, "y1": y1, "k0": scaled(slope, h), "k1": scaled(last, h)}
        return y1, Proposal(size, factor), dense, state, diffrax.RESULTS.successful

    def _next(self, h: Array, bound: Array, size5: Array, size2: Array, stabilized: Array) -> tuple[Array, Array]:
        """Return whether the next step is to be stabilized, and its length."""
        stable = _TSIT5_INTERVAL / bound
        longest2 = jnp.minimum(h * growth(size2, 3), CAP_MARGIN * reach_of(self.max_stages) / bound)
        longest5 = jnp.minimum(h * growth(size5, 5), stable)
        pays = longest2 / stages_for(longest2 * bound, self.max_stages) > longest5 / _TSIT5_EVALUATIONS
        # After a stabilized step the error of Tsit5 is not known; far inside its stability interval it is tried again.
        stay = longest2 > stable / 2
        stabilized = jnp.where(stabilized, stay, pays)
        return stabilized, jnp.where(stabilized, longest2, jnp.where(jnp.isfinite(size5), longest5, longest2))
