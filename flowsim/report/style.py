"""How figures look: one column of a paper, readable in grey and by the colour blind."""

import zlib
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..columns import Run
from ..results.store import FONTS

STYLE: dict[Any, Any] = {
    "figure.figsize": (3.3, 2.5),
    "font.size": 7.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.2,
    "legend.borderpad": 0.1,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.2,
    "lines.markeredgewidth": 0.5,
    "mathtext.fontset": "dejavusans",
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,
}
"""Settings for `matplotlib.rc_context`; figures made under them may be saved outside of it."""


class Drawing(Figure):
    """A figure that `savefig` writes with TrueType fonts into PDF, PS and EPS, whatever the global settings are."""

    def savefig(self, *arguments: Any, **options: Any) -> None:
        """Save the figure, as Matplotlib's does."""
        # Matplotlib reads the font type when it writes a file, long after the context in which the figure was made.
        with matplotlib.rc_context(FONTS):
            super().savefig(*arguments, **options)


FLOW: dict[str, Any] = {"color": "black", "linewidth": 2.4, "solid_capstyle": "round", "zorder": 2.4}
BOUND: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": ":", "zorder": 2.05}
LIMITS: dict[str, Any] = {
    "color": "black",
    "linewidth": 0.7,
    "markersize": 2.4,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "zorder": 3.2,
}
INITIAL: dict[str, Any] = {"color": "0.45", "linewidth": 1.0, "linestyle": (0, (6, 1.5, 1, 1.5)), "zorder": 2.6}
POINTS: dict[str, Any] = {"color": "0.6", "marker": "o", "markersize": 2.2, "zorder": 2.3}
POINTS |= {"alpha": 1.0}  # also where the page shows them faint
THRESHOLD: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 2.05}
THRESHOLD_ID = "threshold"
"""By which a legend knows the lines 2/η, which have no label of their own."""
CROSSING: dict[str, Any] = {
    "marker": "*",
    "markersize": 8.0,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
    "markeredgewidth": 0.7,
    "zorder": 4.0,
}


def set_ticks(axes: Axes) -> None:
    """Give the ticks of both axes their look: they are made when a figure is drawn, after the context of the style."""
    axes.tick_params(which="major", labelsize=7.0, width=0.6, length=3.0, pad=2.0)
    axes.tick_params(which="minor", width=0.4, length=1.6)


_MARKERS = "os^Dv<P>X"
# Of dynamics other than gradient descent: their colours, and dashes that are not those of 2/η.
_OTHER_MAPS = ("plasma", "autumn", "cool")
_FORK_DASHES = ((0, (3, 1)), (0, (1, 1)), (0, (6, 1, 1, 1)), (0, (2, 2)))
_OTHER_DASHES = ((0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (7, 1)))
# Of folders side by side: the colours of Okabe and Ito (2008) that stand out on white, and the dashes of their runs.
_FOLDER_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_RUN_DASHES = ("-", (0, (4, 1)), (0, (5, 1, 1, 1)), (0, (2, 1)), (0, (8, 1.5)), (0, (3, 1, 1, 1, 1, 1)))


def run_look(run: Run, *, calm: bool = True) -> dict[str, Any]:
    """Return the look of the curve of `run`, the same in all figures.

    Dynamics other than gradient descent have dashes and colours of their own, by their name.
    """
    if run.is_flow:
        return FLOW
    look = descent_look(run.index, run.count, calm=calm)
    if run.fork:
        look |= {"linestyle": _FORK_DASHES[(run.fork - 1) % len(_FORK_DASHES)]}
    if run.is_descent:
        return look
    number = zlib.crc32(run.dynamics.encode())
    colour = shade(run.index, run.count, _OTHER_MAPS[number % len(_OTHER_MAPS)])
    return look | {"color": colour, "linestyle": _OTHER_DASHES[number // 7 % len(_OTHER_DASHES)]}


def descent_look(index: int, count: int, *, calm: bool = True) -> dict[str, Any]:
    """Return the look of the `index`-th smallest of `count` learning rates: the larger, the lighter.

    A run that is not calm may oscillate: it is thinner, and lies behind the flow. All levels lie beneath the curves.
    """
    colour = shade(index, count)
    place = {"zorder": 3.0, "linewidth": 1.0} if calm else {"zorder": 2.2, "linewidth": 0.7}
    return {"color": colour, "marker": _MARKERS[index % len(_MARKERS)], "markeredgecolor": "black", **place}


def folder_colour(index: int, count: int) -> Any:
    """Return the colour of the `index`-th of `count` folders that are put side by side."""
    return _FOLDER_COLOURS[index] if count <= len(_FOLDER_COLOURS) else shade(index, count)


def side_by_side_look(run: Run, number: int, colour: Any, *, calm: bool = True) -> dict[str, Any]:
    """Return the look of a run among those of other folders: the colour is its folder's, dashes and marker are its own.

    `number` counts the runs beside the flow by what they are called, so that each looks the same in every folder.
    """
    if run.is_flow:
        return FLOW | {"color": colour, "linewidth": 1.8}
    own = {"linestyle": _RUN_DASHES[number % len(_RUN_DASHES)], "marker": _MARKERS[number % len(_MARKERS)]}
    return descent_look(0, 1, calm=calm) | own | {"color": colour, "markeredgecolor": colour}


def shade(index: int, count: int, colours: str = "viridis", *, darkest: float = 0.2, lightest: float = 0.85) -> Any:
    """Return the `index`-th of `count` colours from the part of a map that is neither black nor lost on white."""
    share = index / (count - 1) if count > 1 else 0.4
    return matplotlib.colormaps[colours](darkest + share * (lightest - darkest))
