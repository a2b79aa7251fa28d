"""The numbers of a sweep."""

from typing import Any

import xarray
from rich.table import Table


def sweep_table(dataset: xarray.Dataset, title: str) -> Table:
    """Return the table of a sweep for the terminal."""
    raise NotImplementedError


def sweep_summary(dataset: xarray.Dataset) -> dict[str, Any]:
    """Return the numbers of a sweep in the types of JSON."""
    raise NotImplementedError
