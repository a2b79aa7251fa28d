"""One solver while its steps are cheap, and another where these are held back by what the other does not mind."""

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
    """Both solvers at one point, whether it is the second's turn, and the pace of each.

    `age` counts the attempts of the second since its turn came, and those of the first that were rejected in a row.
    `strained` is what steps of the first that were held back have cost since the last trial, `reluctance` the factor by
    which that is to be more than at first.
    """

    first: Any
    second: Any
    stiff: Bool[Array, ""]
    age: Int[Array, ""]
    paces: tuple[Pace, Pace]
    strained: Float[Array, ""]
    reluctance: Float[Array, ""]


@SOLVERS.register("StiffnessSwitching")
class StiffnessSwitching(ProposingSolver):
    """Steps of `first` while they are cheap; those of `second` where they cover more time at their cost.

    `first` is explicit, and `second` linearly implicit, with a Gauss–Newton matrix or with the whole Hessian: a flow
    that is not stiff never pays for either. Or `first` is implicit with a Gauss–Newton matrix, and `second` with the
    Hessian, for saddles, where what the former leaves out holds its steps back. Where steps of `first` are `strained`,
    as explicit ones are that have to be stabilized, and have cost as much as `tried_after` steps of `second`, that is
    tried: it costs its overhead, what the curvature takes, and some fifteen evaluations of f for each step, however
    stiff the flow, and accuracy alone limits its length. It goes on until its steps are slower than the first ones
    were, where that is asked, or so short that those would be cheap again; each return, or each that comes soon where
    paces are not asked, makes the solver twice as slow to try again. Where the gradient jumps it stays with `first`.

    Memory: that of both solvers. What is left open in them `flowsim.integrate` fills in.
    """

    first: StabilitySwitching | LowRankExtrapolation = StabilitySwitching()
    """The solver that is taken while its steps are cheap."""
    second: LowRankExtrapolation | HessianExtrapolation = LowRankExtrapolation()
    """The one where it covers more time at its cost."""
    rtol: float | Float[Array, ""] | None = None
    """Relative tolerance of a step; filled in by `flowsim.integrate`."""
    atol: float | Float[Array, ""] | None = None
    """Absolute tolerance of a step; filled in by `flowsim.integrate`."""
    jumps: ArrayLike = False
    """Whether the gradient jumps, which `loosen` says: then all steps are those of `first`."""
    only: bool | None = eqx.field(static=True, default=None)
    """With True all steps are those of `second`, with False those of `first`, with `None` those whose turn it is."""
    tried_after: int = eqx.field(static=True, default=5)
    """The second solver is tried when strained steps of the first have cost as much as so many of its steps."""
    on_trial: int = eqx.field(static=True, default=4)
    """Steps that the second solver has to find its order and length."""
    stuck: int = eqx.field(static=True, default=3)
    """Where the pace of the first does not decide, the second is tried after so many rejections in a row, too."""
    paced: bool = eqx.field(static=True, default=True)
    """Whether the pace of the first solver, as it was, decides, too: not where a flow waits and jumps."""
    remembered: int = eqx.field(static=True, default=16)
    """After so many steps of the second solver that pace is forgotten:"""
    back: float = eqx.field(static=True, default=0.5)
    """steps of the first that would cost less than this share of a usual one of the second are then tried once more."""

    interpolation_cls: ClassVar = StabilitySwitching.interpolation_cls

    @property
    def measure(self) -> Callable[[PyTree], Measured] | None:
        """What the first solver measures with."""
        return self.first.measure

    def order(self, terms: Any) -> int:
        """Return that of the first solver, with which a run begins."""
        return self.first.order(terms)

    def memory(self) -> int | None:
        """Return that of both solvers, `None` where nobody knows that of one."""
        first, second = self.first.memory(), self.second.memory()
        return None if first is None or second is None else first + second

    def fill_in(self, field: VectorField, rtol: Float[Array, ""], atol: Float[Array, ""]) -> "StiffnessSwitching":
        """Return the solver for a field, with what it leaves open filled in, in both of its solvers too."""
        own = super().fill_in(field, rtol, atol)
        rtol, atol = jnp.asarray(own.rtol), jnp.asarray(own.atol)
        first, second = self.first.fill_in(field, rtol, atol), self.second.fill_in(field, rtol, atol)
        return dataclasses.replace(own, first=first, second=second)

    def loosen(self, slack: Float[Array, ""], size: Float[Array, ""], noise: Float[Array, ""]) -> "StiffnessSwitching":
        """Return the solver with tolerances multiplied by `slack`; more than one says that the field jumps."""
        first, second = self.first.loosen(slack, size, noise), self.second.loosen(slack, size, noise)
        own = super().loosen(slack, size, noise)
        return dataclasses.replace(own, first=first, second=second, jumps=slack > 1)

    def init(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any) -> _State:
        """Return the state before the first step, one of the first solver."""
        return self._beginning(y0, self.first.init(terms, t0, t1, y0, args))

    def blank(self, y0: PyTree) -> _State:
        """Return the state before anything is measured."""
        return self._beginning(y0, self.first.blank(y0))

    def _beginning(self, y0: PyTree, first: Any) -> _State:
        second = self.second.beginning(y0, first.measured)
        zero = jnp.zeros((), jax.tree.leaves(y0)[0].dtype)
        paces = Pace.unknown(zero), Pace.unknown(zero)
        return _State(first, second, jnp.array(False), jnp.array(0), paces, zero, jnp.ones_like(zero))

    def regime(self, solver_state: _State) -> Bool[Array, ""]:
        """Tell whether the next step is one of the second solver."""
        return solver_state.stiff

    def within(self, regime: bool | None) -> "StiffnessSwitching":
        """Return the solver for steps in one `regime` alone; `None` for both."""
        return dataclasses.replace(self, only=regime)

    def work(self, solver_state: _State) -> Work:
        """Return the work of all steps so far."""
        return self.first.work(solver_state.first) + self.second.work(solver_state.second)

    def steady_order(self, solver_state: _State) -> Bool[Array, ""]:
        """Tell whether the next step is one of the first solver, and its error falls by its order."""
        return ~solver_state.stiff & self.first.steady_order(solver_state.first)

    def after_rejection(self, before: _State, after: _State) -> _State:
        """Return what has been learned, at the point from where the step went."""
        first = self.first.after_rejection(before.first, after.first)
        second = self.second.after_rejection(before.second, after.second)
        return dataclasses.replace(after, first=first, second=second)

    def measured(self, solver_state: _State) -> Measured:
        """Return f and the objective where the solver is."""
        return solver_state.first.measured

    def step(self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: _State, made_jump: Any) -> tuple:
        """Take one step with the solver whose turn it is, and choose that of the next."""
        state = solver_state

        def by_first() -> tuple:
            y1, proposal, _, after, _ = self.first.step(terms, t0, t1, y0, args, state.first, made_jump)
            return y1, proposal, after, self.second.taken_to(after.measured, state.second)

        def by_second() -> tuple:
            y1, proposal, _, after, _ = self.second.step(terms, t0, t1, y0, args, state.second, made_jump)
            return y1, proposal, self.first.taken_to(after.measured, state.first), after

        if self.only is None:
            y1, proposal, first, second = jax.lax.cond(state.stiff, by_second, by_first)
        else:
            y1, proposal, first, second = by_second() if self.only else by_first()
        after = dataclasses.replace(state, first=first, second=second)
        after = self._choose(t1 - t0, proposal, self.first.is_strained(first, proposal, y0, y1), state, after)
        slopes = {"k0": state.first.measured.slope, "k1": first.measured.slope}
        dense = {"y0": y0, "y1": y1, **{name: vectors.scaled(t1 - t0, slope) for name, slope in slopes.items()}}
        return y1, proposal, dense, after, diffrax.RESULTS.successful

    def _choose(self, h: Array, proposal: Proposal, strained: Bool[Array, ""], before: _State, after: _State) -> _State:
        """Return the state after a step of length `h`, with the choice for the next one."""
        kept, spent = proposal.size <= 1, self.work(after) - self.work(before)
        covered, price = jnp.where(kept, h, 0), self.second.price(spent).astype(h.dtype)
        spent = self.first.price(spent).astype(h.dtype)
        first, second = before.paces
        first = vectors.where(before.stiff, first, first.after(covered, spent))
        second = vectors.where(before.stiff, second.after(covered, price), Pace.unknown(h))
        age = jnp.where(before.stiff | ~kept, before.age + 1, 0)
        cost = jnp.where(before.stiff, 0, before.strained + jnp.where(strained, spent, 0))
        usual = self.second.usual_price(vectors.size_of(after.first.measured.slope))
        due = kept & strained & (cost > self.tried_after * usual * before.reluctance)
        if not self.paced:
            due |= ~kept & strained & (age >= self.stuck)
        cheap = self.first.price_over(h * after.second.curvature) < self.back * usual
        if self.paced:
            # Where steps grow, the one that comes next counts.
            ahead = Pace(h * proposal.factor, price)
            slow = second.slower_than(first) & ahead.slower_than(first)
            leaves = slow | (cheap & (age >= self.remembered * before.reluctance))
        else:
            leaves = cheap
        leaves = before.stiff & leaves & (age >= self.on_trial)
        stiff = jnp.where(before.stiff, ~leaves, due) & ~jnp.asarray(self.jumps)
        in_vain = before.stiff & ~stiff & (self.paced | (age < 2 * self.on_trial))
        reluctance = jnp.where(in_vain, 2, 1) * before.reluctance
        age = jnp.where(stiff == before.stiff, age, 0)
        return _State(after.first, after.second, stiff, age, (first, second), cost, reluctance)
