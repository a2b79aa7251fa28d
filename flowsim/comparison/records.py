"""How many steps descents take that are compared, and when they and the flow beside them are recorded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..dynamics import StepTimes, Trajectory, default_record_steps
from ..networks import split
from .plan import RunSpec


def record_steps(spec: RunSpec, records: int, *, in_a_row: int) -> dict[str, Any]:
    """Return how many steps a descent takes, its `t1` where that decides, and at which steps it is recorded.

    The names are those of `descend`. Among the records is that of the last step up to `t1`. They are padded to a fixed
    number by steps that are never reached, so that descents of several lengths share one program.
    """
    times, count, t1 = spec.step_times, spec.steps, spec.until.t1
    marks = default_record_steps(count, records, in_a_row=in_a_row, evenly=times.length is None)
    last = times.within(t1, count)
    marks = np.union1d(marks, [last]) if last < count else marks
    limit = {"t1": time_limit(times, count)} if spec.until.steps is None and math.isfinite(t1) else {}
    padded = np.append(marks, count + 1 + np.arange(records + 1 - len(marks)))
    return {"steps": count, "record_steps": padded, **limit}


def time_limit(times: StepTimes, steps: int) -> float:
    """Return the `t1` of a descent that reaches its end time in so many steps: halfway through the last of them.

    So rounding, as of the sum of steps in single precision, adds no step, and leaves out none.
    """
    return float(times.after(steps - 0.5))


def common_times(runs: Sequence[Trajectory], records: int) -> np.ndarray:
    """Return the recorded times of all descents, padded by infinity to a fixed number.

    So another comparison with the same settings does not compile again.
    """
    times = np.unique(np.concatenate([np.asarray(run.times) for run in runs]))
    times = times[np.isfinite(times)]  # a descent that diverged at once may have none
    return np.append(times, np.full(len(runs) * (records + 2) - len(times), np.inf))


@dataclass(frozen=True)
class RecordBudget:
    """How often the weights of runs are recorded by default.

    That is `records` times, enough for a smooth curve, or as often as all descents together fit into `memory` bytes;
    the flow, which records at the times of all of them, takes as much again.
    """

    records: int = 250
    memory: int = 2 * 10**9

    def of_runs(self, network: PyTree, rates: int) -> int:
        """Return how often descents with so many learning rates are recorded, twice at least."""
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(split(network)[0]))
        return int(np.clip(self.memory // (max(rates, 1) * max(size, 1)), 2, self.records))

    def affords_path(self, network: PyTree) -> bool:
        """Tell whether a flow alone may keep its weights at every record."""
        return self.of_runs(network, 1) == self.records
