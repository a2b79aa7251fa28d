"""The figures of the paper."""

from collections.abc import Callable

import matplotlib
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...comparison import Comparison
from ..legend import legend_above
from ..style import STYLE
from .course_panels import draw_course
from .depth_panel import draw_critical_rates
from .generalization import draw_generalization
from .scale_panels import (
    draw_divergence_probability,
    draw_nonlinear_sharpness,
    draw_sharpness,
    draw_squared_distance,
)

_COLUMN_WIDTH, _PANEL_HEIGHT, _LEGEND_HEIGHT = 3.3, 2.25, 0.35
Panel = Callable[[Axes, xarray.Dataset], None]
_PANELS: dict[int, tuple[Panel, ...]] = {
    1: (draw_squared_distance, draw_sharpness),
    2: (draw_critical_rates,),
    3: (draw_divergence_probability,),
    4: (draw_squared_distance, draw_sharpness),
    5: (draw_divergence_probability,),
    6: (draw_sharpness, draw_generalization),
    7: (draw_nonlinear_sharpness,),
}
FIGURES = tuple(_PANELS)


def paper_figure(number: int, dataset: xarray.Dataset, comparison: Comparison | None = None) -> Figure:
    """Return figure `number` of the paper, 1 to 7, drawn from the sweep `dataset`, with the gradient flow in it.

    Bands are 95 % confidence intervals over repetitions: for means, of the runs that did not diverge, by the percentile
    bootstrap as in the paper; for the probability of divergence, Wilson's. `comparison` gives panels c and d of Figures
    1 and 4, a row for each of its learning rates; without it they are left out. Raises `ValueError` for another number.
    """
    if number not in _PANELS:
        raise ValueError(f"figure is {number!r}: expected one of {', '.join(map(str, FIGURES))}")
    panels = _PANELS[number]
    courses = () if comparison is None or len(panels) < 2 else comparison.descents
    count = len(panels) + 2 * len(courses)
    with matplotlib.rc_context(STYLE):
        figure, axes = _empty_figure(count)
        for panel, ax in zip(panels, axes, strict=False):
            panel(ax, dataset)
        if comparison is not None:
            for row, descent in enumerate(courses, start=1):
                draw_course(axes[2 * row], axes[2 * row + 1], dataset, comparison.flow, descent)
        if count > 1:
            _letter(axes, len(panels))
        sharpness = draw_sharpness in panels or draw_nonlinear_sharpness in panels
        legend_above(figure, thresholds=sharpness, bounds=sharpness)
    return figure


def _empty_figure(count: int) -> tuple[Figure, list[Axes]]:
    columns, rows = min(count, 2), (count + 1) // 2
    size = (_COLUMN_WIDTH * columns, _PANEL_HEIGHT * rows + _LEGEND_HEIGHT)
    figure = Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def _letter(axes: list[Axes], panels: int) -> None:
    """Write the paper's letter of each panel at its top left; a row of a course is one panel."""
    for index, ax in enumerate(axes):
        letter = chr(ord("a") + index) if index < panels else chr(ord("a") + panels + (index - panels) // 2)
        ax.set_title(f"({letter})", loc="left", fontsize=8)
