"""Certified eigenvalues as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from ..formatting import format_number
from ..formatting.terminal import empty_table

_DIGITS = 10
_MOST_ROWS = 24


def eigenvalues_table(rows: Mapping[str, tuple[Any, Any, Any]], products: Any) -> Table:
    """Return the table of eigenvalues by name: each with its residual, and whether it is certified.

    A row is (value, residual, converged), all numbers.
    """
    table = empty_table("", [f"{int(np.asarray(products))} Hessian–vector products"])
    table.add_column("", no_wrap=True)
    for header in ("eigenvalue", "residual"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in list(rows)[:_MOST_ROWS]:
        value, residual, converged = (np.asarray(one).item() for one in rows[name])
        said = Text("certified") if converged else Text("not converged", style="bold")
        table.add_row(name, f"{value:.{_DIGITS}g}", format_number(residual, 2), said)
    if len(rows) > _MOST_ROWS:
        table.add_row("…", "", "", f"{len(rows) - _MOST_ROWS} more")
    return table
