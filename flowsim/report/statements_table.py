"""Statements at the edge of stability, and claims about figures: tables for the terminal, and summaries for a file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import xarray
from rich.table import Table
from rich.text import Text

from ..comparison import RunStatements, edge_statements
from ..formatting import finite_or_none, format_number
from ..formatting.terminal import empty_table
from ..theory import Claim, Statement, Verdict
from .theory_table import failure_of, sides_table, summary_of_statement


def statements_table(dataset: xarray.Dataset, title: str) -> Table | None:
    """Return the table of the statements that apply, with the others below it; `None` where there are none.

    Both sides stand there as they are where the margin is least.
    """
    found = edge_statements(dataset)
    return table_of_run_statements(found, title) if found else None


def table_of_run_statements(found: Sequence[RunStatements], title: str) -> Table:
    """Return the table of statements about runs.

    Args:
        found: The statements, of which there is one at least.
        title: What stands above it.

    Returns:
        The table.
    """
    rows = []
    for about, statement in _shown(found):
        rate = format_number(about.run.learning_rate, 4)
        rows.append((statement, (about.run.method, rate), str(statement.verdict)))
    heading = "statements at the edge of stability"
    return sides_table(f"{title}: {heading}" if title else heading, _remarks(found), ("", "η"), rows)


def _shown(found: Sequence[RunStatements]) -> list[tuple[RunStatements, Statement]]:
    pairs = [(about, statement) for about in found for statement in about.statements]
    return [(about, statement) for about, statement in pairs if statement.verdict is not Verdict.NOT_APPLICABLE]


def _remarks(found: Sequence[RunStatements]) -> list[str]:
    """Return the lines under the table: what a statement says that fails, what is known of others, and of which not."""
    shown = [statement for _, statement in _shown(found)]
    failed = [failure_of(one) for one in shown if one.verdict is Verdict.FAILS]
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


def failing_statements(dataset: xarray.Dataset) -> list[tuple[RunStatements, Statement]]:
    """Return the statements that fail, each with what else is said of its run."""
    return [(about, one) for about, one in _shown(edge_statements(dataset)) if one.verdict is Verdict.FAILS]


def claims_table(found: Sequence[Claim], title: str) -> Table:
    """Return the table of claims for the terminal: what is said and expected, what was measured, and the verdict.

    Args:
        found: The claims.
        title: What stands above it.

    Returns:
        The table. Below it stands why claims are undecided, each reason once.
    """
    counts = Counter(claim.verdict for claim in found)
    counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    reasons = dict.fromkeys(claim.undecided for claim in found if claim.undecided)
    table = empty_table(title, [counted, *(f"{Verdict.NOT_DECIDED}: {reason}" for reason in reasons)])
    table.add_column("claim")
    table.add_column("measured")
    table.add_column("verdict", no_wrap=True)
    for claim in found:
        style = "bold" if claim.verdict is Verdict.FAILS else ""
        said = Text.assemble(claim.text, "\n", (claim.expected, "dim"))
        table.add_row(said, Text(claim.measured), Text(str(claim.verdict), style=style))
    return table


def claims_summary(found: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return the claims in the types of JSON; `None` for a number that is not finite.

    Where a claim is undecided, `undecided` says why.
    """
    return [
        {
            "claim": claim.text,
            "expected": claim.expected,
            "measured": claim.measured,
            "holds": claim.holds,
            "numbers": {name: finite_or_none(value) for name, value in claim.numbers.items()},
            **({"undecided": claim.undecided} if claim.undecided else {}),
        }
        for claim in found
    ]


def warnings_of_claims(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield the claims of figures that do not hold, with what was measured, and how many are not decided, and why."""
    for claim in claims:
        if claim.verdict is Verdict.FAILS:
            yield f"does not hold: {claim.text} ({claim.measured})"
    for reason, count in Counter(claim.undecided for claim in claims if claim.undecided).items():
        yield f"{count} of {len(claims)} claims are not decided: {reason}"
