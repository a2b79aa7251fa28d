"""What the paper says its figures show, checked on a sweep."""

import xarray

from ...comparison import Comparison
from .claim import Claim


def claims(number: int, dataset: xarray.Dataset, comparison: Comparison | None = None) -> tuple[Claim, ...]:
    """Return what the paper says that figure `number` shows, each with the numbers measured."""
    raise NotImplementedError
