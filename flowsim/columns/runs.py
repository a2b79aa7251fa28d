"""Runs in columns: which is which along the dimension `run`, its records without padding, and its end."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..dynamics import Descent, Outcome
from ..probes import MovingEdge, PreconditionedSharpness, ScheduledRate
from .columns import Column, Columns, LabelledArrays
from .schema import BOUNDS, BRANCH, CRITICAL, CURVATURE, DYNAMICS, LEARNING_RATE, MODELLED, RUN, SHARPNESS, THRESHOLD

GRADIENT_FLOW, GRADIENT_DESCENT = "gradient_flow", "gradient_descent"
_RATE, _EDGE = ScheduledRate().label.name, MovingEdge().label.name
_ABBREVIATIONS = {GRADIENT_FLOW: "GF", GRADIENT_DESCENT: "GD"}


@dataclass(frozen=True)
class Edge:
    """The `threshold` up to which a run is stable, NaN where it is not known, and the `curvature` that it bounds."""

    threshold: float
    curvature: str = SHARPNESS

    @classmethod
    def of_gradient_descent(cls, learning_rate: float | None) -> "Edge":
        """Return the sharpness 2/η; infinite where there is no learning rate."""
        return cls(math.inf if learning_rate is None else 2 / learning_rate)

    @classmethod
    def of(cls, optimizer: Descent) -> "Edge":
        """Return the edge of stability of a descent, of its preconditioned sharpness if it has a preconditioner."""
        threshold = optimizer.edge_of_stability()
        number = math.nan if threshold is None else float(threshold)
        return cls(number, PreconditionedSharpness().label.name if optimizer.preconditioned else SHARPNESS)


@dataclass(frozen=True)
class Run:
    """A run by its dynamics, under the name that YAML knows it by, and its learning rate, `None` where it has none.

    `index` is the place of its learning rate among the `count` learning rates of the same dynamics. `edge` is its edge
    of stability, by default that of gradient descent, and `models` the dynamics that the run models, if it does. One
    that goes on from a step of another run, the `branch` in words, is the `fork` of this number, counted from one.
    """

    dynamics: str
    learning_rate: float | None = None
    index: int = 0
    count: int = 1
    edge: Edge = None  # pyright: ignore[reportAssignmentType]
    models: str = ""
    branch: str = ""
    fork: int = 0

    def __post_init__(self):
        if self.edge is None:
            object.__setattr__(self, "edge", Edge.of_gradient_descent(self.learning_rate))

    @property
    def is_flow(self) -> bool:
        """Whether this is the gradient flow, to which the other runs are compared."""
        return self.dynamics == GRADIENT_FLOW

    @property
    def is_descent(self) -> bool:
        """Whether this is gradient descent, which in a table and a legend goes by its learning rate alone."""
        return self.dynamics == GRADIENT_DESCENT

    @property
    def method(self) -> str:
        """The dynamics in a word or two: GF, GD, and for `my_module:HeavyBall` HeavyBall."""
        words = self.dynamics.rpartition(":")[2].replace("_", " ")
        name = _ABBREVIATIONS.get(self.dynamics, words)
        return f"{name}, fork {self.fork}" if self.fork else name

    @property
    def name(self) -> str:
        """What tables call it: GF, η = 0.02, or HeavyBall, η = 0.02."""
        return self._named("η = {:.3g}")

    @property
    def label(self) -> str:
        """What legends call it, as `name` in Matplotlib's mathematics."""
        return self._named(r"$\eta = {:.3g}$")

    @property
    def has_edge_of_descent(self) -> bool:
        """Whether its edge of stability is that of gradient descent, the sharpness 2/η."""
        descent = Edge.of_gradient_descent(self.learning_rate)
        # In single precision, 2/η and η are each rounded.
        close = math.isclose(self.edge.threshold, descent.threshold, rel_tol=4 * float(np.finfo(np.float32).eps))
        return close and self.edge.curvature == descent.curvature

    @property
    def threshold(self) -> float:
        """The sharpness at which the run leaves a minimum: 2/η for gradient descent; infinite without a learning rate.

        NaN where it is not known, or decided by another curvature.
        """
        return self.threshold_of(SHARPNESS)

    def threshold_of(self, curvature: str) -> float:
        """Return the threshold of a curvature by its name, NaN where that is not what the edge is of."""
        return self.edge.threshold if self.edge.curvature == curvature else np.nan

    def _named(self, form: str) -> str:
        if self.learning_rate is None:
            return self.method
        rate = form.format(self.learning_rate)
        return rate if self.is_descent and not self.fork else f"{self.method}, {rate}"


FLOW = Run(GRADIENT_FLOW)


def numbered(branches: Iterable[str]) -> list[int]:
    """Return the numbers of forks, counted from one, and zero where there is no branch."""
    known = list(branches)
    return [sum(map(bool, known[: place + 1])) if branch else 0 for place, branch in enumerate(known)]


def run_coordinates(runs: Sequence[Run]) -> dict[str, Column]:
    """Return the coordinates of `runs` along the dimension `run`: dynamics, learning rate (or NaN), edge of stability.

    Nothing where there are no runs.
    """
    if not runs:
        return {}
    rates = [math.nan if run.learning_rate is None else float(run.learning_rate) for run in runs]
    meaning = "curvature up to which a quadratic mode is stable, NaN where it is not known"
    coordinates: dict[str, tuple[list[str] | list[float], str]] = {
        DYNAMICS: ([run.dynamics for run in runs], "dynamics"),
        LEARNING_RATE: (rates, "learning rate η"),
        THRESHOLD: ([run.edge.threshold for run in runs], meaning),
        CURVATURE: ([run.edge.curvature for run in runs], "the curvature that the threshold is of"),
    }
    if any(run.branch for run in runs):
        coordinates[BRANCH] = [run.branch for run in runs], "what a fork goes on from"
    if any(run.models for run in runs):
        coordinates[MODELLED] = [run.models for run in runs], "dynamics that a run models"
    return {
        name: Column((RUN,), np.array(values), {"long_name": long_name, "units": "1"})
        for name, (values, long_name) in coordinates.items()
    }


def runs_of(dataset: LabelledArrays) -> tuple[Run, ...]:
    """Return the runs of columns, or of a data set of xarray, in their order."""
    if RUN not in dataset.sizes:
        return ()
    names = [str(name) for name in dataset[DYNAMICS].values]
    rates = dataset[LEARNING_RATE].values.astype(float)
    ranks = {name: np.sort(rates[[other == name for other in names]]) for name in names}
    branches = [str(branch) for branch in dataset[BRANCH].values] if BRANCH in dataset.coords else [""] * len(names)
    runs, forks = [], numbered(branches)
    for place, (name, number) in enumerate(zip(names, rates, strict=True)):
        rate = None if np.isnan(number) else float(number)
        index = 0 if rate is None else int(np.searchsorted(ranks[name], rate))
        edge = Edge.of_gradient_descent(rate)
        if THRESHOLD in dataset.coords:
            edge = Edge(dataset[THRESHOLD].values[place].item(), str(dataset[CURVATURE].values[place]))
        models = str(dataset[MODELLED].values[place]) if MODELLED in dataset.coords else ""
        runs.append(Run(name, rate, index, len(ranks[name]), edge, models, branches[place], forks[place]))
    return tuple(runs)


def place_of(dataset: LabelledArrays, run: Run) -> int:
    """Return where `run` stands along the dimension `run`. Raises `KeyError` where the data set does not have it."""
    known = [(other.dynamics, other.learning_rate, other.fork) for other in runs_of(dataset)]
    if (run.dynamics, run.learning_rate, run.fork) not in known:
        raise KeyError(f"no run of {run.name} here: there are {', '.join(other.name for other in runs_of(dataset))}")
    return known.index((run.dynamics, run.learning_rate, run.fork))


@dataclass(frozen=True)
class RecordedRun:
    """One run of columns of trajectories; `part` is what they hold of it."""

    run: Run
    part: Columns

    def along(self, quantity: str) -> Float[np.ndarray, "records ..."]:
        """Return `quantity` at the records of the run, NaN where it was not recorded."""
        count = int(self.part["records"].values)
        return self.part[quantity].values[:count] if quantity in self.part else np.full(count, np.nan)

    def number(self, quantity: str) -> float:
        """Return a quantity of the whole run, NaN where it does not apply."""
        return float(self.part[quantity].values) if quantity in self.part else math.nan

    @property
    def is_scheduled(self) -> bool:
        """Whether the learning rate changes along the run."""
        return bool(np.isfinite(self.along(_RATE)).any())

    def edge_along(self, curvature: str) -> Float[np.ndarray, " records"]:
        """Return the threshold of a curvature at the records, NaN where that is not what the edge is of."""
        constant = np.full(len(self.along("time")), self.run.threshold_of(curvature))
        return np.where(np.isnan(constant), np.nan, self.along(_EDGE)) if self.is_scheduled else constant

    @property
    def last_rate(self) -> float | None:
        """The learning rate at the end, `None` without one."""
        return float(self.along(_RATE)[-1]) if self.is_scheduled else self.run.learning_rate

    @property
    def last_threshold(self) -> float:
        """The sharpness up to which the run is stable at its end: `Run.threshold`, or what it has become."""
        return float(self.edge_along(SHARPNESS)[-1])

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        return Outcome(int(self.part["outcome"].values))

    @property
    def steps(self) -> int:
        """The number of steps made."""
        return int(self.part["steps"].values)

    @property
    def end_time(self) -> float:
        """The time at the end."""
        return self.number("end_time")


@dataclass(frozen=True)
class Recorded:
    """Columns of trajectories: the runs, the gradient flow first, and what theory says of the end.

    A run that stands alone may be another than the gradient flow: `leading` is the flow where there is one, and else
    that run, and `others` are all but the flow, in the order of the columns.
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
        """The other runs, those of one dynamics together, from the smallest learning rate to the largest; forks last.

        Forks are in the order in which they were planned.
        """
        order = list(dict.fromkeys(other.run.dynamics for other in self.others))
        return sorted(
            self.others,
            key=lambda other: (other.run.fork, order.index(other.run.dynamics), other.run.learning_rate or 0.0),
        )


def read_runs(dataset: LabelledArrays) -> Recorded:
    """Return the runs of columns of trajectories, or of a data set such as `Comparison.to_dataset` returns."""
    columns = Columns.of(dataset)
    runs = [RecordedRun(run, columns.part(RUN, place)) for place, run in enumerate(runs_of(columns))]
    lower, upper = (columns.attrs.get(name) for name in BOUNDS)
    critical = columns.attrs.get(CRITICAL)
    return Recorded(
        runs=tuple(sorted(runs, key=lambda run: not run.run.is_flow)),
        bounds=None if lower is None or upper is None else (float(lower), float(upper)),
        critical_learning_rate=None if critical is None else float(critical),
    )
