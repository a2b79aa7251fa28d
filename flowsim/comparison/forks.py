"""Forks of a comparison: from a step of each descent another one goes on, with another rate, batch or optimizer."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..dynamics import Descent, Trajectory, default_record_steps, descend, times_of_steps
from ..formatting import ProgressReporter
from ..networks import weight_dtype
from ..problems import Problem
from ..results.runs import Run
from ..solvers.field import check_step_count
from .records import time_limit


@dataclass(frozen=True)
class Fork:
    """A descent that goes on from a step of each descent of a comparison.

    A fork of the same kind takes the memory of the run over, with the same batches their order, too: one that changes
    nothing is the run itself, bit for bit. It ends at the time at which the run was to end. Where the run came to rest
    before the step, a fork goes on from its end: one that changes nothing has ended there. Any other takes a step or
    more, and may leave a minimum that is too sharp for it.
    """

    step: int
    """The number of the step from which it goes on."""
    learning_rate: float | None = None
    """Its learning rate; by default that of the run."""
    optimizer: Callable[[float], Any] | None = None
    """What makes its descent of a learning rate; by default that of the comparison."""

    def __post_init__(self):
        check_step_count("step", self.step)


class ForkError(ValueError):
    """A fork where its descent does not get to."""


@dataclass(frozen=True)
class Forked:
    """The run of a fork: its descent and learning rate, and in words what it goes on from, the `branch`."""

    run: Trajectory
    descent: Descent
    learning_rate: float
    branch: str


@dataclass(frozen=True)
class PlannedFork:
    """A fork of one descent, checked: the step from which it goes on, and the descent with its learning rate."""

    step: int
    learning_rate: float
    descent: Descent


def check_forks(forks: object) -> tuple[Fork, ...]:
    """Return the forks of a comparison; `TypeError` for anything but a list of them."""
    if not isinstance(forks, Sequence) or not all(isinstance(fork, Fork) for fork in forks):
        raise TypeError(f"forks must be a list of flowsim.Fork(step=..., learning_rate=...), got {forks!r}")
    return tuple(forks)


def planned_forks(
    forks: Sequence[Fork], descent: Descent, rate: float, steps: int, make: Callable[[Fork, float], Descent]
) -> list[PlannedFork]:
    """Return the forks of a descent with a learning rate and so many `steps`; `make` makes those that change it.

    Raises `ForkError` for one at a step that the descent does not make, and what `make` raises.
    """
    late = [fork.step for fork in forks if fork.step >= steps]
    if late:
        raise ForkError(f"a fork at step {late[0]} of a descent of {steps} steps: expected a step before its last")
    rates = [rate if fork.learning_rate is None else fork.learning_rate for fork in forks]
    controls = [fork.learning_rate is None and fork.optimizer is None for fork in forks]
    return [
        PlannedFork(fork.step, own, descent if control else make(fork, own))
        for fork, own, control in zip(forks, rates, controls, strict=True)
    ]


def run_forks(
    network: PyTree,
    problem: Problem,
    descent: Descent,
    rate: float,
    planned: Sequence[PlannedFork],
    until: float,
    records: int,
    report: ProgressReporter,
    *,
    by_time: bool,
    **options: Any,
) -> Iterator[Forked]:
    """Run the forks of a descent, all of them up to a time, each recorded at about so many steps.

    The descent is run once more up to the last of them: to keep the states of all its records takes several times their
    memory. A fork of one that came to rest before goes on from its end. With `by_time` the time is their `t1`, else
    their steps end there. Raises `ForkError` for one that diverged.
    """
    if not planned:
        return
    marks = sorted({fork.step for fork in planned})
    own = {"steps": marks[-1], "record_steps": np.array(marks), "states": True, "stopping": options["stopping"]}
    run = descend(network, problem, optimizer=descent, **own)
    end = int(run.steps)
    if end < marks[-1] and not run.outcome.stays:
        ended = run.outcome.name.lower().replace("_", " ")
        raise ForkError(f"a fork at step {marks[-1]} of a descent that {ended} at step {end}: expected a step before")
    base = Run(descent.kind(), rate).name
    for fork in planned:
        point, own = run.branch(min(fork.step, end)), fork.descent.checked(weight_dtype(network))
        steps = _steps_between(own, point.time, until)
        marks = point.step + default_record_steps(steps, records, evenly=True)
        padding = point.step + steps + 1 + np.arange(max(0, records + 1 - len(marks)))  # never made: one length for all
        options |= {"record_steps": np.append(marks, padding), "steps": steps}
        options |= {"t1": time_limit(own, steps, begin=point.time)} if by_time else {}
        options["progress"] = report.during(f"fork from step {point.step} of η = {rate:g}")
        further = descend(network, problem, optimizer=fork.descent, after=point, weights=True, **options)
        yield Forked(further, fork.descent, fork.learning_rate, f"step {point.step} of {base}")


def _steps_between(descent: Descent, begin: float, end: float, *, rounding: float = 1e-9) -> int:
    """Return the steps from one time to another; times that are meant to be those of steps are rounded."""
    if descent.is_scheduled():
        return len(times_of_steps(descent, begin=begin, t1=end)) - 1
    return max(1, math.ceil((end - begin) / float(descent.time_of_step()) * (1 - rounding)))
