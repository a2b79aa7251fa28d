"""Runs as they are stored: the records of each without their padding, and what is known of its end."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ..dynamics import Outcome
from .runs import RUN, Run, runs_of
from .schema import BOUNDS, CRITICAL

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class RecordedRun:
    """One run of a data set of trajectories; `part` is what the data set holds of it."""

    run: Run
    part: "xarray.Dataset"

    def along(self, quantity: str) -> Float[np.ndarray, "records ..."]:
        """Return `quantity` at the records of the run, NaN where it was not recorded."""
        count = int(self.part["records"].item())
        return self.part[quantity].values[:count] if quantity in self.part else np.full(count, np.nan)

    def number(self, quantity: str) -> float:
        """Return a quantity of the whole run, NaN where it does not apply."""
        return float(self.part[quantity].item()) if quantity in self.part else math.nan

    @property
    def last_common(self) -> tuple[float, float]:
        """The last time that this run and the flow reached, and their distance there."""
        return self.number("distance_time"), self.number("distance_to_flow")

    @property
    def below_infimum(self) -> float:
        """By how much the risk went below the infimum that was given, which is then too high; zero up to rounding."""
        excess, risk = self.along("excess_risk"), self.along("risk")
        rounding = 64 * np.finfo(risk.dtype).eps * np.max(np.abs(risk[np.isfinite(risk)]), initial=0.0)
        least = np.min(excess[np.isfinite(excess)], initial=0.0)
        return float(-least) if least < -rounding else 0.0

    @property
    def rise(self) -> float:
        """The last risk over the first, where the steps or the time ran out; NaN where the run ended of itself."""
        first, last = self.along("risk")[[0, -1]]
        ran_out = self.outcome in (Outcome.STEP_LIMIT, Outcome.TIME_LIMIT)
        return float(last / first) if ran_out and first > 0 else math.nan

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        return Outcome(int(self.part["outcome"].item()))

    @property
    def steps(self) -> int:
        """The number of steps made."""
        return int(self.part["steps"].item())

    @property
    def end_time(self) -> float:
        """The time at the end."""
        return self.number("end_time")


@dataclass(frozen=True)
class Recorded:
    """A data set of trajectories: the runs, the gradient flow first, and what theory says of the end.

    A run that stands alone may be another than the gradient flow: `leading` is the flow where there is one, and else
    that run, and `others` are all but the flow, as they were asked for.
    """

    runs: tuple[RecordedRun, ...]
    bounds: tuple[float, float] | None
    critical_learning_rate: float | None

    @property
    def has_flow(self) -> bool:
        """Whether the gradient flow is among the runs."""
        return self.leading.run.is_flow

    @property
    def leading(self) -> RecordedRun:
        """The gradient flow, or the first run where there is none."""
        return self.runs[0]

    @property
    def flow(self) -> RecordedRun:
        """The gradient flow. Raises `ValueError` where there is none."""
        if not self.has_flow:
            there = ", ".join(run.run.name for run in self.runs)
            raise ValueError(f"no gradient flow among the runs: there are {there}")
        return self.leading

    @property
    def others(self) -> tuple[RecordedRun, ...]:
        """All runs but the gradient flow."""
        return self.runs[1:] if self.has_flow else self.runs

    @property
    def ordered(self) -> list[RecordedRun]:
        """All runs, the flow first and the others as `by_rate` has them."""
        return [*([self.flow] if self.has_flow else []), *self.by_rate]

    @property
    def plain(self) -> bool:
        """Whether all other runs leave a minimum at the sharpness 2/η, as gradient descent does."""
        return all(other.run.has_edge_of_descent for other in self.others)

    @property
    def by_rate(self) -> list[RecordedRun]:
        """The other runs, those of one dynamics together, from the smallest learning rate to the largest."""
        order = list(dict.fromkeys(other.run.dynamics for other in self.others))
        return sorted(self.others, key=lambda other: (order.index(other.run.dynamics), other.run.learning_rate or 0.0))


def read_runs(dataset: "xarray.Dataset") -> Recorded:
    """Return what a data set of trajectories holds, as `Comparison.to_dataset` and `Trajectory.to_dataset` make it."""
    runs = [RecordedRun(run, dataset.isel({RUN: place})) for place, run in enumerate(runs_of(dataset))]
    lower, upper = (dataset.attrs.get(name) for name in BOUNDS)
    critical = dataset.attrs.get(CRITICAL)
    return Recorded(
        runs=tuple(sorted(runs, key=lambda run: not run.run.is_flow)),
        bounds=None if lower is None or upper is None else (float(lower), float(upper)),
        critical_learning_rate=None if critical is None else float(critical),
    )
