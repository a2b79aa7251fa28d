"""Names of columns and arrays that are chosen among those that there are."""

import difflib
import reprlib
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice

from .arrays import DataError

Names = str | Sequence[str]

_MOST_COMPARED = 1000  # names among which the nearest to an unknown one is looked for


def known(place: str, kind: str, chosen: Names, available: Collection[str]) -> list[str]:
    """Return the chosen names; `available` are looked up, so that their number costs nothing.

    Raises `DataError` where there is none, or no `kind`, a column or an array, of that name.
    """
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    listing = ", ".join(map(reprlib.repr, islice(available, 20))) + (", ..." if len(available) > 20 else "")
    if not names:
        raise DataError(f"{place}: no {kind} is named or left: expected at least one of {listing}")
    for name in names:
        if name not in available:
            folded = {other.casefold(): other for other in islice(available, _MOST_COMPARED)}
            nearest = difflib.get_close_matches(str(name).casefold(), folded, n=1)
            hint = f" (did you mean {folded[nearest[0]]!r}?)" if nearest else ""
            raise DataError(f"{place}: there is no {kind} {reprlib.repr(name)}{hint}: expected one of {listing}")
    return names


def refuse_repeated(place: str, kind: str, names: Sequence[str]) -> None:
    """Raise `DataError` for a name that stands there twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"{place}: {kind} {name!r} is named {count} times: expected once")
