"""What is measured along runs that have ended: their sharpness, and the sharpness of the flow's limits from them."""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from ..curvature import default_rtol, eigenvalues_along, resolve_rtol
from ..curvature.finiteness import NotFiniteError
from ..dynamics import MAX_STEPS, Stopping, Trajectory, integrate
from ..dynamics.stopping import standard_bounds
from ..formatting import Progress, ProgressCallback, ProgressReporter, report_progress
from ..networks import records as records_of, weight_dtype
from ..networks.weights import weight_count
from ..probes import Label, TopEigenvalues
from ..solvers.choice import finest_rtol, standard_rtol, tolerances
from ..solvers.field import check_step_count
from .plan import RunSpec

Runs = dict[RunSpec, Trajectory]
"""The runs of a plan, each by its specification."""

LIMIT = Label(
    "limit_sharpness",
    "sharpness of the limit of the gradient flow from here",
    r"sharpness of the flow's limit from here",
    logarithmic=False,
)
ERROR = Label(
    "limit_sharpness_error",
    "estimated error of the sharpness of the limit of the gradient flow from here",
    r"error of the sharpness of the flow's limit",
)
COLUMNS = (LIMIT, ERROR)


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


@dataclasses.dataclass(frozen=True)
class SharpnessAlong(Measure):
    """How the sharpness is followed along the runs of a comparison, or a run that kept its weights (`added_to`).

    It is measured at some of the records of each run, spread over its records and its time alike, and NaN at the
    others. A record takes some 16 products, of two gradients each. Raises `ValueError` for numbers that cannot be.
    """

    records: int | None = None
    """At about how many records; at 0 of them, only at the end. By default at all of them for up to `few_weights`
    weights, and from there on at as many as take about as much work as the run itself."""
    rtol: float | None = None
    """A bound on the residual of an eigenvalue relative to its size: by default 4e-11, in float32 2e-5, and for many
    weights `rtol_of_many`; at the end of a run never looser than that of `flowsim.sharpness`. A looser one may follow
    an eigenvalue that another has overtaken."""
    count: int = 1
    """How many of the largest eigenvalues are followed: above one they are recorded under the name
    `top_eigenvalues`."""
    _: dataclasses.KW_ONLY
    few_weights: int = 2048
    """Up to how many weights the sharpness is measured at all records."""
    rtol_of_many: float = 1e-6
    """The default of `rtol` beyond."""
    records_of_many: tuple[int, int] = (32, 64)
    """The least and the largest number of records beyond."""
    gradients_per_record: int = 32
    """What a record is taken to cost."""

    def __post_init__(self):
        if self.records is not None and not (_is_whole(self.records) and self.records >= 0):
            raise ValueError(f"records is {self.records!r}: expected a whole number, 0 for the end alone, or None")
        if not (_is_whole(self.count) and self.count >= 1):
            raise ValueError(f"count is {self.count!r}: expected how many eigenvalues to follow, 1 or more")
        if self.rtol is not None and not (isinstance(self.rtol, int | float | np.number) and 0 < self.rtol < 1):
            raise ValueError(f"rtol is {self.rtol!r}: expected a number between 0 and 1, or None")

    def check(self, network: PyTree) -> None:
        """Raise `ValueError` for more eigenvalues than weights, or a tolerance that their precision cannot meet."""
        if self.count > (size := weight_count(network)):
            raise ValueError(f"count is {self.count}: expected at most {size}, the number of weights")
        resolve_rtol(self.rtol, weight_dtype(network))

    @property
    def at_the_end_alone(self) -> bool:
        """Whether only the sharpness at the end is requested, which a run computes by itself."""
        return self.records == 0 and self.count == 1

    def added_to(self, run: Trajectory, *, pairs: bool = False) -> Trajectory:
        """Return a run that kept its weights with the sharpness along its path.

        With `pairs`, records are measured together with a neighbour: at the edge of stability iterates alternate.
        Raises `ValueError` for a run without its weights.
        """
        if self.at_the_end_alone:
            return run
        _check_path(run)
        values = self.eigenvalues(run.weights, np.asarray(run.times, float), run, pairs=pairs)
        top = {TopEigenvalues(count=self.count).label: values} if self.count > 1 else {}
        return with_columns(dataclasses.replace(run, sharpness=jax.device_put(values[:, 0])), top)

    def of_runs(self, runs: Runs, report: ProgressReporter) -> Runs:
        """Return all runs with the sharpness along them."""
        report(Progress("sharpness along the way"))
        return {spec: self.added_to(run, pairs=spec.is_descent) for spec, run in runs.items()}

    def eigenvalues(
        self, path: PyTree, times: Float[np.ndarray, " records"], run: Trajectory, *, pairs: bool = False
    ) -> Float[np.ndarray, "records count"]:
        """Return the largest eigenvalues along a `path` at `times`, measured as closely as `run` is; else NaN."""
        records = self.records
        if records is None:
            records = len(run.times)
            if weight_count(run.network) > self.few_weights:
                work = (int(run.steps) if run.gradients is None else int(run.gradients)) + 2 * int(run.products)
                records = int(np.clip(work // self.gradients_per_record, *self.records_of_many))
        chosen = spread_over(times, records, pairs=pairs)
        rtol = self.tolerance(run.network)
        measured = eigenvalues_along(path, run.problem, chosen, count=self.count, rtol=rtol)
        values = np.full((len(times), self.count), np.nan, measured.dtype)
        values[chosen] = measured
        return values

    def tolerance(self, network: PyTree) -> float:
        """Return the bound on the residual of an eigenvalue of this network, relative to the largest."""
        if self.rtol is not None:
            return float(self.rtol)
        standard = default_rtol(weight_dtype(network))
        return max(self.rtol_of_many, standard) if weight_count(network) > self.few_weights else standard

    def expected_records(self, weights: int, recorded: int) -> int:
        """Return at about how many of its `recorded` records a run of a network of so many weights is measured."""
        if self.at_the_end_alone:
            return 1
        if self.records is None:
            return recorded if weights <= self.few_weights else min(recorded, sum(self.records_of_many) // 2)
        return max(1, min(self.records, recorded))

    def names(self) -> tuple[str, ...]:
        """Return under which names more than the sharpness is recorded."""
        return (TopEigenvalues(count=self.count).label.name,) if self.count > 1 else ()


@dataclasses.dataclass(frozen=True)
class FlowLimits(Measure):
    """The sharpness that the gradient flow would reach from some of the records of a run.

    Kreisler, Nacson, Soudry and Carmon (2023, "Gradient descent monotonically decreases the sharpness of gradient flow
    solutions in scalar networks and beyond") prove that it falls along descent for scalar networks, where the sharpness
    itself rises and oscillates. For each of the records, a flow runs to its limit; it is NaN where the flow does not
    come to rest. A second flow, with looser tolerances, gives the error: the difference of the two, and the tolerance
    to which the eigenvalue is certified. Raises `ValueError` for a number of records below one.
    """

    records: int = 32
    """From about how many of the records flows start."""
    rtol: float | None = None
    """Relative tolerance of the flows, before it is made closer; by default that of the comparison, or `integrate`."""
    max_steps: int | None = None
    """The number of steps in which a flow has to come to rest; by default that of the comparison, or of `integrate`."""
    looser: float = dataclasses.field(default=100.0, kw_only=True)
    """How many times as large the tolerances of the second flow are. With less than a hundred, steps that are bounded
    by stability may have the same errors in both."""
    closer: float = dataclasses.field(default=10.0, kw_only=True)
    """How many times as tight as `integrate` would take them the tolerances of the first are: `rtol`, and those of its
    default `Stopping`. From points near the limit they would be too loose to make it more accurate than the second."""

    def __post_init__(self):
        if not (_is_whole(self.records) and self.records >= 1):
            raise ValueError(f"records is {self.records!r}: expected from how many points flows begin, 1 or more")

    def check(self, dtype: np.dtype) -> None:
        """Raise `ValueError` for options that a flow of weights of a type cannot have."""
        tolerances(self.rtol, None, None, dtype)
        check_step_count("max_steps", MAX_STEPS if self.max_steps is None else self.max_steps)

    def added_to(self, run: Trajectory, *, progress: bool | ProgressCallback = False) -> Trajectory:
        """Return a run that kept its weights with the sharpness of the flow's limits and its error.

        Among its `diagnostics` that is `limit_sharpness` and `limit_sharpness_error`, NaN at the other records.
        `progress`, as in `integrate`, counts the points. Raises `ValueError` for a run without its weights, and as
        `integrate` does.
        """
        _check_path(run)
        times = np.asarray(run.times, float)
        values, errors = np.full((2, len(times)), np.nan)
        chosen = spread_over(times, self.records, pairs=False)
        of_eigenvalue = default_rtol(weight_dtype(run.network))
        with report_progress(progress) as report:
            for done, record in enumerate(chosen):
                report(Progress("limits of the flow", done, len(chosen), "points"))
                network = records_of(run.weights, np.array(record))
                value, looser = (self._limit(network, run, factor) for factor in (1.0, self.looser))
                values[record], errors[record] = value, abs(value - looser) + of_eigenvalue * abs(value)
        dtype = np.asarray(run.risk).dtype
        return with_columns(run, {LIMIT: values.astype(dtype), ERROR: errors.astype(dtype)})

    def of_runs(self, runs: Runs, report: ProgressReporter) -> Runs:
        """Return the runs with the limits from the points of all descents but forks."""
        descents = [spec for spec in runs if spec.is_descent and spec.start is None]
        stages = [
            report.during(f"limits of the flow from descent with η = {spec.learning_rate:g}") for spec in descents
        ]
        limits = (self.added_to(runs[spec], progress=stage) for spec, stage in zip(descents, stages, strict=True))
        return runs | dict(zip(descents, limits, strict=True))

    def _limit(self, network: PyTree, run: Trajectory, looser: float) -> float:
        """Return the sharpness of the limit, with tolerances that are so many times looser; NaN where there is none."""
        dtype = weight_dtype(network)
        rtol = standard_rtol(dtype) if self.rtol is None else self.rtol
        rtol = max(rtol / self.closer, min(rtol, finest_rtol(dtype)))
        gradient_norm, remaining = (bound * looser / self.closer for bound in standard_bounds(dtype))
        stopping = Stopping(gradient_norm=gradient_norm, remaining=remaining)
        rtol, limit = min(rtol * looser, 0.1), self.max_steps or MAX_STEPS
        try:
            flow = integrate(network, run.problem, ts=np.empty(0), stopping=stopping, rtol=rtol, max_steps=limit)
            return float(flow.final_sharpness) if flow.outcome.settled else np.nan
        except (NotFiniteError, RuntimeError):  # a record of a descent that diverges, or not certified
            return np.nan


def with_columns(run: Trajectory, columns: Mapping[Label, np.ndarray]) -> Trajectory:
    """Return a run with more diagnostics, each over its records."""
    values = {label.name: jax.device_put(column) for label, column in columns.items()}
    labels = {label.name: label for label in columns}
    return dataclasses.replace(run, diagnostics=run.diagnostics | values, labels=run.labels | labels)


def spread_over(times: Float[np.ndarray, " records"], count: int, *, pairs: bool) -> Int[np.ndarray, " chosen"]:
    """Return about `count` of the records, the last among them: evenly spread in the mean of number and time.

    With `pairs`, each with a neighbour.
    """
    last = len(times) - 1
    if count > last:
        return np.arange(last + 1)
    if count < 2:
        return np.array([last])
    span = times[-1] if np.isfinite(times[-1]) and times[-1] > 0 else 1.0
    position = (np.arange(last + 1) / last + np.clip(times / span, 0, 1)) / 2
    wanted = np.searchsorted(position, np.linspace(0, 1, math.ceil(count / 2) if pairs else count))
    chosen = np.minimum(wanted, last)
    if pairs:
        gaps = np.diff(times, prepend=-np.inf, append=np.inf)
        chosen = np.append(chosen, np.where(gaps[chosen] <= gaps[chosen + 1], chosen - 1, chosen + 1))
    return np.unique(np.append(chosen, last))


def _check_path(run: Trajectory) -> None:
    if run.weights is None:
        raise ValueError("the run did not keep its weights: pass weights=True to integrate or descend")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
