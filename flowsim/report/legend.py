"""One legend for a whole figure."""

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from .style import BOUND, THRESHOLD, THRESHOLD_ID
from .thinning import thinned

_COLUMNS, _WIDEST, _MOST_DASHES = 7, 0.97, 3


def legend_above(figure: Figure, *, thresholds: bool = False, bounds: bool = False, edge: str = r"$2/\eta$") -> None:
    """Put one legend of all panels above them, in as few rows as the figure is wide; not of panels that have their own.

    `thresholds` and `bounds` add an entry for the dashed lines, in their colours, which are called `edge`, and for the
    dotted bounds on the sharpness.
    """
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is not None:
            continue
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if thresholds:
        drawn = (line for axes in figure.axes for line in axes.lines if line.get_gid() == THRESHOLD_ID)
        colours = {line.get_color(): None for line in drawn}
        dashes = tuple(Line2D([], [], color=colour, **THRESHOLD) for colour in thinned([*colours], _MOST_DASHES))
        entries[edge] = dashes or Line2D([], [], color="0.4", **THRESHOLD)
    if bounds:
        entries["bounds"] = Line2D([], [], **BOUND)
    beside = {tuple: HandlerTuple(ndivide=None)}
    for rows in range(math.ceil(len(entries) / _COLUMNS), len(entries) + 1):
        columns = math.ceil(len(entries) / rows)
        legend = figure.legend(
            list(entries.values()), list(entries), loc="outside upper center", ncols=columns, handler_map=beside
        )
        if columns == 1 or legend.get_window_extent().width <= _WIDEST * figure.bbox.width:
            break
        legend.remove()
