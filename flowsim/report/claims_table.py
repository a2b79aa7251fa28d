"""Claims as a table for the terminal, and as a summary for a file."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..formatting import finite_or_none
from ..formatting.terminal import empty_table
from ..theory import Claim, Verdict


def claims_table(found: Sequence[Claim], title: str) -> Table:
    """Return the table of claims for the terminal: what is said and expected, what was measured, and the verdict.

    Below it stands why claims are undecided, each reason once.
    """
    reasons = dict.fromkeys(claim.undecided for claim in found if claim.undecided)
    table = empty_table(title, [_counts(found), *(f"{Verdict.NOT_DECIDED}: {reason}" for reason in reasons)])
    table.add_column("claim")
    table.add_column("measured")
    table.add_column("verdict", no_wrap=True)
    for claim in found:
        said = Text.assemble(claim.text, "\n", (claim.expected, "dim"))
        table.add_row(said, Text(claim.measured), Text(str(claim.verdict), style=_style(claim)))
    return table


def _counts(found: Sequence[Claim]) -> str:
    counts = Counter(claim.verdict for claim in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def _style(claim: Claim) -> str:
    return "bold" if claim.verdict is Verdict.FAILS else ""


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
