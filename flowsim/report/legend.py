"""One legend for a whole figure."""

import math

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .style import BOUND, THRESHOLD

_COLUMNS, _WIDEST = 7, 0.97


def legend_above(figure: Figure, *, thresholds: bool = False, bounds: bool = False, edge: str = r"$2/\eta$") -> None:
    """Put one legend of all panels above them, in as few rows as the figure is wide; not of panels that have their own.

    `thresholds` and `bounds` add an entry for the dashed lines, which are called `edge`, and for the dotted bounds on
    the sharpness.
    """
    entries: dict[str, Artist] = {}
    for axes in figure.axes:
        if axes.get_legend() is not None:
            continue
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if thresholds:
        entries[edge] = Line2D([], [], color="0.4", **THRESHOLD)
    if bounds:
        entries["bounds"] = Line2D([], [], **BOUND)
    for rows in range(math.ceil(len(entries) / _COLUMNS), len(entries) + 1):
        columns = math.ceil(len(entries) / rows)
        legend = figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= _WIDEST * figure.bbox.width:
            break
        legend.remove()
