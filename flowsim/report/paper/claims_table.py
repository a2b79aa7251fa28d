"""Claims as a table for the terminal, and as a summary for a file."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from .claim import Claim


def claims_table(found: Sequence[Claim], title: str) -> Table:
    """Return the table of claims for the terminal."""
    raise NotImplementedError


def claims_summary(found: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return the claims in the types of JSON."""
    raise NotImplementedError
