"""Long compiled loops, cut into calls short enough that an interrupt from the keyboard is heard between them."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Int, PyTree

from ..problems import Problem
from .checkpoint import Checkpoint
from .outcome import ASKS, Outcome

_SECONDS_PER_CALL = 0.5
_MOST_STEPS_PER_CALL = np.iinfo(np.int32).max
_SECONDS_PER_GRADIENT = 2e-6
_SECONDS_PER_WEIGHT_AND_ROW = 2e-9


class HasCode(Protocol):
    """A state that knows the `Outcome` of its run, as a number."""

    @property
    def code(self) -> Array:
        """The number of the outcome."""
        ...


State = TypeVar("State", bound="HasCode")


def advance_to_end(
    state: State,
    advance: Callable[[PyTree, State, Int[ArrayLike, ""]], State],
    settle: Callable[[PyTree, State], State],
    request: PyTree,
    *,
    first: int,
    checkpoint: Checkpoint | None = None,
    told: Callable[[State], None] | None = None,
) -> State:
    """Call `advance(request, state, amount)`, first with `state`, until `state.code` says that the run ended.

    A state whose code is ASKS is given to `settle`, which answers. `amount` is `first` at first, and adapts so that one
    call takes about half a second. With a `checkpoint`, the run begins with the state in it, if there is one. `told`
    hears of the state that the run begins with, and of every one between two calls.
    """
    amount, state = first, _begun(state, advance, request, checkpoint, told)
    while int(state.code) <= Outcome.RUNNING:
        began = time.monotonic()
        state = jax.block_until_ready(advance(request, state, np.asarray(amount)))
        seconds = max(time.monotonic() - began, 1e-3)
        amount = min(max(1, int(amount * min(4.0, _SECONDS_PER_CALL / seconds))), _MOST_STEPS_PER_CALL)
        state = settle(request, state) if int(state.code) == ASKS else state
        if told is not None:
            told(state)
        if checkpoint is not None:
            checkpoint.save_if_due(state, ended=int(state.code) > Outcome.RUNNING)
    return state


def _begun(
    state: State,
    advance: Callable[[PyTree, State, Int[ArrayLike, ""]], State],
    request: PyTree,
    checkpoint: Checkpoint | None,
    told: Callable[[State], None] | None,
) -> State:
    """Return the state that a run begins with: that of the checkpoint, or the start where anybody is told of it."""
    if checkpoint is not None:
        state = checkpoint.load(lambda: advance(request, state, np.asarray(0)))
    elif told is not None:
        state = advance(request, state, np.asarray(0))
    if told is not None:
        told(state)
    return state


def steps_per_second(weights: PyTree, problem: Problem, *, gradients: int) -> int:
    """Return roughly how many steps of so many `gradients` a core takes in a second, one at least.

    The first call makes so many: short enough to hear an interrupt, and long enough for most runs to need no other.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(weights))
    shapes = [leaf.shape for leaf in jax.tree.leaves(problem) if isinstance(leaf, jax.Array)]
    rows = max((shape[0] for shape in shapes if shape), default=1)
    return max(1, int(1 / (gradients * (_SECONDS_PER_GRADIENT + _SECONDS_PER_WEIGHT_AND_ROW * size * rows))))
