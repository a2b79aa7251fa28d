"""What the statements of the theory came to: as tables for the terminal, as a summary for a file, and as warnings."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from ..formatting import finite_or_none, format_number
from ..formatting.terminal import empty_table
from ..results import TheoryResults
from ..tables.statements import failure_of, remarks_of_statements, sides_table, summary_of_statement
from ..theory import LargeProductsSample, Statement, Verdict

_PLURALS = {
    Verdict.HOLDS: "hold",
    Verdict.FAILS: "fail",
    Verdict.ASSUMPTION_NOT_MET: "assumption not met",
    Verdict.NOT_APPLICABLE: "not applicable",
    Verdict.NOT_MEASURED: "not measured",
    Verdict.NOT_DECIDED: "not decided",
}


def theory_tables(results: TheoryResults, title: str) -> list[Table]:
    """Return the table of the statements, and that of Lemma 3, as far as there is something in them.

    Args:
        results: What was checked.
        title: What stands above the first.

    Returns:
        The tables. A row is a statement at one depth, with the least margin of all flows and the sides where it is met.
    """
    tables = []
    if results.flows:
        tables.append(_statement_table(results, f"{title}: the theory"))
    if results.large_products:
        tables.append(_large_products_table(results.large_products, f"{title}: Lemma 3"))
    return tables


def _statement_table(results: TheoryResults, title: str) -> Table:
    groups, silent = _grouped(results)
    shown = [statement for group in groups.values() for statement in group]
    counts = [f"L = {depth}: {statement.note}" for depth, statement in results.convergence.items()]
    several = len({checked.features for checked in results.flows}) > 1
    rows = []
    for (_, depth, features), group in groups.items():
        about = (str(depth), *([str(features or "")] if several else []))
        rows.append((_tightest(group), about, _verdicts(group)))
    return sides_table(title, [*counts, *remarks_of_statements(shown, silent)], ("L", "d") if several else ("L",), rows)


def _grouped(results: TheoryResults) -> tuple[dict[tuple[str, int, int | None], list[Statement]], list[str]]:
    """Return the statements by name, depth and features, and the names of those that apply nowhere."""
    by_name: dict[str, dict[tuple[str, int, int | None], list[Statement]]] = {}
    for checked in results.flows:
        for statement in checked.statements:
            key = (statement.name, checked.depth, checked.features)
            by_name.setdefault(statement.name, {}).setdefault(key, []).append(statement)
    for depth, statement in results.convergence.items():
        by_name.setdefault(statement.name, {})[statement.name, depth, None] = [statement]
    silent = [
        name
        for name, groups in by_name.items()
        if all(one.verdict is Verdict.NOT_APPLICABLE for group in groups.values() for one in group)
    ]
    return {key: group for name in by_name if name not in silent for key, group in by_name[name].items()}, silent


def _tightest(group: Sequence[Statement]) -> Statement:
    """Return the statement with the least margin, or the largest value where there is no other side."""
    judged = [statement for statement in group if statement.margin is not None]
    if judged:
        return min(judged, key=lambda statement: statement.margin or 0.0)
    return max(group, key=lambda statement: -1.0 if statement.sides[0] is None else statement.sides[0])


def _verdicts(group: Sequence[Statement]) -> str:
    if len(group) == 1:
        return str(group[0].verdict)
    counts = Counter(statement.verdict for statement in group)
    return ", ".join(f"{counts[verdict]} {_PLURALS[verdict]}" for verdict in Verdict if counts[verdict])


def _large_products_table(samples: Sequence[LargeProductsSample], title: str) -> Table:
    total = sum(sample.initializations for sample in samples)
    found = [sample.statement() for sample in samples]
    undecided = sum(statement.verdict is Verdict.ASSUMPTION_NOT_MET for statement in found)
    remarks = [f"{total} initializations; a failure is a θ, random or adversarial, that breaks a bound"]
    if any(statement.verdict is Verdict.NOT_APPLICABLE for statement in found):
        remarks.append("Not applicable: the bound is one or more, no probability")
    if undecided:
        remarks.append(f"Assumption not met, {undecided} times: so many initializations do not decide it")
    table = empty_table(title, remarks, gap=0)
    for header in ("u", "s", "d", "L", "fail at\nrandom θ", "fail at\nsome θ", "95 %\ninterval", "bound"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for sample, statement in zip(samples, found, strict=True):
        case, (low, high) = sample.case, sample.interval
        table.add_row(
            *(f"{value:g}" for value in (case.deviation, case.scale, case.width, case.depth)),
            str(sample.random_failures),
            f"{sample.failures}",
            f"[{format_number(low, 2)}, {format_number(high, 2)}]",
            format_number(case.failure_bound, 3),
            str(statement.verdict),
        )
    return table


def theory_summary(results: TheoryResults) -> dict[str, Any]:
    """Return everything that was checked in the types of JSON; sides are those where the margin is least."""
    flows = [
        {
            "depth": checked.depth,
            "features": checked.features,
            "condition": finite_or_none(checked.condition),
            "repetition": checked.repetition,
            "outcome": checked.outcome.name,
            "steps": checked.steps,
            "time": finite_or_none(checked.time),
            "statements": [summary_of_statement(statement) for statement in checked.statements],
        }
        for checked in results.flows
    ]
    samples = [
        {
            "deviation": sample.case.deviation,
            "scale": sample.case.scale,
            "width": sample.case.width,
            "depth": sample.case.depth,
            "initializations": sample.initializations,
            "random_failures": sample.random_failures,
            "failures": sample.failures,
            "interval": list(sample.interval),
            "bound": sample.case.failure_bound,
            "largest_over_bound": sample.largest,
            "least_over_bound": sample.least,
            "verdict": str(sample.statement().verdict),
        }
        for sample in results.large_products
    ]
    convergence = [{"depth": depth, **summary_of_statement(one)} for depth, one in results.convergence.items()]
    return {"flows": flows, "convergence": convergence, "lemma_3": samples}


def warnings_of_theory(found: TheoryResults) -> Iterator[str]:
    """Yield every statement that fails, once, with the number of flows of which it does."""
    checked = [
        *(one for flow in found.flows for one in flow.statements),
        *(one.statement() for one in found.large_products),
    ]
    failed = Counter(failure_of(statement) for statement in checked if statement.verdict is Verdict.FAILS)
    for words, count in failed.items():
        yield words if count == 1 else f"{words}, {count} times"
