"""Figures of any sweep."""

import xarray
from matplotlib.figure import Figure


def sweep_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return figures of a sweep by name."""
    raise NotImplementedError
