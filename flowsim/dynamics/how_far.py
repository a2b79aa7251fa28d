"""How far a run is, by what its state holds wherever the compiled loop comes back to Python."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from jaxtyping import Array

from ..formatting import Progress, ProgressCallback, check_progress, report_progress
from ..runtime.compiling import is_traced
from .descent import words
from .driver import Request, RunState, drive
from .outcome import Outcome

# What a run that has not ended has done of its way at most: one criterion may be met, and another not yet.
_ALMOST = 0.99


class HowFar(Protocol):
    """What tells how far a run is that was asked for."""

    def begun(self) -> Progress:
        """Return what is heard before the first step, and before anything is compiled."""
        ...

    def reached(self, state: RunState) -> Progress:
        """Return what is heard of a state, which is the start at first."""
        ...


def drive_heard(
    request: Request, progress: bool | ProgressCallback, how_far: Callable[[Request], HowFar], **checkpoint: Any
) -> RunState:
    """Run to the end as `drive` does, while `progress` hears how far it is.

    Under a transformation of JAX nobody hears: what runs then does not come back to Python on its way. Raises
    `TypeError` for what cannot hear, and as `drive` does.
    """
    check_progress(progress)
    with report_progress(False if is_traced(request) else progress) as report:
        if report.callback is None:
            return drive(request, **checkpoint)
        measure = how_far(request)
        latest = measure.begun()
        report(latest)

        def told(state: RunState) -> None:
            nonlocal latest
            before, latest = latest, measure.reached(state)
            if (latest.done, latest.total) != (before.done, before.total):
                report(latest)

        return drive(request, **checkpoint, told=told)


class StepsTaken:
    """How far a descent is: steps of those that it may take. It may end earlier, and says so then."""

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


class WayGone:
    """How far a flow is: by that criterion among those that may end it which is nearest.

    A limit of time counts in time, one of steps in steps. What has to fall to nearly nothing (‖∇R‖, or what else the
    dynamics has come to rest by; the risk, the excess risk) counts in decades, those that it fell of those that it has
    to fall, from the highest that was seen. So on a plateau nothing seems to happen, where nothing does. It never goes
    back, and is complete only where the run has ended.
    """

    def __init__(self, request: Request):
        self._stage, self._stopping = _named(request), request.stopping
        self._t1, self._most = float(np.asarray(request.t1)), int(np.asarray(request.max_steps))
        self._highest: dict[str, float] = {}
        self._furthest = 0.0

    def begun(self) -> Progress:
        """Return that nothing is done yet."""
        return Progress(self._stage, 0.0, 1.0)

    def reached(self, state: RunState) -> Progress:
        """Return the part of the way that is gone."""
        self._furthest = max(self._furthest, *self._parts(state))
        return Progress(self._stage, 1.0 if _ended(state) else min(self._furthest, _ALMOST), 1.0)

    def _parts(self, state: RunState) -> list[float]:
        attempts = int(state.steps) + int(state.rejected_steps)
        parts = [attempts / max(self._most, 1)]
        if 0 < self._t1 < math.inf:
            parts.append(float(state.clock.time) / self._t1)
        if self._stopping.gradient_norm is not None:
            parts.append(self._fallen("unrest", float(state.unrest), float(state.watch.bound)))
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
