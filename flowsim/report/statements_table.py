"""What the statements about descent at the edge of stability and its models came to: a table, and a summary."""

from collections.abc import Sequence
from typing import Any

import xarray
from rich.table import Table

from ..comparison import RunStatements, edge_statements
from ..formatting import finite_or_none, format_number
from ..formatting.terminal import empty_table
from ..theory import Statement, Verdict
from .theory_table import summary_of_statement

_TITLE = "statements at the edge of stability"


def statements_table(dataset: xarray.Dataset, title: str) -> Table | None:
    """Return the table of the statements that apply, with the others below it; `None` where there are none.

    Both sides stand there as they are where the margin is least.
    """
    found = edge_statements(dataset)
    return table_of_run_statements(found, title) if found else None


def table_of_run_statements(found: Sequence[RunStatements], title: str) -> Table:
    """Return the table of statements about runs, of which there is one at least."""
    table = empty_table(f"{title}: {_TITLE}" if title else _TITLE, _remarks(found))
    table.add_column("statement")
    for header in ("", "η", "smaller", "larger", "margin"):
        table.add_column(header, justify="right" if header else "left", no_wrap=True)
    table.add_column("verdict")
    for about, statement in _shown(found):
        sides = (format_number(value, 4) for value in (*statement.sides, statement.margin))
        rate = format_number(about.run.learning_rate, 4)
        table.add_row(statement.name, about.run.method, rate, *sides, str(statement.verdict))
    return table


def _shown(found: Sequence[RunStatements]) -> list[tuple[RunStatements, Statement]]:
    pairs = [(about, statement) for about in found for statement in about.statements]
    return [(about, statement) for about, statement in pairs if statement.verdict is not Verdict.NOT_APPLICABLE]


def _remarks(found: Sequence[RunStatements]) -> list[str]:
    """Return the lines under the table: what a statement says that fails, what is known of others, and of which not."""
    shown = [statement for _, statement in _shown(found)]
    failed = [f"{one.name} fails: {one.claim}" for one in shown if one.verdict is Verdict.FAILS]
    unmet = [f"{one.name}: {one.unmet}" for one in shown if one.verdict is Verdict.ASSUMPTION_NOT_MET]
    notes = [f"{one.name}: {one.note}" for one in shown if one.times is not None and one.note]
    silent: dict[tuple[float | None, str], list[str]] = {}
    for about in found:
        for one in about.statements:
            if one.verdict is Verdict.NOT_APPLICABLE:
                silent.setdefault((about.run.learning_rate, one.note), []).append(one.name)
    reasons = [
        f"Not applicable at η = {format_number(rate, 4)}: {', '.join(dict.fromkeys(names))}; {reason}"
        for (rate, reason), names in silent.items()
    ]
    return list(dict.fromkeys([*failed, *unmet, *notes, *reasons]))


def statements_summary(dataset: xarray.Dataset) -> list[dict[str, Any]]:
    """Return every statement in the types of JSON, with the run that it is about; empty where there are none."""
    return [
        {
            "method": about.run.method,
            "learning_rate": finite_or_none(about.run.learning_rate),
            **summary_of_statement(statement),
            "source": statement.source,
        }
        for about in edge_statements(dataset)
        for statement in about.statements
    ]


def any_fails(dataset: xarray.Dataset) -> bool:
    """Tell whether a statement fails."""
    return any(one.verdict is Verdict.FAILS for about in edge_statements(dataset) for one in about.statements)
