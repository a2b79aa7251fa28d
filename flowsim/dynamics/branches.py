"""Branches of a descent: from any record of a run that kept its states, another descent goes on."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike, Bool, Int, PyTree

from ..formatting import encodable
from ..problems import Problem
from .descent import Descent
from .dynamics import Clock
from .outcome import Outcome
from .stopping import Stopping


class Origin(eqx.Module):
    """From where on time is that of a constant learning rate: the time and the steps then."""

    clock: Clock
    steps: Int[ArrayLike, ""]


class KeptStates(eqx.Module):
    """The states of a descent at its records, `along` them, and what they are states of: a run from a `start`."""

    along: PyTree
    start: PyTree
    dynamics: Any
    origin: Origin | None
    problem: Problem
    stopping: Stopping


class BranchPoint(eqx.Module):
    """Where a descent was at one of its records, from which another goes on: `descend(..., after=run.branch(400))`."""

    state: PyTree
    """That of the run without its records."""
    run: KeptStates
    """What it is a state of."""

    @property
    def dynamics(self) -> Descent:
        """The descent that led here."""
        return self.run.dynamics

    @property
    def step(self) -> int:
        """The number of steps that led here."""
        return int(self.state.steps)

    @property
    def time(self) -> float:
        """The time here."""
        return float(self.state.clock.time)

    @property
    def weights(self) -> PyTree:
        """The weights here, as a network without anything that is not trained."""
        return self.dynamics.weights(self.state.dynamics)

    def __repr__(self) -> str:
        rate = float(np.asarray(self.dynamics.rate_of_descent()))
        name = self.dynamics.kind()
        return encodable(f"BranchPoint({name}, η = {rate:.3g}, step {self.step}, t = {self.time:.4g})")

    def begin(self, dynamics: Descent, problem: Problem, stopping: Stopping) -> "Begin":
        """Return how a descent begins here, which may be another.

        One of the same kind takes the memory over, and where nothing else differs that the state tells of, as the
        problem and the minibatches, everything. Time goes on: at the learning rate of before it is the time that the
        whole run would have had, bit for bit. Where nothing at all differs, a run that came to its end has ended here.
        """
        remembered = self.state.dynamics.memory
        expected = jax.eval_shape(dynamics.at(self.state.clock.time).remember, self.weights)
        keeps = type(dynamics) is type(self.dynamics) and _shapes(expected) == _shapes(remembered)
        own = dynamics.minibatches(), problem, stopping
        whole = keeps and _equal(own, (self.dynamics.minibatches(), self.run.problem, self.run.stopping))
        steady = not dynamics.is_scheduled() and not self.dynamics.is_scheduled()
        same_pace = steady and _equal(dynamics.time_of_step(), self.dynamics.time_of_step())
        here = Origin(self.state.clock, self.state.steps)
        origin = self.run.origin if same_pace else None if dynamics.is_scheduled() else here
        unchanged = whole and _equal(dynamics, self.dynamics)
        # Limits are those of one call: the next has its own.
        ended = unchanged and not Outcome(int(self.state.code)).ran_out
        code = self.state.code if ended else np.full_like(self.state.code, Outcome.RUNNING)
        question = self.state.question if unchanged else np.zeros_like(self.state.question)
        return Begin(self.state, origin, code, question, memory=keeps, whole=whole)


class Begin(eqx.Module):
    """The `state` from which a run goes on: with its `memory` or without, or as a `whole`.

    `origin` is from where on time is counted, `None` for the beginning of the run. `code` and `question` are those of a
    whole: RUNNING, and no question, unless nothing differs from a run that came to its end here.
    """

    state: Any
    origin: Origin | None
    code: Int[ArrayLike, ""]
    question: Bool[ArrayLike, ""]
    memory: bool = eqx.field(static=True)
    whole: bool = eqx.field(static=True)

    def of(self, fresh: Any) -> Any:
        """Return the state that a run of this beginning has in place of a `fresh` one."""
        if self.whole:
            code, question = map(jax.numpy.asarray, (self.code, self.question))
            return eqx.tree_at(
                lambda state: (state.schedule, state.recorded, state.code, state.question),
                self.state,
                (fresh.schedule, fresh.recorded, code, question),
                is_leaf=lambda leaf: leaf is None,
            )
        dynamics = fresh.dynamics
        if self.memory:
            dynamics = eqx.tree_at(
                lambda state: state.memory, dynamics, self.state.dynamics.memory, is_leaf=lambda leaf: leaf is None
            )
        places = (self.state.clock, self.state.steps, dynamics)
        return eqx.tree_at(lambda state: (state.clock, state.steps, state.dynamics), fresh, places)


def _shapes(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two pytrees are the same, number for number, NaN counting as one."""
    (leaves, structure), (others, of_others) = map(jax.tree.flatten, (one, other))
    if structure != of_others:
        return False
    for leaf, its_other in zip(leaves, others, strict=True):
        if eqx.is_array_like(leaf) and eqx.is_array_like(its_other):
            numbers = np.asarray(leaf)
            same = np.array_equal(numbers, np.asarray(its_other), equal_nan=numbers.dtype.kind in "fc")
        else:
            same = leaf is its_other
        if not same:
            return False
    return True
