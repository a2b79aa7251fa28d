"""What is said of gradient descent at the edge of stability and of the flows that model it, checked on recorded runs.

That a model is worth its equations is a comparison: with the same numbers of descent, the gradient flow is further off.
No threshold stands in that but one, for what counts as swinging from one step to the next; beyond it no flow follows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

import numpy as np
from jaxtyping import Bool, Float

from ..dynamics import Outcome
from ..results.recorded import Recorded, RecordedRun, recorded
from ..results.runs import Run
from ..theory import Assumption, Statement, Verdict, judge
from .flow_limits import ERROR, LIMIT
from .models import DISTANCE, MEAN_EXCESS_RISK, MEAN_RISK, OSCILLATION

if TYPE_CHECKING:
    import pandas
    import xarray

HELD, SWING, DISTANT, FALLS = (
    "sharpness held at 2/η",
    "oscillation",
    "distance from the centre",
    "sharpness of the flow's limit falls",
)
CENTRAL_FLOW = "Cohen, Damian, Talwalkar, Kolter and Lee (2024)"
FLOW_LIMITS = "Kreisler, Nacson, Soudry and Carmon (2023)"
MODELS = "what a model of descent is for"
# The lengths of two steps in a row differ by less than this part of their mean where descent swings evenly. In the
# median over runs of deep linear networks and GELU it is 0.001 to 0.06 where models follow descent, and 0.34 to 0.66
# where its swings are chaotic.
_EVEN = 0.25
# Times ηk of two runs that are meant to be the same.
_ROUNDING = 1e-5
# An amplitude that fell to so many roundings of its largest value is rounding itself.
_ROUNDINGS = 1e3
_LARGEST_EXPONENT = 690


@dataclass(frozen=True, repr=False)
class RunStatements:
    """What the statements about one run of a comparison came to: a descent, or the flow that models one.

    `repr` is a line. Printed, and shown in a notebook, it is the table of the command line of this run alone.
    """

    run: Run
    statements: tuple[Statement, ...]

    def __repr__(self) -> str:
        return f"RunStatements({self.run.name}: {', '.join(f'{s.name} {s.verdict}' for s in self.statements)})"

    def __str__(self) -> str:
        return str(StatementsOfRuns((self,)))

    def _repr_html_(self) -> str:
        return StatementsOfRuns((self,))._repr_html_()


@dataclass(frozen=True, repr=False)
class StatementsOfRuns(Sequence[RunStatements]):
    """The statements about the runs of a comparison, one `RunStatements` after the other.

    Printed, and shown in a notebook, it is the table of the command line; empty, it says that there are none.
    """

    of_runs: tuple[RunStatements, ...] = ()

    def __len__(self) -> int:
        return len(self.of_runs)

    @overload
    def __getitem__(self, index: int) -> RunStatements: ...
    @overload
    def __getitem__(self, index: slice) -> "StatementsOfRuns": ...
    def __getitem__(self, index: int | slice) -> "RunStatements | StatementsOfRuns":
        return StatementsOfRuns(self.of_runs[index]) if isinstance(index, slice) else self.of_runs[index]

    def __repr__(self) -> str:
        return f"StatementsOfRuns({'; '.join(repr(one)[len('RunStatements(') : -1] for one in self.of_runs) or 'none'})"

    def __str__(self) -> str:
        from ..formatting import printed
        from ..report import table_of_run_statements

        return printed(table_of_run_statements(self, "")) if self.of_runs else "no statements"

    def _repr_html_(self) -> str:
        from ..formatting import table_as_html
        from ..report import table_of_run_statements

        return table_as_html(table_of_run_statements(self, "")) if self.of_runs else "<p>no statements</p>"

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a table of pandas with a row for each statement: its run, name, both sides, margin and verdict."""
        from ..report import statements_frame

        about = [
            (one, {"dynamics": of.run.dynamics, "learning_rate": of.run.learning_rate})
            for of in self
            for one in of.statements
        ]
        return statements_frame([one for one, _ in about], [run for _, run in about])


def edge_statements(dataset: "xarray.Dataset") -> StatementsOfRuns:
    """Return what is said of descents at the edge and of their models, checked on a data set of trajectories.

    For each learning rate, of a descent with `FlowLimits`: from the edge on, the sharpness of the flow's limit never
    rises by more than its error (Kreisler et al. 2023, who prove it for scalar networks). Of each model:

    * S stays at 2/η while the model oscillates, for a model that says so (`DescentModel.held_within`);
    * mean excess risk and oscillation are nearer to those of descent than the gradient flow's, in the median over the
      records from where descent came to the edge: |ln(predicted/measured)| of the one, |predicted/measured − 1| of the
      other, of which the gradient flow, without any oscillation, has 1;
    * at the last common time it is no further from the centre of descent's oscillation than the gradient flow.

    They apply to a descent that came to the edge, ηS = 2, and swings evenly from one step to the next. Where the
    minimum of the risk is not known, the risk stands in place of its excess. Empty without limits and models. Raises
    `ValueError` for models without the gradient flow beside them.
    """
    shown = recorded(dataset)
    found = []
    for run in sorted(shown.others, key=lambda other: other.run.learning_rate or 0.0):
        if np.isfinite(run.along(LIMIT.name)).any():
            found.append(RunStatements(run.run, (_limit_falls(run),)))
        if run.run.is_descent and (models := models_of(shown, run)):
            time = common_time(run, models)
            found += [RunStatements(one.run, tuple(_of_model(shown.flow, run, one, time))) for one in models]
    return StatementsOfRuns(tuple(found))


def models_of(shown: Recorded, descent: RecordedRun) -> list[RecordedRun]:
    """Return the runs of the models of a descent."""
    same = (run for run in shown.others if run.run.learning_rate == descent.run.learning_rate)
    return [run for run in same if not run.run.is_descent and DISTANCE.name in run.part]


def common_time(descent: RecordedRun, models: Sequence[RecordedRun]) -> float:
    """Return the last time at which the distances of the gradient flow and of all models are known; NaN for none."""
    known = [set(run.along("time")[np.isfinite(run.along(DISTANCE.name))].tolist()) for run in (descent, *models)]
    return max(set.intersection(*known), default=math.nan)


def _of_model(flow: RecordedRun, descent: RecordedRun, model: RecordedRun, time: float) -> Iterator[Statement]:
    if math.isfinite(within := model.number("held_within")):
        yield _held(model, within)
    swings = _Swings.of(descent, model)
    yield _mean_risk(flow, swings)
    yield _oscillation(swings)
    yield _distance(swings, time)


@dataclass(frozen=True)
class _Swings:
    """A descent and its model at the records of descent, with those `past` the edge at which it oscillates at all."""

    descent: RecordedRun
    model: RecordedRun
    times: Float[np.ndarray, " records"]
    past: Bool[np.ndarray, " records"]
    scope: tuple[Assumption, ...]

    @classmethod
    def of(cls, descent: RecordedRun, model: RecordedRun) -> "_Swings":
        times, amplitude = descent.along("time"), descent.along(OSCILLATION.name)
        least = _ROUNDINGS * float(np.finfo(amplitude.dtype).eps) * np.max(amplitude, initial=0, where=amplitude > 0)
        end = model.number("end_time") if model.outcome is Outcome.TIME_LIMIT else math.inf  # as it was asked for
        past = (times >= descent.number("crossing_time")) & (amplitude > least) & (times <= end * (1 + _ROUNDING))
        return cls(descent, model, times, past, (_came_to_edge(descent), *_swings_evenly(descent, past)))

    def measured(self, quantity: str) -> Float[np.ndarray, " past"]:
        return self.descent.along(quantity)[self.past].astype(float)

    def of_run(self, run: RecordedRun, quantity: str) -> Float[np.ndarray, " past"]:
        """Return a quantity of another run at the times of the records, NaN where it has none."""
        times, wanted = run.along("time"), self.times[self.past]
        index = np.minimum(np.searchsorted(times, wanted * (1 - _ROUNDING)), len(times) - 1)
        there = np.abs(times[index] - wanted) <= _ROUNDING * wanted
        return np.where(there | ((wanted > times[-1]) & run.outcome.stays), run.along(quantity)[index], np.nan)


def _came_to_edge(run: RecordedRun) -> Assumption:
    """Return that the sharpness along a descent, or what decides in its place, came to the edge of stability."""
    edge, crossing = run.run.edge, run.number("crossing_time")
    name = "ηS reaches 2 along descent" if run.run.has_edge_of_descent else "descent came to its edge of stability"
    if math.isfinite(crossing):
        return Assumption(name, True, f"at t = {crossing:.4g}")
    along = run.along(edge.curvature)
    if not np.isfinite(along[:-1]).any() or not math.isfinite(edge.threshold):
        return Assumption(name, None, "it was not followed along descent")
    return Assumption(name, False, f"at most {2 * np.nanmax(along) / edge.threshold:.3g}, at the records")


def _swings_evenly(descent: RecordedRun, past: Bool[np.ndarray, " records"]) -> list[Assumption]:
    """Return that the lengths η‖∇R‖ of two steps in a row are nearly the same; nothing where no records tell."""
    lengths, before = descent.along("gradient_norm")[past], descent.along("gradient_norm")[np.flatnonzero(past) - 1]
    if not len(lengths):
        return []
    change = float(np.median(2 * np.abs(lengths - before) / (lengths + before)))
    name = f"descent is of period two: its steps differ in length by less than {_EVEN:g} from one to the next"
    return [Assumption(name, change < _EVEN, f"by {change:.2g} in the median")]


def _held(model: RecordedRun, within: float) -> Statement:
    """|S − 2/η| ≤ δ·2/η while Σ ≠ 0, from where S has come down to 2/η if it began beyond."""
    sharpness, edge = model.along("sharpness").astype(float), 2 / (model.run.learning_rate or math.nan)
    departure = sharpness / edge - 1
    come = np.logical_or.accumulate(departure <= within)
    active = come & (model.along(OSCILLATION.name) > 0) & np.isfinite(sharpness)
    count = int(active.sum())
    oscillates = Assumption("the model oscillates at records that know its sharpness", count > 0, f"{count} records")
    claim = f"|S − 2/η| ≤ {within:.2g} · 2/η while Σ ≠ 0"
    sides = np.abs(departure[active]), np.full(count, within)
    return _judged(HELD, claim, *sides, [oscillates], [], CENTRAL_FLOW, model.along("time")[active])


def _mean_risk(flow: RecordedRun, swings: _Swings) -> Statement:
    known = np.isfinite(swings.descent.along(MEAN_EXCESS_RISK.name)).any()
    quantity, plain = (MEAN_EXCESS_RISK.name, "excess_risk") if known else (MEAN_RISK.name, "risk")
    name = "mean excess risk" if known else "mean risk"
    claim = f"|ln(predicted/measured {name})|, in the median, is at most that of the gradient flow"
    measured, predicted = swings.measured(quantity), swings.of_run(swings.model, quantity)
    error, of_flow = (_log_ratio(values, measured) for values in (predicted, swings.of_run(flow, plain)))
    note = f"the model is off by a factor of {_factor(error)}, the gradient flow by {_factor(of_flow)}"
    return _judged(name, claim, error, of_flow, swings.scope, [_reaches(swings, predicted)], MODELS, note=note)


def _log_ratio(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return the median of |ln(predicted/measured)| over what is measured as positive; NaN for nothing."""
    known = (measured > 0) & np.isfinite(predicted)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(np.log(predicted[known] / measured[known]))
    return float(np.median(ratios)) if len(ratios) else math.nan


def _factor(error: float) -> str:
    return f"{math.exp(error):.3g}" if error < _LARGEST_EXPONENT else "more than 1e300"


def _oscillation(swings: _Swings) -> Statement:
    measured, predicted = swings.measured(OSCILLATION.name), swings.of_run(swings.model, OSCILLATION.name)
    claim = "|predicted/measured √tr Σ − 1|, in the median, is at most that of the gradient flow, 1"
    known = np.isfinite(predicted)
    predicts = Assumption("the model predicts an oscillation", not known.any() or bool(np.any(predicted[known] > 0)))
    # What has died out to a hundredth makes a ten thousandth of the largest variance, and its ratios say nothing.
    lasting = known & (measured >= 0.01 * np.max(measured, initial=0))
    error = float(np.median(np.abs(predicted / measured - 1)[lasting])) if lasting.any() else math.nan
    return _judged(SWING, claim, error, 1.0, [*swings.scope, predicts], [_reaches(swings, predicted)], MODELS)


def _distance(swings: _Swings, time: float) -> Statement:
    claim = "at the last common time, the model is no further from the centre of descent than the gradient flow"
    common = Assumption("there is a time that all reach", math.isfinite(time), f"t = {time:.4g}")
    at = (run.along(DISTANCE.name)[run.along("time") == time] for run in (swings.model, swings.descent))
    own, of_flow = (float(values[0]) if len(values) else math.nan for values in at)
    note = f"{of_flow / own:.3g} times nearer" if own > 0 else ""
    return _judged(DISTANT, claim, own, of_flow, swings.scope, [common], MODELS, note=note)


def _reaches(swings: _Swings, predicted: np.ndarray) -> Assumption:
    """Return that the model was there while descent oscillated."""
    share = float(np.isfinite(predicted).mean()) if len(predicted) else 0.0
    found = f"{share:.0%} of {len(predicted)} records; it ended as {swings.model.outcome.name}"
    return Assumption("the model gets as far as descent oscillates", share == 1, found)


def _limit_falls(run: RecordedRun) -> Statement:
    """S_∞(t) ≤ min over s < t of S_∞(s) + e(s), plus e(t), from where descent came to the edge."""
    times, values, errors = (run.along(name).astype(float) for name in ("time", LIMIT.name, ERROR.name))
    known = np.isfinite(values) & np.isfinite(errors)
    past = known & (times >= run.number("crossing_time"))
    low, high = _next_and_least(values[past], errors[past])
    enough = Assumption("two limits or more are known from there on", len(low) > 0, f"{int(past.sum())} of them")
    claim = "from the edge on, the sharpness of the flow's limit never rises along descent by more than its error"
    note = "proven for scalar networks (Kreisler et al. 2023), and for any other no more than what is seen"
    edge = _came_to_edge(run)
    found = _judged(FALLS, claim, low, high, [edge], [enough], FLOW_LIMITS, times[past][1:], note)
    before, least = _next_and_least(values[known & ~past], errors[known & ~past])
    if edge.met is None or not (before > least).any():
        return found
    return replace(found, note=f"{found.note}; below the edge it rose, by {np.max(before / least) - 1:.1g} of itself")


def _next_and_least(values: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all values but the first, and up to where each may be for never having risen."""
    return values[1:], np.minimum.accumulate(values + errors)[:-1] + errors[1:]


def _judged(
    name: str,
    claim: str,
    smaller: float | np.ndarray,
    larger: float | np.ndarray,
    scope: Sequence[Assumption],
    others: Sequence[Assumption],
    source: str,
    times: np.ndarray | None = None,
    note: str = "",
) -> Statement:
    """Return the verdict: a statement does not apply to a run that is known to be out of its `scope`."""
    assumptions = (*scope, *others)
    outside = [str(one) for one in scope if one.met is False]
    if outside:
        said = {"note": "; ".join(outside), "source": source, "assumptions": assumptions}
        return Statement(name, claim, Verdict.NOT_APPLICABLE, **said)
    if not all(one.met for one in assumptions):
        said = {"note": note, "source": source, "assumptions": assumptions}
        return Statement(name, claim, Verdict.ASSUMPTION_NOT_MET, **said)
    found = judge(name, claim, smaller, larger, assumptions=assumptions, times=times, note=note)
    return replace(found, source=source)
