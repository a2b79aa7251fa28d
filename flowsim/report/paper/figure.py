"""The figures of the paper."""

import xarray
from matplotlib.figure import Figure

from ...comparison import Comparison


def paper_figure(number: int, dataset: xarray.Dataset, comparison: Comparison | None = None) -> Figure:
    """Return figure `number` of the paper, drawn from the sweep `dataset`, with the gradient flow in it."""
    raise NotImplementedError
