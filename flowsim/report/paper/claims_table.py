"""Claims as a table for the terminal, and as a summary for a file."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..table import finite_or_none
from ..terminal import empty_table
from .claim import Claim

_VERDICTS = {True: "holds", False: "fails", None: "not measured"}


def claims_table(found: Sequence[Claim], title: str) -> Table:
    """Return the table of claims for the terminal: what is said and expected, what was measured, and the verdict."""
    table = empty_table(title, [_counts(found)])
    table.add_column("claim", ratio=4)
    table.add_column("measured", ratio=4)
    table.add_column("verdict", min_width=8)
    for claim in found:
        said = Text.assemble(claim.text, "\n", (claim.expected, "dim"))
        table.add_row(said, Text(claim.measured), Text(_VERDICTS[claim.holds], style=_style(claim)))
    return table


def _counts(found: Sequence[Claim]) -> str:
    counts = {word: sum(claim.holds is verdict for claim in found) for verdict, word in _VERDICTS.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _style(claim: Claim) -> str:
    return "bold" if claim.holds is False else ""


def claims_summary(found: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return the claims in the types of JSON; `None` for a number that is not finite."""
    return [
        {
            "claim": claim.text,
            "expected": claim.expected,
            "measured": claim.measured,
            "holds": claim.holds,
            "numbers": {name: finite_or_none(value) for name, value in claim.numbers.items()},
        }
        for claim in found
    ]
