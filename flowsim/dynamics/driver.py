"""A run in Python: calls of the compiled loop, between which it can be interrupted, saved and followed."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np

from ..curvature.finiteness import check_gradient
from ..formatting import Progress, ProgressCallback, check_progress, report_progress
from ..networks.weights import weight_count
from ..runtime.compiling import compiled, few_blas_threads, in_full_precision, is_traced, knows_lapack, on_compilation
from . import loop
from .checkpoint import Checkpoint
from .descent import words
from .loop import Request, RunState
from .outcome import Outcome

start_state = compiled(loop.start_state, few_calls=True)
advance = compiled(loop.advance, donate="all-except-first", sized_by=[0])


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

    def first(self, size: int, rows: int, *, gradients: int) -> int:
        """Return the steps of the first call, one at least, where a step takes so many `gradients`.

        Of a network of so many weights, its `size`, on data of so many `rows`.
        """
        return max(
            1, int(1 / (gradients * (self.seconds_per_gradient + self.seconds_per_weight_and_row * size * rows)))
        )

    def next(self, steps: int, seconds: float) -> int:
        """Return the steps of the next call after one of so many `steps`, which took so many `seconds`."""
        factor = min(self.largest_growth, self.seconds / max(seconds, 1e-3))
        return min(max(1, int(steps * factor)), int(np.iinfo(np.int32).max))


def drive(
    request: Request,
    *,
    progress: bool | ProgressCallback | None,
    measure: "Callable[[Request], DescentProgress | FlowProgress]",
    checkpoint: str | os.PathLike | None,
    checkpoint_seconds: float,
) -> RunState:
    """Run to the end.

    With a `checkpoint`, a path, the state is kept in that file, and the run goes on from it where the file exists.
    `progress` is called with the progress that `measure` computes: before anything is compiled, at the start, and after
    each call of the compiled loop, about every half a second, and when JAX begins to compile a program; not under a
    transformation of JAX, which never returns to Python. Raises `ValueError` for a checkpoint under a transformation of
    JAX, `TypeError` for an invalid `progress`, and what the problem raises for a network that it cannot start from.
    Raises `NotFiniteError`, a `ValueError`, for a risk or a gradient that is NaN or infinite at the start.
    """
    traced = is_traced(request)
    if not traced or not is_traced((request.network, request.problem)):
        request.problem.check_start(request.network)
        request.dynamics.check_start(request.network, request.problem)
    check_progress(progress)
    if traced:
        if checkpoint is not None:
            raise ValueError(
                "a checkpoint is a file of one run: call integrate or descend outside jit and vmap to keep one"
            )
        with in_full_precision():
            return loop.run_to_end(request)
    calls = CallLength()
    latest: Progress | None = None

    def tell_of_compilation() -> None:
        nonlocal latest
        if latest is not None and not latest.compiling:
            latest = latest.while_compiling()
            callback(latest)

    with report_progress(progress) as callback, on_compilation(tell_of_compilation):
        measured = None if callback.callback is None else measure(request)

        def report(state: RunState | None) -> None:
            nonlocal latest
            if measured is not None:
                before, latest = latest, measured(state)
                if before is None or before.compiling or (latest.done, latest.total) != (before.done, before.total):
                    callback(latest)

        report(None)
        size = weight_count(request.network)
        shapes = [leaf.shape for leaf in jax.tree.leaves(request.problem) if isinstance(leaf, jax.Array)]
        rows = max((shape[0] for shape in shapes if shape), default=0)
        steps = calls.first(size, max(rows, 1), gradients=request.dynamics.gradients_per_step)
        kept = None if checkpoint is None else Checkpoint(checkpoint, request, checkpoint_seconds)
        state = start_state(request)

        def ready(state: RunState, *, first: bool = False) -> RunState:
            """Return the state for the program of the steps that come next."""
            its_own = request.dynamics.for_its_regime(state.dynamics)
            turned = its_own is not state.dynamics
            state = replace(state, dynamics=its_own) if turned else state
            # The first call of a program loads LAPACK, if it needs it, and only what is loaded has its threads limited.
            # Which programs have been called is known by the hashes of structures, which keep no functions.
            loads = turned and not knows_lapack()
            if first and not knows_lapack():
                program = hash(jax.tree.structure((request, state)))
                loads = program not in _CALLED
                _CALLED.add(program)
            # A branch from where its run had ended makes a record, but no step.
            unrecorded = _has_ended(state) and not bool(state.recorded)
            begins = first and (unrecorded or measured is not None)
            return advance(request, state, np.asarray(0)) if loads or begins else state

        if kept is not None:
            state = kept.load(lambda: state)
        state = ready(state, first=True)
        _check_begun(request, state)
        report(state)
        # Matrices of curvature have a row for each weight, or for each sample where these are fewer.
        one_thread = partial(few_blas_threads, min(size, rows or size))
        running = not _has_ended(state)
        while running:
            began, before = time.monotonic(), int(state.steps) + int(state.rejected_steps)
            with one_thread(lapack=False):
                state = advance(request, state, np.asarray(steps))
                question = bool(state.question)  # which waits for the program to end
            _check_begun(request, state)
            # A call may have ended early, where steps of another kind came next.
            steps = calls.next(int(state.steps) + int(state.rejected_steps) - before, time.monotonic() - began)
            if question:
                with one_thread():
                    state = jax.block_until_ready(loop.check_limit(request, state))
            report(state)
            running = not _has_ended(state)
            if kept is not None:
                kept.save_if_due(state, ended=not running)
            state = ready(state) if running else state
        return state


def _check_begun(request: Request, state: RunState) -> None:
    """Raise `NotFiniteError` for a run that diverged before its first step, as its gradient is not finite there.

    The first attempt of a run has measured risk and gradient, so that a run which goes on pays nothing for it.
    """
    if int(state.code) == Outcome.DIVERGED and int(state.steps) == 0:
        check_gradient(request.network, request.problem, "at the initial weights")


_CALLED: set[int] = set()


class DescentProgress:
    """The progress of a descent: its steps, of the largest number that it may take, or of its own once it has ended."""

    def __init__(self, request: Request):
        self._stage, self._most = words(type(request.dynamics).__name__), int(np.asarray(request.max_steps))

    def __call__(self, state: RunState | None) -> Progress:
        """Return the progress in a state, `None` before the first step."""
        steps = 0 if state is None else int(state.steps)
        return Progress(self._stage, steps, steps if _has_ended(state) else self._most, "steps")


class FlowProgress:
    """The progress of a flow: that of the criterion nearest to ending it.

    Time counts relative to `t1`, steps relative to `max_steps`. The stationarity measure, the risk and the excess risk
    count in decades, from the largest value so far to the tolerance: so a plateau shows as one. Progress never
    decreases, and until the run has ended it is at most `almost`, as one criterion may hold and another not yet.
    """

    def __init__(self, request: Request, almost: float = 0.99):
        self.almost = almost
        self._stage, self._stopping = words(type(request.dynamics).__name__), request.stopping
        self._t1, self._most = float(np.asarray(request.t1)), int(np.asarray(request.max_steps))
        self._highest: dict[str, float] = {}
        self._furthest = 0.0

    def __call__(self, state: RunState | None) -> Progress:
        """Return the progress in a state, `None` before the first step."""
        if state is None:
            return Progress(self._stage, min(self._furthest, self.almost), 1.0)
        parts = [self._furthest, (int(state.steps) + int(state.rejected_steps)) / max(self._most, 1)]
        if 0 < self._t1 < math.inf:
            parts.append(float(state.clock.time) / self._t1)
        if self._stopping.gradient_norm is not None:
            parts.append(self._fallen("stationarity", float(state.stationarity), float(state.watch.bound)))
        for name in ("risk", "excess_risk"):
            bound = getattr(self._stopping, name)
            if bound is not None and (count := int(state.schedule.records.count)) > 0:
                latest = state.schedule.records.slots["probes"][name][count - 1]
                parts.append(self._fallen(name, float(latest), float(bound)))
        self._furthest = max(parts)
        return Progress(self._stage, 1.0 if _has_ended(state) else min(self._furthest, self.almost), 1.0)

    def _fallen(self, name: str, value: float, bound: float) -> float:
        """Return the share of the decades between the largest value so far and `bound` by which it has fallen."""
        highest = self._highest[name] = max(self._highest.get(name, 0.0), value)
        if not 0 < bound < highest < math.inf:
            return 0.0
        return math.log(highest / max(value, bound)) / math.log(highest / bound)


def _has_ended(state: RunState | None) -> bool:
    return state is not None and int(state.code) != Outcome.RUNNING and not bool(state.question)
