"""The numbers of runs beside a flow: as rows, as a table for the terminal, as a summary for a file, and as warnings."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from ..columns import MEASURES, SHARPNESS, LabelledArrays, Recorded, RecordedRun, read_runs
from ..comparison import StatementsOfRuns, edge_statements
from ..comparison.measure import ERROR, LIMIT
from ..dynamics import Outcome
from ..formatting import finite_or_none, format_number, subsample, with_entries
from ..formatting.terminal import empty_table
from .models import model_rows, models_table
from .probes import ends_of, own_probes, plain, probe_names, table_of_ends
from .statements import failing_statements, failure_of, statements_summary, table_of_run_statements


def rows(dataset: LabelledArrays) -> list[dict[str, Any]]:
    """Return the numbers of the printed table, the flow first.

    Each row holds `method` ("GF", "GD", or the name of other dynamics), `learning_rate`, `steps`, `time`, `risk`,
    `excess_risk`, `sharpness` (at the final weights), `ratio` (sharpness over the lower bound of Theorem 2),
    `two_over_eta`, `threshold` (the sharpness up to which the run is stable, NaN where that is not known, or a matter
    of another curvature), `distance_to_flow` at `distance_time`, the last time that both reached, and `outcome` (its
    name). Where the learning rate changes, that of the row is the nominal one, and both edges are those at the end.
    `None` is what does not apply, NaN what could not be computed.
    """
    shown = read_runs(dataset)
    return [_row(run, shown.bounds) for run in shown.runs]


def _row(run: RecordedRun, bounds: tuple[float, float] | None) -> dict[str, Any]:
    sharpness, rate = run.number("final_sharpness"), run.run.learning_rate
    last = run.last_rate
    return {
        "method": run.run.method,
        "learning_rate": rate,
        "steps": run.steps,
        "time": run.end_time,
        "risk": run.number("final_risk"),
        "excess_risk": run.number("final_excess_risk"),
        "sharpness": sharpness,
        "ratio": sharpness / bounds[0] if bounds and bounds[0] > 0 else None,
        "two_over_eta": None if last is None else 2 / last,
        "threshold": None if rate is None else run.last_threshold,
        "distance_to_flow": None if run.run.is_flow else run.number("distance_to_flow"),
        "distance_time": None if run.run.is_flow else run.number("distance_time"),
        "outcome": run.outcome.name,
    }


def tables(dataset: LabelledArrays, title: str, statements: StatementsOfRuns | None = None) -> tuple[Table, ...]:
    """Return all tables for the terminal: of the runs, and where there are any, of models, statements and probes.

    Args:
        dataset: Columns of trajectories, or their data set.
        title: What stands above the first.
        statements: What is said of the runs at the edge of stability; by default `edge_statements` of the data set.

    Returns:
        The tables, in their order.
    """
    statements = edge_statements(dataset) if statements is None else statements
    stated = table_of_run_statements(statements, title) if statements else None
    names = own_probes(dataset)
    ends = [([run.run.name], ends_of(run, names)) for run in read_runs(dataset).runs]
    probed = table_of_ends(title, [""], ends, names, dataset) if names else None
    others = (models_table(dataset, title), stated, probed)
    return (render(dataset, title), *(table for table in others if table is not None))


def render(dataset: LabelledArrays, title: str) -> Table:
    """Return the table for the terminal; the lines of a column's name join where there is room: see `fitted`.

    Args:
        dataset: Columns of trajectories, or their data set.
        title: What stands above it.

    Returns:
        The table.
    """
    shown = read_runs(dataset)
    table = empty_table(title, remarks_of_runs(shown))
    _add_rows(table, {"": shown})
    return table


def render_folders(datasets: Mapping[str, LabelledArrays], title: str, remarks: Sequence[str]) -> Table:
    """Return one table of the ends of all runs of several data sets, by the names of their folders."""
    table = empty_table(title, remarks)
    table.add_column("folder", no_wrap=True)
    _add_rows(table, {name: read_runs(dataset) for name, dataset in datasets.items()})
    return table


def _add_rows(table: Table, folders: Mapping[str, Recorded]) -> None:
    """Add the columns of runs and a row for each, behind the name of its folder where there is a column for that."""
    is_named, every = bool(table.columns), folders.values()
    table.add_column("", no_wrap=True)
    # Where the minimum of the risk is unknown, so is the excess: then the risk itself is shown.
    unknown = any(math.isnan(shown.leading.along("excess_risk")[0]) for shown in every)
    measure = "risk" if unknown else "excess_risk"
    columns = [
        ("η", "learning_rate", 4),
        ("steps", "steps", 0),
        ("time", "time", 4),
        (measure.replace("_", "\n"), measure, 3),
        ("S", "sharpness", 4),
        *([("S /\nlower\nbound", "ratio", 3)] if any(shown.bounds is not None for shown in every) else []),
        ("2/η" if all(shown.plain for shown in every) else "stable\nup to\nS", "threshold", 4),
        *(
            [("distance\nto the\nflow", "distance_to_flow", 3)]
            if any(shown.has_flow and shown.others for shown in every)
            else []
        ),
    ]
    rows_of = {name: [_row(run, shown.bounds) for run in shown.runs] for name, shown in folders.items()}
    columns = with_entries(columns, [row for rows in rows_of.values() for row in rows])
    for header, _, _ in columns:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict")
    for name, rows in rows_of.items():
        for place, row in enumerate(rows):
            numbers = (format_number(row[key], digits) if digits else str(row[key]) for _, key, digits in columns)
            folder = [name if place == 0 else ""] if is_named else []
            table.add_row(*folder, row["method"], *numbers, Outcome[row["outcome"]].words)
        table.add_section()


def remarks_of_runs(shown: Recorded, *, rounding: float = 1e-6, most_names: int = 3) -> list[str]:
    """Return the lines under the table: the integration of the flow, Theorem 2, edges of stability, distances, the end.

    Times that differ by less than the fraction `rounding` are the same: ηk may be in single precision.
    """
    flow = shown.leading
    count = flow.number("gradients")
    gradients = "" if math.isnan(count) else f"{int(count)} gradients, "
    remarks = [f"{flow.run.method} by {flow.part['solver'].values}: {gradients}{int(flow.number('products'))} products"]
    if shown.bounds is not None:
        lower, upper = shown.bounds
        remarks.append(f"Theorem 2: {lower:.4g} ≤ S_min ≤ {upper:.4g}")
    if shown.critical_learning_rate is not None:
        remarks[-1] += f"; critical learning rate at most {shown.critical_learning_rate:.4g}"
    if (loosened := flow.number("loosened")) > 1:
        remarks.append(
            f"The gradient jumps on the way: steps were allowed errors of {loosened:.3g} times rtol, and no digit of "
            "where the flow ends is certain; with another rtol or solver it may end elsewhere"
        )
    if (order := flow.number("order")) > 2:
        whole = round(order)
        if abs(order - whole) < 0.05 and whole > 2:
            k, exponent = str(whole), "1" if whole == 3 else f"1/{whole - 2}"
        else:
            k, exponent = format_number(order, 3), format_number(1 / (order - 2), 3)
        remarks.append(f"The risk is flat to order {k} at the limit: the flow approaches it like t^(−{exponent})")
    remarks.extend(risk_remarks(shown))

    edges = []
    for run in shown.by_rate:
        curvature, threshold = run.run.edge.curvature, run.edge_along(run.run.edge.curvature)[-1]
        if curvature != SHARPNESS and math.isfinite(threshold):
            at_end = " at the end" if run.is_scheduled else ""
            words = f"stable up to a {curvature.replace('_', ' ')} of {threshold:.4g}{at_end}"
            edges.append((curvature, run.run.name, f"{run.run.name}: {words}"))
        if run.run.branch:
            words = f"{run.run.name}: goes on from {run.run.branch}"
            edges.append((f"branch of {run.run.name}", run.run.name, words))
        if run.is_scheduled:
            words = f"the learning rate changes, and is {run.last_rate:.4g} at the end"
            edges.append(("rate", run.run.name, f"{run.run.name}: {words}"))
    remarks.extend(_merged(edges))

    early: dict[str, list[str]] = {}
    for run in shown.by_rate:
        time = run.number("distance_time")
        if time < run.end_time * (1 - rounding):
            early.setdefault(format_number(time, 4), []).append(run.run.name)
    for time, names in early.items():
        few = subsample(names, most_names)
        words = ", ".join(few) if few == names else f"{len(names)} runs from {names[0]} to {names[-1]}"
        remarks.append(f"Distance taken at t = {time} for {words}")

    if shown.has_flow and not flow.outcome.converged:
        words = "The flow ended as asked" if flow.outcome.as_asked else "The flow did not converge"
        remarks.append(f"{words}: {flow.outcome.meaning}")
    return remarks


def risk_remarks(shown: Recorded, *, most_names: int = 3) -> Iterator[str]:
    """Yield which runs went below the infimum of the risk that was given, and which end at twice their first risk."""
    below, risen = {}, []
    for run in shown.runs:
        excess, risk, name = run.along("excess_risk"), run.along("risk"), run.run.name
        # An excess that is negative by more than rounding: the infimum is too high.
        rounding = 64 * np.finfo(risk.dtype).eps * np.max(np.abs(risk[np.isfinite(risk)]), initial=0.0)
        least = np.min(excess[np.isfinite(excess)], initial=0.0)
        if least < -rounding:
            below[name] = float(-least)
        # Where the steps or the time ran out; a run that ended of itself has no more to tell.
        rise = float(risk[-1] / risk[0]) if run.outcome.ran_out and risk[0] > 0 else math.nan
        if rise >= 2:
            words = f"ends {format_number(rise, 3)} times as high as it began: more steps tell where it goes"
            risen.append(("risk", name, f"The risk of {name} {words}"))
    if below:
        most = format_number(max(below.values()), 3)
        names = ", ".join(subsample(list(below), most_names))
        yield f"The infimum that was given is too high: the risk of {names} is up to {most} below it"
    yield from _merged(risen, most_names)


def _merged(remarks: Iterable[tuple[str, str, str]], most: int = 3) -> Iterator[str]:
    """Yield remarks of runs, given as a subject, the name of the run and the remark: of more than `most` the first."""
    by_subject: dict[str, list[tuple[str, str]]] = {}
    for subject, name, remark in remarks:
        by_subject.setdefault(subject, []).append((name, remark))
    for group in by_subject.values():
        (_, first), (last, _) = group[0], group[-1]
        if len(group) > most:
            yield f"{first}; likewise {len(group) - 1} more runs, up to {last}"
        else:
            yield from (remark for _, remark in group)


def warnings_of_runs(dataset: LabelledArrays, statements: StatementsOfRuns | None = None) -> Iterator[str]:
    """Yield how each run ended that came neither to its limit nor to what was asked, and what fails at the edge.

    The `statements` about the edge are by default `edge_statements` of the data set.
    """
    shown, ended = read_runs(dataset), []
    statements = edge_statements(dataset) if statements is None else statements
    for run in shown.runs:
        if not run.outcome.as_expected:
            words = run.outcome.words
            at = f"step {run.steps}" if run.outcome == Outcome.DIVERGED else f"t = {format_number(run.end_time, 4)}"
            ended.append((words, run.run.name, f"{run.run.name}: {words} at {at} ({run.outcome.meaning})"))
    yield from _merged(ended)
    yield from risk_remarks(shown)
    yield from _merged(
        (statement.name, about.run.name, f"{about.run.name}: {failure_of(statement)}")
        for about, statement in failing_statements(statements)
    )


def ended_as_expected(dataset: LabelledArrays, statements: StatementsOfRuns | None = None) -> bool:
    """Tell whether the flow came to its limit, or to what was asked, and none of the `statements` fails."""
    shown = read_runs(dataset)
    statements = edge_statements(dataset) if statements is None else statements
    done = not shown.has_flow or shown.flow.outcome.as_expected
    return done and not failing_statements(statements)


def summary(dataset: LabelledArrays, statements: StatementsOfRuns | None = None) -> dict[str, Any]:
    """Return the numbers of the runs in the types of JSON; `None` for what is not finite or does not apply.

    Args:
        dataset: Columns of trajectories, or their data set.
        statements: What is said of the runs at the edge of stability; by default `edge_statements` of the data set.

    Returns:
        The numbers, by the names of summary.json.
    """
    shown = read_runs(dataset)
    statements = edge_statements(dataset) if statements is None else statements
    bounds = shown.bounds
    names = probe_names(dataset)
    probed = [{"probes": plain(ends_of(run, names))} if names else {} for run in shown.runs]
    models = [
        {key: value if isinstance(value, str) else finite_or_none(value) for key, value in row.items()}
        for row in model_rows(dataset)
    ]
    return {
        "flow": _summary_of_flow(shown.flow) | probed[0] if shown.has_flow else None,
        "descent": [
            _summary_beside_flow(run) | ends for run, ends in zip(shown.others, probed[shown.has_flow :], strict=True)
        ],
        "bounds": None if bounds is None else {"lower": finite_or_none(bounds[0]), "upper": finite_or_none(bounds[1])},
        "critical_learning_rate": finite_or_none(shown.critical_learning_rate),
        **({"models": models} if models else {}),
        **({"statements": statements_summary(statements)} if statements else {}),
    }


def _summary_of_flow(flow: RecordedRun) -> dict[str, Any]:
    gradients = flow.number("gradients")
    return {
        "outcome": flow.outcome.name,
        "meaning": flow.outcome.meaning,
        "time": finite_or_none(flow.end_time),
        "steps": flow.steps,
        "rejected_steps": int(flow.number("rejected_steps")),
        "method": str(flow.part["solver"].values),
        "gradients": None if math.isnan(gradients) else int(gradients),
        "products": int(flow.number("products")),
        "loosened": finite_or_none(flow.number("loosened")),
        "order": finite_or_none(flow.number("order")),
        **_summary_of_end(flow),
    }


def _summary_beside_flow(run: RecordedRun) -> dict[str, Any]:
    curvature, last = run.run.edge.curvature, run.last_rate
    edge = {"threshold": finite_or_none(float(run.edge_along(curvature)[-1])), "threshold_of": curvature}
    scheduled = {"final_learning_rate": finite_or_none(last)} if run.is_scheduled else {}
    # Where the gradient flow would go from the points of the run, if that was asked.
    known = np.isfinite(run.along(LIMIT.name))
    names = {"time": "time", "sharpness": LIMIT.name, "error": ERROR.name}
    limits = {key: list(map(finite_or_none, run.along(name)[known])) for key, name in names.items()}
    return {
        **({} if run.run.is_descent else {"dynamics": run.run.dynamics}),
        **({"branch": run.run.branch} if run.run.branch else {}),
        "learning_rate": finite_or_none(run.run.learning_rate),
        **scheduled,
        "outcome": run.outcome.name,
        "steps": run.steps,
        "time": finite_or_none(run.end_time),
        **_summary_of_end(run),
        "distance_to_flow": finite_or_none(run.number("distance_to_flow")),
        "distance_time": finite_or_none(run.number("distance_time")),
        "crossing_time": finite_or_none(run.number("crossing_time")),
        "two_over_eta": None if last is None else finite_or_none(2 / last),
        **({} if run.run.has_edge_of_descent else edge),
        **({"flow_limits": limits} if known.any() else {}),
    }


def _summary_of_end(run: RecordedRun) -> dict[str, float | None]:
    return {name: finite_or_none(run.number(f"final_{name}")) for name in MEASURES}
