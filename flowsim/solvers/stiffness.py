"""Explicit while that is cheap, linearly implicit once it is not."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..curvature import vectors
from .field import Measured, VectorField
from .hessian import HessianExtrapolation
from .low_rank import LowRankExtrapolation
from .solver import SOLVERS, Proposal, ProposingSolver, Work
from .switching import StabilitySwitching


class Pace(eqx.Module):
    """What a solver's last steps have covered in time, and spent in evaluations of f."""

    covered: Float[Array, ""]
    spent: Float[Array, ""]
    kept: float = eqx.field(static=True, default=0.7)
    """The share of the sums that is kept from step to step: the pace is that of the last few."""

    @classmethod
    def unknown(cls, like: Float[Array, ""]) -> "Pace":
        """Return the pace before the first step."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like))

    def after(self, covered: ArrayLike, spent: ArrayLike) -> "Pace":
        """Return the pace after one more step."""
        return Pace(self.kept * self.covered + covered, self.kept * self.spent + spent, self.kept)

    def slower_than(self, other: "Pace") -> Bool[Array, ""]:
        """Tell whether less time is covered for each evaluation."""
        return self.covered * other.spent < other.covered * self.spent


class _State(eqx.Module):
    """Both solvers at one point, whether the low-rank one is on, since how many steps, and the pace of each.

    `stabilized` is what stabilized steps have cost since the last trial, `reluctance` the factor by which that is to be
    more than at first.
    """

    explicit: Any
    low_rank: Any
    stiff: Bool[Array, ""]
    age: Int[Array, ""]
    paces: tuple[Pace, Pace]
    stabilized: Float[Array, ""]
    reluctance: Float[Array, ""]


@SOLVERS.register("StiffnessSwitching")
class StiffnessSwitching(ProposingSolver):
    """`explicit` steps while they are cheap; those of `low_rank` where they cover more time at their cost.

    `low_rank` is linearly implicit, with a Gauss–Newton matrix or with the whole Hessian. A flow that is not stiff
    never pays for either. Where the explicit steps have to be stabilized, and
    have cost as much as ten low-rank ones, the low-rank solver is tried: it costs its `overhead` and some fifteen
    evaluations of f for each step, however stiff the flow, and accuracy alone limits its length. It goes on until its
    steps are slower than the explicit ones were, or so short that explicit ones would be cheap again; each return makes
    the solver twice as slow to try again. Where the gradient jumps it stays explicit.

    Memory: that of both solvers. What is left open in them `flowsim.integrate` fills in.
    """

    explicit: StabilitySwitching = StabilitySwitching()
    low_rank: LowRankExtrapolation | HessianExtrapolation = LowRankExtrapolation()
    rtol: float | Float[Array, ""] | None = None
    atol: float | Float[Array, ""] | None = None
    jumps: ArrayLike = False
    only: bool | None = eqx.field(static=True, default=None)
    """With True all steps are low-rank ones, with False all explicit, with `None` those whose turn it is."""
    tried_after: int = eqx.field(static=True, default=5)
    """The low-rank solver is tried when stabilized steps have cost as much as so many of its steps"""
    rows: int = eqx.field(static=True, default=15)
    """with so many evaluations of f: those of five rows of its table."""
    on_trial: int = eqx.field(static=True, default=4)
    """Steps that the low-rank solver has to find its order and length."""
    reach_per_squared_stage: float = eqx.field(static=True, default=0.35)
    """Stabilized steps of order four reach hρ = 0.35 s² with s stages (`explicit_methods`)."""
    fewest_stages: int = eqx.field(static=True, default=6)
    """The evaluations of a step of order five."""
    remembered: int = eqx.field(static=True, default=16)
    """After so many low-rank steps the explicit pace is forgotten:"""
    back: float = eqx.field(static=True, default=0.5)
    """explicit steps that would cost less than this share of a low-rank one are then tried once more."""

    interpolation_cls: ClassVar = StabilitySwitching.interpolation_cls

    @property
    def measure(self) -> Callable[[PyTree], Measured] | None:
        """What the explicit solver measures with."""
        return self.explicit.measure

    def order(self, terms: Any) -> int:
        """Return that of the explicit solver, with which a run begins."""
        return self.explicit.order(terms)

    def memory(self) -> int | None:
        """Return that of both solvers, `None` where nobody knows that of one."""
        implicit = self.low_rank.memory()
        return None if implicit is None else self.explicit.memory() + implicit

    def fill_in(self, field: VectorField, rtol: Float[Array, ""], atol: Float[Array, ""]) -> "StiffnessSwitching":
        """Return the solver for a field, with what it leaves open filled in, in both of its solvers too."""
        own = super().fill_in(field, rtol, atol)
        rtol, atol = jnp.asarray(own.rtol), jnp.asarray(own.atol)
        explicit, low_rank = self.explicit.fill_in(field, rtol, atol), self.low_rank.fill_in(field, rtol, atol)
        return dataclasses.replace(own, explicit=explicit, low_rank=low_rank)

    def loosen(self, slack: Float[Array, ""], size: Float[Array, ""]) -> "StiffnessSwitching":
        """Return the solver with tolerances multiplied by `slack`; more than one says that the field jumps."""
        explicit, low_rank = self.explicit.loosen(slack, size), self.low_rank.loosen(slack, size)
        own = super().loosen(slack, size)
        return dataclasses.replace(own, explicit=explicit, low_rank=low_rank, jumps=slack > 1)

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return the state before the first step, an explicit one."""
        return self._beginning(y0, self.explicit.init(terms, t0, t1, y0, args))

    def blank(self, y0: PyTree) -> _State:
        """Return the state before anything is measured."""
        return self._beginning(y0, self.explicit.blank(y0))

    def _beginning(self, y0: PyTree, explicit: Any) -> _State:
        low_rank = self.low_rank.beginning(y0, explicit.measured)
        zero = jnp.zeros((), jax.tree.leaves(y0)[0].dtype)
        paces = Pace.unknown(zero), Pace.unknown(zero)
        return _State(explicit, low_rank, jnp.array(False), jnp.array(0), paces, zero, jnp.ones_like(zero))

    def regime(self, solver_state: _State) -> Bool[Array, ""]:
        """Tell whether the next step is a low-rank one."""
        return solver_state.stiff

    def within(self, regime: bool | None) -> "StiffnessSwitching":
        """Return the solver for steps in one `regime` alone; `None` for both."""
        return dataclasses.replace(self, only=regime)

    def work(self, solver_state: _State) -> Work:
        """Return the work of all steps so far."""
        return self.explicit.work(solver_state.explicit) + self.low_rank.work(solver_state.low_rank)

    def steady_order(self, solver_state: _State) -> Bool[Array, ""]:
        """Tell whether the next step is explicit, and its error falls by its order."""
        return ~solver_state.stiff & self.explicit.steady_order(solver_state.explicit)

    def after_rejection(self, before: _State, after: _State) -> _State:
        """Return what has been learned, at the point from where the step went."""
        explicit = self.explicit.after_rejection(before.explicit, after.explicit)
        low_rank = self.low_rank.after_rejection(before.low_rank, after.low_rank)
        return dataclasses.replace(after, explicit=explicit, low_rank=low_rank)

    def measured(self, solver_state: _State) -> Measured:
        """Return f and the objective where the solver is."""
        return solver_state.explicit.measured

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step with the solver whose turn it is, and choose that of the next."""
        state = solver_state

        def explicitly() -> tuple:
            y1, proposal, _, after, _ = self.explicit.step(terms, t0, t1, y0, args, state.explicit, made_jump)
            return y1, proposal, after, self.low_rank.taken_to(after.measured, state.low_rank)

        def implicitly() -> tuple:
            y1, proposal, _, after, _ = self.low_rank.step(terms, t0, t1, y0, args, state.low_rank, made_jump)
            return y1, proposal, self.explicit.taken_to(after.measured, state.explicit), after

        if self.only is None:
            y1, proposal, explicit, low_rank = jax.lax.cond(state.stiff, implicitly, explicitly)
        else:
            y1, proposal, explicit, low_rank = implicitly() if self.only else explicitly()
        after = dataclasses.replace(state, explicit=explicit, low_rank=low_rank)
        after = self._choose(t1 - t0, proposal, state, after)
        slopes = {"k0": state.explicit.measured.slope, "k1": explicit.measured.slope}
        dense = {"y0": y0, "y1": y1, **{name: vectors.scaled(t1 - t0, slope) for name, slope in slopes.items()}}
        return y1, proposal, dense, after, diffrax.RESULTS.successful

    def _choose(self, h: Array, proposal: Proposal, before: _State, after: _State) -> _State:
        """Return the state after a step of length `h`, with the choice for the next one."""
        kept, spent = proposal.size <= 1, (self.work(after) - self.work(before)).gradients.astype(h.dtype)
        covered, priced = jnp.where(kept, h, 0), spent + self.low_rank.overhead
        explicit, low_rank = before.paces
        explicit = vectors.where(before.stiff, explicit, explicit.after(covered, spent))
        low_rank = vectors.where(before.stiff, low_rank.after(covered, priced), Pace.unknown(h))
        age = jnp.where(before.stiff, before.age + 1, 0)
        beyond = after.explicit.kind > 0
        stabilized = jnp.where(before.stiff, 0, before.stabilized + jnp.where(beyond, spent, 0))
        price = self.low_rank.overhead + self.rows
        due = kept & beyond & (stabilized > self.tried_after * price * before.reluctance)
        stages = jnp.sqrt(h * after.low_rank.curvature / self.reach_per_squared_stage)
        # Where steps grow, the one that comes next counts.
        ahead = Pace(h * proposal.factor, priced)
        slow = low_rank.slower_than(explicit) & ahead.slower_than(explicit)
        cheap = jnp.maximum(stages, self.fewest_stages) < self.back * price
        slow = slow | (cheap & (age >= self.remembered * before.reluctance))
        stiff = jnp.where(before.stiff, ~((age >= self.on_trial) & slow), due) & ~jnp.asarray(self.jumps)
        reluctance = jnp.where(before.stiff & ~stiff, 2, 1) * before.reluctance
        return _State(after.explicit, after.low_rank, stiff, age, (explicit, low_rank), stabilized, reluctance)
