"""Statements of theory and about runs, and claims about figures: tables for the terminal, summaries for a file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..comparison import RunStatements
from ..formatting import finite_or_none, format_number
from ..formatting.terminal import empty_table
from ..theory import Claim, Statement, Verdict


def table_of_statements(found: Sequence[Statement], title: str = "") -> Table:
    """Return the table of statements about one thing, with what is known of those that do not hold below it.

    Args:
        found: The statements.
        title: What stands above it.

    Returns:
        The table.
    """
    silent = [one.name for one in found if one.verdict is Verdict.NOT_APPLICABLE]
    shown = [one for one in found if one.verdict is not Verdict.NOT_APPLICABLE]
    return sides_table(title, remarks_of_statements(shown, silent), (), [(one, (), str(one.verdict)) for one in shown])


def sides_table(
    title: str,
    remarks: Sequence[str],
    labels: Sequence[str],
    rows: Iterable[tuple[Statement, Sequence[str], str]],
) -> Table:
    """Return a table with both sides and the margin of statements.

    The names of the columns are right whether or not a statement holds. A row is a statement, what stands under
    `labels`, and the verdict in words.
    """
    table = empty_table(title, remarks)
    table.add_column("statement")
    for header in (*labels, "claimed\nsmaller", "claimed\nlarger", "margin"):
        table.add_column(header, justify="right" if header else "left", no_wrap=True)
    table.add_column("verdict")
    for statement, about, verdict in rows:
        cells = (format_number(value, 4) for value in (*statement.sides, statement.margin))
        table.add_row(statement.name, *about, *cells, verdict)
    return table


def remarks_of_statements(shown: Sequence[Statement], silent: Sequence[str], most: int = 12) -> list[str]:
    """Return the lines under the table: what is known of statements that do not hold, each once."""
    remarks = _shortcomings(shown)
    if len(remarks) > most:
        remarks = [*remarks[:most], f"and {len(remarks) - most} more, in summary.json"]
    return [*remarks, f"Not applicable: {', '.join(silent)}"] if silent else remarks


def _shortcomings(shown: Sequence[Statement]) -> list[str]:
    """Return which statements fail, and then of which an assumption is not met; each once."""
    failed = [failure_of(statement) for statement in shown if statement.verdict is Verdict.FAILS]
    unmet = [f"{s.name}: {s.unmet}" for s in shown if s.verdict is Verdict.ASSUMPTION_NOT_MET]
    return list(dict.fromkeys([*failed, *unmet]))


def summary_of_statement(statement: Statement) -> dict[str, Any]:
    """Return a statement in the types of JSON, with the sides where the margin is least."""
    smaller, larger = statement.sides
    return {
        "name": statement.name,
        "claim": statement.claim,
        "verdict": str(statement.verdict),
        "smaller": finite_or_none(smaller),
        "larger": finite_or_none(larger),
        "margin": finite_or_none(statement.margin),
        "assumptions": [
            {"name": assumption.name, "met": assumption.met, "found": assumption.found}
            for assumption in statement.assumptions
        ],
        "note": statement.note,
    }


def failure_of(statement: Statement) -> str:
    """Return in words that a statement fails."""
    return f"{statement.name} fails: it does not hold that {statement.claim}"


def table_of_run_statements(found: Sequence[RunStatements], title: str) -> Table:
    """Return the table of the statements about runs that apply, each with both sides where the margin is least.

    Args:
        found: The statements, of which there is one at least.
        title: What stands above it.

    Returns:
        The table. Below it is what a statement says that fails, what is known of others, and what does not apply.
    """
    pairs = [(about, one) for about in found for one in about.statements if one.verdict is not Verdict.NOT_APPLICABLE]
    shown = [statement for _, statement in pairs]
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
    remarks = list(dict.fromkeys([*_shortcomings(shown), *notes, *reasons]))
    rows = [
        (statement, (about.run.method, format_number(about.run.learning_rate, 4)), str(statement.verdict))
        for about, statement in pairs
    ]
    heading = "statements at the edge of stability"
    return sides_table(f"{title}: {heading}" if title else heading, remarks, ("", "η"), rows)


def statements_summary(statements: Sequence[RunStatements]) -> list[dict[str, Any]]:
    """Return every statement in the types of JSON, with the run that it is about."""
    return [
        {
            "method": about.run.method,
            "learning_rate": finite_or_none(about.run.learning_rate),
            **summary_of_statement(statement),
            "source": statement.source,
        }
        for about in statements
        for statement in about.statements
    ]


def failing_statements(statements: Sequence[RunStatements]) -> list[tuple[RunStatements, Statement]]:
    """Return the statements that fail, each with what else is said of its run."""
    return [(about, one) for about in statements for one in about.statements if one.verdict is Verdict.FAILS]


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
