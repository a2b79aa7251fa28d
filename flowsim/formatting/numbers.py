"""Numbers in tables and in JSON."""

import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def format_number(value: float | None, digits: int, *, width: int = 8) -> str:
    """Return `value` to so many significant digits in at most `width` characters; a dash for `None` and NaN."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    shown = f"{value:.{digits}g}"
    if 1 <= abs(value) < 1e6:  # no exponent yet
        shown = f"{float(shown):.10g}"
    return shown if len(shown) <= width else f"{value:.{digits - 1}g}"


def rounded_down(value: float, digits: int) -> float:
    """Return the largest number of so many significant digits that is not above a positive `value`.

    A least value that is rounded so is the number that a message prints of it.
    """
    with decimal.localcontext(prec=digits, rounding=decimal.ROUND_FLOOR):
        return float(+decimal.Decimal(value))


def rounded_up(value: float, digits: int) -> float:
    """Return the smallest number of so many significant digits that is not below a positive `value`."""
    with decimal.localcontext(prec=digits, rounding=decimal.ROUND_CEILING):
        return float(+decimal.Decimal(value))


def with_entries(columns: Iterable[tuple[str, str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[tuple]:
    """Return the columns of a table, each a header, a key of the rows and a form, without those of dashes alone.

    Without rows there are no dashes either, and every column stays.
    """
    shown = []
    for column in columns:
        values = [row[column[1]] for row in rows if row[column[1]] is not None]
        if not rows or not all(isinstance(value, float) and math.isnan(value) for value in values):
            shown.append(column)
    return shown


def finite_or_none(value: Any) -> float | None:
    """Return `value` as a float, `None` for what JSON has no number for."""
    return None if value is None or not math.isfinite(value) else float(value)


def subsample(entries: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` of the entries, evenly taken, the first and the last among them."""
    import numpy as np  # not above: `import flowsim` does without

    if len(entries) <= most:
        return list(entries)
    return [entries[i] for i in np.linspace(0, len(entries) - 1, most).round().astype(int)]
