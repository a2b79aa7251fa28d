"""A run in Python: calls of the compiled loop, between which it can be interrupted, saved and followed."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Array, PyTree

from ..formatting import Progress, ProgressCallback, check_progress, report_progress
from ..networks import split
from ..problems import Problem
from ..runtime.compiling import is_traced
from .checkpoint import Checkpoint
from .descent import words
from .loop import Request, RunState, advance, blank_state, check_limit, to_end
from .outcome import UNDECIDED, Outcome


@dataclass(frozen=True)
class CallLength:
    """How many steps one call of the compiled loop makes: few enough to react to an interrupt from the keyboard.

    The first call is to take about a second, by a rough cost of `seconds_per_gradient` and, for each weight and each
    row of the data, `seconds_per_weight_and_row` (of one core of a laptop), so that most runs need no other. From then
    on a call takes about `seconds`, by the pace of the one before; it grows by `largest_growth` at most.
    """

    seconds: float = 0.5
    seconds_per_gradient: float = 2e-6
    seconds_per_weight_and_row: float = 2e-9
    largest_growth: float = 4.0

    def first(self, weights: PyTree, problem: Problem, *, gradients: int) -> int:
        """Return the steps of the first call, one at least, where a step takes so many `gradients`."""
        size = sum(leaf.size for leaf in jax.tree.leaves(weights))
        shapes = [leaf.shape for leaf in jax.tree.leaves(problem) if isinstance(leaf, jax.Array)]
        rows = max((shape[0] for shape in shapes if shape), default=1)
        return max(
            1, int(1 / (gradients * (self.seconds_per_gradient + self.seconds_per_weight_and_row * size * rows)))
        )

    def next(self, steps: int, seconds: float) -> int:
        """Return the steps of the next call after one of so many `steps`, which took so many `seconds`."""
        factor = min(self.largest_growth, self.seconds / max(seconds, 1e-3))
        return min(max(1, int(steps * factor)), int(np.iinfo(np.int32).max))


class RunProgress(Protocol):
    """What tells how far a requested run is."""

    def begun(self) -> Progress:
        """Return the progress before the first step, and before anything is compiled."""
        ...

    def reached(self, state: RunState) -> Progress:
        """Return the progress in a state, which is the start at first."""
        ...


def drive(
    request: Request,
    *,
    progress: bool | ProgressCallback = False,
    measure: Callable[[Request], RunProgress] | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 60.0,
) -> RunState:
    """Run to the end.

    With a `checkpoint`, a path, the state is kept in that file, and the run goes on from it where the file exists.
    `progress` is called with what `measure` makes of the request at the start and after each call of the compiled loop,
    about every half a second; under a transformation of JAX, which does not come back to Python on its way, it is not.
    Raises `ValueError` for a checkpoint under a transformation of JAX, `TypeError` for a `progress` that is none.
    """
    check_progress(progress)
    if is_traced(request):
        if checkpoint is not None:
            raise ValueError(
                "a checkpoint is a file of one run: call integrate or descend outside jit and vmap to keep one"
            )
        return to_end(request)
    calls = CallLength()
    with report_progress(progress) as callback:
        followed = None if callback.callback is None or measure is None else measure(request)
        latest = None if followed is None else followed.begun()
        if latest is not None:
            callback(latest)

        def report(state: RunState) -> None:
            nonlocal latest
            if followed is not None and latest is not None:
                before, latest = latest, followed.reached(state)
                if (latest.done, latest.total) != (before.done, before.total):
                    callback(latest)

        weights, _ = split(request.network)
        steps = calls.first(weights, request.problem, gradients=request.dynamics.gradients_per_step)
        kept = None if checkpoint is None else Checkpoint(checkpoint, request, checkpoint_seconds)
        state = blank_state(request)
        if kept is not None:
            state = kept.load(lambda: advance(request, state, np.asarray(0)))
        elif followed is not None:
            state = advance(request, state, np.asarray(0))
        report(state)
        while int(state.code) <= Outcome.RUNNING:
            began = time.monotonic()
            state = jax.block_until_ready(advance(request, state, np.asarray(steps)))
            steps = calls.next(steps, time.monotonic() - began)
            state = check_limit(request, state) if int(state.code) == UNDECIDED else state
            report(state)
            if kept is not None:
                kept.save_if_due(state, ended=int(state.code) > Outcome.RUNNING)
        return state


class DescentProgress:
    """The progress of a descent: steps of those that it may take, fewer where it ends early."""

    def __init__(self, request: Request):
        self._stage, self._most = _named(request), int(np.asarray(request.max_steps))

    def begun(self) -> Progress:
        """Return that no step is taken yet."""
        return self._at(0, self._most)

    def reached(self, state: RunState) -> Progress:
        """Return how many steps are taken, of as many where the run has ended."""
        steps = int(state.steps)
        return self._at(steps, steps if _ended(state) else self._most)

    def _at(self, steps: int, most: int) -> Progress:
        return Progress(self._stage, steps, most, "steps")


class FlowProgress:
    """The progress of a flow: that of the nearest of the criteria which may end it.

    A limit of time counts in time, one of steps in steps. The stationarity measure, the risk and the excess risk count
    in decades, those that they fell of those that they have to fall, from the highest seen. So a plateau shows as one.
    Progress never goes back, and is complete only where the run has ended: before that it is `almost` at most, as one
    criterion may be met and another not yet.
    """

    def __init__(self, request: Request, almost: float = 0.99):
        self.almost = almost
        self._stage, self._stopping = _named(request), request.stopping
        self._t1, self._most = float(np.asarray(request.t1)), int(np.asarray(request.max_steps))
        self._highest: dict[str, float] = {}
        self._furthest = 0.0

    def begun(self) -> Progress:
        """Return that nothing is done yet."""
        return Progress(self._stage, 0.0, 1.0)

    def reached(self, state: RunState) -> Progress:
        """Return the progress in a state."""
        self._furthest = max(self._furthest, *self._parts(state))
        return Progress(self._stage, 1.0 if _ended(state) else min(self._furthest, self.almost), 1.0)

    def _parts(self, state: RunState) -> list[float]:
        attempts = int(state.steps) + int(state.rejected_steps)
        parts = [attempts / max(self._most, 1)]
        if 0 < self._t1 < math.inf:
            parts.append(float(state.clock.time) / self._t1)
        if self._stopping.gradient_norm is not None:
            parts.append(self._fallen("stationarity", float(state.stationarity), float(state.watch.bound)))
        for name in ("risk", "excess_risk"):
            bound = getattr(self._stopping, name)
            if bound is not None and (known := _latest(state, name)) is not None:
                parts.append(self._fallen(name, known, float(bound)))
        return parts

    def _fallen(self, name: str, value: float, bound: float) -> float:
        """Return the part of the decades from the highest value that was seen to `bound` which lie behind."""
        highest = self._highest[name] = max(self._highest.get(name, 0.0), value)
        if not 0 < bound < highest < math.inf:
            return 0.0
        return math.log(highest / max(value, bound)) / math.log(highest / bound)


def _named(request: Request) -> str:
    return words(type(request.dynamics).__name__)


def _ended(state: RunState) -> bool:
    return int(state.code) > Outcome.RUNNING


def _latest(state: RunState, name: str) -> float | None:
    """Return what a probe measured at the latest record, `None` where there is none yet."""
    column: Array = state.schedule.records.slots["probes"][name]
    count = int(state.schedule.records.count)
    return float(np.asarray(column)[count - 1]) if count else None
