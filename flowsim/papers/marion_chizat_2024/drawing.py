"""The panels of a figure, put together as the paper has them."""

from collections.abc import Callable, Sequence

import matplotlib
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report.panels.sweep import MEDIANS
from ...report.render_paper import legend_above
from ...report.render_sweep import name_statistic
from ...report.style import STYLE
from ...results.recorded import recorded
from .single_run_panels import draw_single_run

_COLUMN_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT = 3.3, 2.25, 0.35
Panel = Callable[[Axes, xarray.Dataset], None]


def drawn(
    sweep: xarray.Dataset,
    panels: Sequence[Panel],
    *,
    single_runs: xarray.Dataset | None = None,
    sharpness: bool = False,
    edge: str = "",
    statistic: str = MEDIANS,
) -> Figure:
    """Return the figure of some panels of a sweep, with the gradient flow in them.

    Curves are medians over the runs that did not diverge with their quartiles, as in the table, where the paper has
    means with bootstrapped confidence intervals; the probability of divergence has Wilson's interval. The trajectories
    `single_runs` give a row of two more panels for each of their learning rates. With `sharpness` the legend names the
    bounds; it calls the dashed lines `edge`, where there are some. `statistic` stands below the panels.
    """
    shown = None if single_runs is None else recorded(single_runs)
    descents = () if shown is None else tuple(run for run in shown.others if run.run.is_descent)
    count = len(panels) + 2 * len(descents)
    with matplotlib.rc_context(STYLE):
        figure, axes = _empty_figure(count)
        for panel, ax in zip(panels, axes, strict=False):
            panel(ax, sweep)
        if shown is not None:
            for row, descent in enumerate(descents, start=1):
                draw_single_run(axes[2 * row], axes[2 * row + 1], sweep, shown.flow, descent)
        if count > 1:
            _letter(axes, len(panels))
        name_statistic(figure, statistic)
        legend_above(figure, thresholds=bool(edge), bounds=sharpness, edge=edge)
    return figure


def _empty_figure(count: int) -> tuple[Figure, list[Axes]]:
    columns, rows = min(count, 2), (count + 1) // 2
    size = (_COLUMN_WIDTH * columns, _PANEL_HEIGHT * rows + _LEGEND_HEIGHT)
    figure = Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def _letter(axes: list[Axes], panels: int) -> None:
    """Write the paper's letter of each panel at its top left, c1 and c2 where the paper has a row in one."""
    for index, ax in enumerate(axes):
        row, column = divmod(index - panels, 2)
        letter = chr(ord("a") + index) if index < panels else f"{chr(ord('a') + panels + row)}{column + 1}"
        ax.set_title(f"({letter})", loc="left", fontsize=8)
