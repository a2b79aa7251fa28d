"""Certified eigenvalues as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from ..formatting import format_number
from ..formatting.terminal import empty_table


def eigenvalues_table(
    rows: Mapping[str, tuple[Any, Any, Any]], products: Any, *, digits: int = 10, most_rows: int = 24
) -> Table:
    """Return the table of eigenvalues by name: each with its residual, and whether it is certified.

    A row is (value, residual, converged), all numbers. Values have so many significant `digits`; rows beyond
    `most_rows` are counted.
    """
    table = empty_table("", [f"{int(np.asarray(products))} Hessian–vector products"])
    table.add_column("", no_wrap=True)
    for header in ("eigenvalue", "residual"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in list(rows)[:most_rows]:
        value, residual, converged = (np.asarray(one).item() for one in rows[name])
        said = Text("certified") if converged else Text("not converged", style="bold")
        table.add_row(name, f"{value:.{digits}g}", format_number(residual, 2), said)
    if len(rows) > most_rows:
        table.add_row("…", "", "", f"{len(rows) - most_rows} more")
    return table
