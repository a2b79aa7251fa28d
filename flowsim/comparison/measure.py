"""What is measured along the runs of a plan, after they have ended."""

import abc
from collections.abc import Sequence

from ..dynamics import Trajectory
from ..formatting import ProgressReporter
from .plan import RunSpec

Runs = dict[RunSpec, Trajectory]
"""The runs of a plan, each by its specification."""


class Measure(abc.ABC):
    """Something measured along runs that kept their weights."""

    @abc.abstractmethod
    def of_runs(self, runs: Runs, report: ProgressReporter) -> Runs:
        """Return all of the runs; those that it is measured of have further columns."""


def measure(runs: Runs, measures: Sequence[Measure], report: ProgressReporter) -> Runs:
    """Return runs with everything that is measured of them, one measure after the other."""
    for entry in measures:
        runs = entry.of_runs(runs, report)
    return runs
