"""What a run keeps in memory, before it is begun."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ..networks import split
from ..solvers.solver import memory_of
from .ahead import RECORDS_ALONE, Ahead

# Copies of the weights, in the highest precision there is, that the look at second derivatives takes beyond so many:
# 41 and the weights themselves, as XLA plans its program.
_SECOND_DERIVATIVES, _FEW = 42, 256
_PROCESS = 7e8  # bytes, the compiler at work included


@dataclass(frozen=True)
class Kept:
    """What is kept in memory, in words, and about how many bytes; `None` where nobody knows."""

    what: str
    bytes: float | None


def memory_ahead(ahead: Ahead) -> Iterator[Kept]:
    """Yield what a run keeps in memory; in a sweep, each process keeps as much."""
    copy = sum(leaf.nbytes for leaf in jax.tree.leaves(split(ahead.network)[0]))
    yield Kept("Python, JAX and its compiler", _PROCESS)
    data = sum(leaf.nbytes for leaf in jax.tree.leaves(ahead.problem) if isinstance(leaf, jax.Array))
    yield Kept("the data", float(data))
    if ahead.compares:
        records = 2 * len(ahead.steps) * ahead.records or RECORDS_ALONE
        yield Kept(f"{records} copies of the weights, by records", float(records * copy))
    if ahead.scenario.sweep is None or ahead.scenario.sweep.flow:
        yield from _memory_of_flow(ahead, copy)
    needed, chunk = ahead.problem.pass_bytes(ahead.network), ahead.problem.samples_at_once(ahead.network)
    if needed is not None:
        part = 1.0 if chunk is None else min(1.0, chunk / ahead.samples)
        at_once = "" if chunk is None else f", {chunk} at a time"
        yield Kept(f"a pass over the samples{at_once}", needed * part)


def _memory_of_flow(ahead: Ahead, copy: int) -> Iterator[Kept]:
    solver = ahead.solver
    copies = memory_of(solver, ahead.weights)
    wider = jnp.result_type(float).itemsize * ahead.weights // copy
    second = _SECOND_DERIVATIVES * wider if ahead.weights > _FEW else 0
    if copies is None:
        yield Kept(f"the solver of the flow, {type(solver).__name__}", None)
        return
    # The look at second derivatives comes after the steps, in a program of its own.
    most = max(copies, second)
    yield Kept(f"{most} copies, by the flow's {type(solver).__name__} or its verdict", float(most * copy))
