"""Statements about gradient descent at the edge of stability and its models, checked on recorded runs.

A model is compared with the gradient flow: of the same descent, the gradient flow is the worse prediction. The only
threshold is one on how regular the oscillation of descent is, beyond which no flow follows it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

import numpy as np
from jaxtyping import Bool, Float

from ..columns import LabelledArrays, Recorded, RecordedRun, Run, read_runs
from ..dynamics import Outcome
from ..formatting import encodable
from ..formatting.presentation import Shown, view_of
from ..theory import Assumption, Statement, Verdict, judge
from .centres import DISTANCE, MEAN_EXCESS_RISK, MEAN_RISK, OSCILLATION, TIME_ROUNDING, records_at
from .measure import ERROR, LIMIT

if TYPE_CHECKING:
    import pandas

# The names of the statements, and their sources.
SHARPNESS_HELD = "sharpness held at 2/η"
AMPLITUDE = "oscillation"
CENTRE_DISTANCE = "distance from the centre"
LIMIT_FALLS = "sharpness of the flow's limit falls"
CENTRAL_FLOW = "Cohen, Damian, Talwalkar, Kolter and Lee (2024)"
FLOW_LIMITS = "Kreisler, Nacson, Soudry and Carmon (2023)"
MODELS = "what a model of descent is for"


@dataclass(frozen=True)
class EdgeCriteria:
    """Which oscillations the statements apply to.

    By default those of deep linear networks and perceptrons that models have been seen to follow; `edge_statements`
    takes others.
    """

    period_two: float = 0.25
    """Descent is of period two where the lengths of two steps in a row differ by less than this part of their mean, in
    the median: measured on deep linear networks and GELU perceptrons, that is 0.001 to 0.06 where models follow
    descent, and 0.34 to 0.66 where its oscillations are chaotic."""
    rounding_errors: float = 1e3
    """An amplitude of less than so many rounding errors of its largest value is rounding itself."""
    lasting: float = 0.01
    """Below this part of its largest value the oscillation has died out: it makes a ten thousandth of the largest
    variance, and ratios to it say nothing."""


@dataclass(frozen=True, repr=False)
class RunStatements(Shown):
    """The verdicts on the statements about one run of a comparison: a descent, or the flow that models one.

    `repr` is a line. Printed, and shown in a notebook, it is the table of the command line of this run alone.
    """

    run: Run
    """Which run they are about."""
    statements: tuple[Statement, ...]
    """The statements, with their verdicts."""

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{statement.name} {statement.verdict}" for statement in self.statements)
        return encodable(f"RunStatements({self.run.name}: {verdicts})")


@dataclass(frozen=True, repr=False)
class StatementsOfRuns(Shown, Sequence[RunStatements]):
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

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a table of pandas with a row for each statement: its run, name, both sides, margin and verdict."""
        return view_of(self).to_dataframe()


def edge_statements(dataset: LabelledArrays, criteria: EdgeCriteria | None = None) -> StatementsOfRuns:
    """Return the statements about descents at the edge of stability and their models, checked on a data set.

    For each learning rate, of a descent with `FlowLimits`: from the edge on, the sharpness of the flow's limit never
    rises by more than its error (Kreisler et al. 2023, who prove it for scalar networks). Of each model:

    * S stays at 2/η while the model oscillates, for a model that says so (`DescentModel.held_within`);
    * mean excess risk and oscillation are nearer to those of descent than the gradient flow's, in the median over the
      records from where descent came to the edge: |ln(predicted/measured)| of the one, |predicted/measured − 1| of the
      other, of which the gradient flow, without any oscillation, has 1;
    * at the last time at which all runs have records it is no further from the centre of descent's oscillation than
      the gradient flow.

    They apply to a descent that came to the edge, ηS = 2, and oscillates with period two. Where the minimum of the risk
    is not known, the risk stands in place of its excess.

    Args:
        dataset: The data set or the columns of a comparison, as `Comparison.to_dataset` and `to_columns` return them.
        criteria: Which oscillations they apply to; by default those of `EdgeCriteria`.

    Returns:
        The statements about each run; empty without limits and models.

    Raises:
        ValueError: For models without the gradient flow.
    """
    criteria = EdgeCriteria() if criteria is None else criteria
    shown = read_runs(dataset)
    of_runs = []
    for run in sorted(shown.others, key=lambda other: other.run.learning_rate or 0.0):
        if np.isfinite(run.along(LIMIT.name)).any():
            of_runs.append(RunStatements(run.run, (_limit_falls(run),)))
        if models := models_of(shown, run):
            time = common_time(run, models)
            for model in models:
                oscillation, within = _Oscillation.of(run, model, criteria), model.number("held_within")
                held = [_sharpness_held(model, within)] if math.isfinite(within) else []
                nearer = (
                    _mean_risk(shown.flow, oscillation),
                    _amplitude(oscillation),
                    _centre_distance(oscillation, time),
                )
                of_runs.append(RunStatements(model.run, (*held, *nearer)))
    return StatementsOfRuns(tuple(of_runs))


def models_of(shown: Recorded, descent: RecordedRun) -> list[RecordedRun]:
    """Return the runs of the models of a descent."""
    if descent.run.fork:
        return []
    rate = descent.run.learning_rate
    same = [run for run in shown.others if run.run.learning_rate == rate and not run.run.fork]
    # Where it is not said what a run models, it is gradient descent.
    plain = descent.run.is_descent
    return [
        run
        for run in same
        if DISTANCE.name in run.part
        and (run.run.models == descent.run.dynamics or (plain and not run.run.models and not run.run.is_descent))
    ]


def common_time(descent: RecordedRun, models: Sequence[RecordedRun]) -> float:
    """Return the last time at which the distances of the gradient flow and of all models are known; NaN for none."""
    known = [set(run.along("time")[np.isfinite(run.along(DISTANCE.name))].tolist()) for run in (descent, *models)]
    return max(set.intersection(*known), default=math.nan)


@dataclass(frozen=True)
class _Oscillation:
    """A descent and its model at the records of descent, and which of them are `past` the edge and oscillate.

    `scope`: descent came to the edge, and has period two there.
    """

    descent: RecordedRun
    model: RecordedRun
    times: Float[np.ndarray, " records"]
    past: Bool[np.ndarray, " records"]
    scope: tuple[Assumption, ...]
    criteria: EdgeCriteria

    @classmethod
    def of(cls, descent: RecordedRun, model: RecordedRun, criteria: EdgeCriteria) -> "_Oscillation":
        times, amplitude = descent.along("time"), descent.along(OSCILLATION.name)
        rounding = float(np.finfo(amplitude.dtype).eps) * np.max(amplitude, initial=0, where=amplitude > 0)
        end = model.number("end_time") if model.outcome is Outcome.TIME_LIMIT else math.inf  # as requested
        past = (times >= descent.number("crossing_time")) & (amplitude > criteria.rounding_errors * rounding)
        past &= times <= end * (1 + TIME_ROUNDING)
        scope = (_came_to_edge(descent), *_has_period_two(descent, past, criteria.period_two))
        return cls(descent, model, times, past, scope, criteria)

    def measured(self, quantity: str) -> Float[np.ndarray, " past"]:
        return self.descent.along(quantity)[self.past].astype(float)

    def of_run(self, run: RecordedRun, quantity: str) -> Float[np.ndarray, " past"]:
        """Return a quantity of another run at the times of the records, NaN where it has none."""
        index, known = records_at(run.along("time"), self.times[self.past], stays=run.outcome.stays)
        return np.where(known, run.along(quantity)[index], np.nan)


def _came_to_edge(run: RecordedRun) -> Assumption:
    """Return the assumption that the sharpness along a descent, or the curvature that decides, reached the edge."""
    edge, crossing = run.run.edge, run.number("crossing_time")
    name = "ηS reaches 2 along descent" if run.run.has_edge_of_descent else "descent came to its edge of stability"
    if math.isfinite(crossing):
        return Assumption(name, True, f"at t = {crossing:.4g}")
    along = run.along(edge.curvature) / run.edge_along(edge.curvature)
    if not np.isfinite(along[:-1]).any() or not math.isfinite(edge.threshold):
        return Assumption(name, None, "it was not followed along descent")
    return Assumption(name, False, f"at most {2 * np.nanmax(along):.3g}, at the records")


def _has_period_two(descent: RecordedRun, past: Bool[np.ndarray, " records"], bound: float) -> list[Assumption]:
    """Return the assumption that consecutive steps have nearly the same length η‖∇R‖; none without records of them."""
    lengths, before = descent.along("gradient_norm")[past], descent.along("gradient_norm")[np.flatnonzero(past) - 1]
    if not len(lengths):
        return []
    change = float(np.median(2 * np.abs(lengths - before) / (lengths + before)))
    name = f"descent is of period two: its steps differ in length by less than {bound:g} from one to the next"
    return [Assumption(name, change < bound, f"by {change:.2g} in the median")]


def _sharpness_held(model: RecordedRun, within: float) -> Statement:
    """|S − 2/η| ≤ δ·2/η while Σ ≠ 0, from where S has come down to 2/η if it began beyond."""
    sharpness, edge = model.along("sharpness").astype(float), model.edge_along("sharpness")
    departure = sharpness / edge - 1
    come = np.logical_or.accumulate(departure <= within)
    active = come & (model.along(OSCILLATION.name) > 0) & np.isfinite(sharpness)
    count = int(active.sum())
    oscillates = Assumption("the model oscillates at records that know its sharpness", count > 0, f"{count} records")
    claim = f"|S − 2/η| ≤ {within:.2g} · 2/η while Σ ≠ 0"
    sides = np.abs(departure[active]), np.full(count, within)
    return judge_within(SHARPNESS_HELD, claim, *sides, [oscillates], [], CENTRAL_FLOW, model.along("time")[active])


def _mean_risk(flow: RecordedRun, oscillation: _Oscillation) -> Statement:
    known = np.isfinite(oscillation.descent.along(MEAN_EXCESS_RISK.name)).any()
    quantity, plain = (MEAN_EXCESS_RISK.name, "excess_risk") if known else (MEAN_RISK.name, "risk")
    name = "mean excess risk" if known else "mean risk"
    claim = f"|ln(predicted/measured {name})|, in the median, is at most that of the gradient flow"
    measured, model = oscillation.measured(quantity), oscillation.model
    # A model without an oscillation is its own mean, as the gradient flow is.
    own = quantity if np.isfinite(model.along(quantity)).any() else plain
    predicted = oscillation.of_run(model, own)
    error, of_flow = (_log_ratio(values, measured) for values in (predicted, oscillation.of_run(flow, plain)))
    note = f"the model is off by a factor of {_factor(error)}, the gradient flow by {_factor(of_flow)}"
    reaches = [_reaches(oscillation, predicted)]
    return judge_within(name, claim, error, of_flow, oscillation.scope, reaches, MODELS, note=note)


def _log_ratio(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return the median of |ln(predicted/measured)| over what is measured as positive; NaN for nothing."""
    known = (measured > 0) & np.isfinite(predicted)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(np.log(predicted[known] / measured[known]))
    return float(np.median(ratios)) if len(ratios) else math.nan


def _factor(error: float) -> str:
    return f"{math.exp(error):.3g}" if error < 300 * math.log(10) else "more than 1e300"


def _amplitude(oscillation: _Oscillation) -> Statement:
    measured, predicted = (
        oscillation.measured(OSCILLATION.name),
        oscillation.of_run(oscillation.model, OSCILLATION.name),
    )
    claim = "|predicted/measured √tr Σ − 1|, in the median, is at most that of the gradient flow, 1"
    known, ever = np.isfinite(predicted), np.isfinite(oscillation.model.along(OSCILLATION.name)).any()
    predicts = Assumption("the model predicts an oscillation", bool(np.any(predicted > 0) if known.any() else ever))
    lasting = known & (measured >= oscillation.criteria.lasting * np.max(measured, initial=0))
    error = float(np.median(np.abs(predicted / measured - 1)[lasting])) if lasting.any() else math.nan
    scope, reaches = [*oscillation.scope, predicts], [_reaches(oscillation, predicted)]
    return judge_within(AMPLITUDE, claim, error, 1.0, scope, reaches, MODELS)


def _centre_distance(oscillation: _Oscillation, time: float) -> Statement:
    claim = (
        "at the last time at which all runs have records, the model is no further from the centre of descent than the "
        "gradient flow"
    )
    common = Assumption("there is a time that all reach", math.isfinite(time), f"t = {time:.4g}")
    at = (run.along(DISTANCE.name)[run.along("time") == time] for run in (oscillation.model, oscillation.descent))
    own, of_flow = (float(values[0]) if len(values) else math.nan for values in at)
    note = f"{of_flow / own:.3g} times nearer" if own > 0 else ""
    return judge_within(CENTRE_DISTANCE, claim, own, of_flow, oscillation.scope, [common], MODELS, note=note)


def _reaches(oscillation: _Oscillation, predicted: np.ndarray) -> Assumption:
    """Return the assumption that the model has not ended while descent oscillates."""
    share = float(np.isfinite(predicted).mean()) if len(predicted) else 0.0
    found = f"{share:.0%} of {len(predicted)} records; it ended as {oscillation.model.outcome.name}"
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
    falls = judge_within(LIMIT_FALLS, claim, low, high, [edge], [enough], FLOW_LIMITS, times[past][1:], note)
    before, least = _next_and_least(values[known & ~past], errors[known & ~past])
    if edge.met is None or not (before > least).any():
        return falls
    return replace(falls, note=f"{falls.note}; below the edge it rose, by {np.max(before / least) - 1:.1g} of itself")


def _next_and_least(values: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all values but the first, and for each an upper bound if the values never rise by more than the errors."""
    return values[1:], np.minimum.accumulate(values + errors)[:-1] + errors[1:]


def judge_within(
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
    """Return the statement with its verdict: it does not apply to a run that is known to be outside its `scope`."""
    assumptions = (*scope, *others)
    outside = [str(one) for one in scope if one.met is False]
    if outside or not all(one.met for one in assumptions):
        verdict = Verdict.NOT_APPLICABLE if outside else Verdict.ASSUMPTION_NOT_MET
        note = "; ".join(outside) or note
        return Statement(name, claim, verdict, note=note, source=source, assumptions=assumptions)
    return replace(judge(name, claim, smaller, larger, assumptions=assumptions, times=times, note=note), source=source)
