"""What is left of a long list where there is room for a few entries."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def thinned(entries: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` of the entries, evenly taken, the first and the last among them."""
    if len(entries) <= most:
        return list(entries)
    return [entries[i] for i in np.linspace(0, len(entries) - 1, most).round().astype(int)]
