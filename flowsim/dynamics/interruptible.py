"""Long compiled loops, cut into calls short enough that an interrupt from the keyboard is heard between them."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Int, PyTree

from .stopping import Outcome

_SECONDS_PER_CALL = 0.5


class HasCode(Protocol):
    """A state that knows the `Outcome` of its run, as a number."""

    @property
    def code(self) -> Array:
        """The number of the outcome."""
        ...


State = TypeVar("State", bound="HasCode")


def advance_to_end(
    advance: Callable[[PyTree, State, Int[Array, ""]], State], run: PyTree, state: State, *, first: int
) -> State:
    """Call `advance(run, state, amount) -> state` until `state.code` says that the run has ended.

    `amount` begins with `first` and adapts so that one call takes about half a second. Under a
    transformation of JAX it is one call without limit.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((run, state))):
        return advance(run, state, jnp.array(jnp.iinfo(jnp.int32).max))
    amount = first
    while int(state.code) == Outcome.RUNNING:
        began = time.monotonic()
        state = jax.block_until_ready(advance(run, state, jnp.asarray(amount)))
        seconds = max(time.monotonic() - began, 1e-3)
        amount = max(1, int(amount * min(4.0, _SECONDS_PER_CALL / seconds)))
    return state
