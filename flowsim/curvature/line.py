"""Certified eigenvalues as text, a line or a table, whatever the leaves are: numbers, batches, tracers, nothing."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.core import Tracer

from ..formatting import format_number

if TYPE_CHECKING:
    from rich.table import Table

Rows = dict[str, tuple[Any, Any, Any]]
"""Eigenvalues by name: each with its residual, and whether it converged."""


def tables_of_rows(pairs: Any, *, digits: int = 10, most_rows: int = 24) -> "list[Table] | None":
    """Return the table of certified eigenvalues that have `_rows` and `products`; `None` for a batch of them.

    The eigenvalues have so many `digits`; rows beyond `most_rows` are counted.
    """
    from rich.text import Text  # not above: rich takes a moment to import

    from ..formatting.terminal import empty_table

    rows = pairs._rows()
    if rows is None:
        return None
    table = empty_table("", [f"{int(np.asarray(pairs.products))} Hessian–vector products"])
    table.add_column("", no_wrap=True)
    for header in ("eigenvalue", "residual"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in list(rows)[:most_rows]:
        value, residual, converged = (np.asarray(one).item() for one in rows[name])
        verdict = Text("certified") if converged else Text("not converged", style="bold")
        table.add_row(name, f"{value:.{digits}g}", format_number(residual, 2), verdict)
    if len(rows) > most_rows:
        table.add_row("…", "", "", f"{len(rows) - most_rows} more")
    return [table]


def certified(value: Any, residual: Any, converged: Any) -> str:
    """Return "4.512 ± 2e-11", and whether the residual is too large; the shape of what is not a number."""
    number, error, sure = _scalar(value), _scalar(residual), _scalar(converged)
    if number is None or error is None or sure is None:
        return shape_of(value)
    return f"{number:.6g} ± {error:.1g}{'' if sure else ', not converged'}"


def after(products: Any) -> str:
    """Return ", 24 products", or nothing where that is not a number."""
    return "" if is_no_number(products) else f", {scalar_of(products)} products"


def is_no_number(leaf: Any) -> bool:
    """Tell whether a leaf is anything but one number: a batch, traced, or deleted."""
    return _scalar(leaf) is None


def scalar_of(leaf: Any, form: str = ".6g") -> str:
    """Return a number as text, or the shape of what is not one."""
    number = _scalar(leaf)
    return shape_of(leaf) if number is None else f"{number:{form}}"


def shape_of(leaf: Any) -> str:
    """Return type and shape as JAX writes them, float64[3,2], or the type of what has none."""
    shape = getattr(leaf, "shape", None)
    if shape is None:
        return type(leaf).__name__
    return f"{getattr(leaf, 'dtype', 'no numbers')}[{','.join(map(str, shape))}]"


def numbers_of(leaf: Any) -> np.ndarray | None:
    """Return an array on the host, `None` for what holds no numbers (any more)."""
    if leaf is None or isinstance(leaf, Tracer):
        return None
    try:
        found = np.asarray(leaf)
    except Exception:  # an array that was donated, or lies on another host
        return None
    return found if found.dtype.kind in "biuf" else None


def _scalar(leaf: Any) -> float | None:
    found = numbers_of(leaf)
    return None if found is None or found.ndim else float(found)
