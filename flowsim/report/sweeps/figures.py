"""Figures of any sweep."""

from collections.abc import Callable

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...results.runs import GRADIENT_DESCENT, Run
from ..panels import label_of, subsample
from ..render_paper import legend_above
from ..style import BOUND, STYLE, run_look
from . import runs
from .intervals import quartiles
from .panels import (
    LABELS,
    MEDIANS,
    SHARES,
    draw_bound,
    draw_divergence,
    draw_final,
    draw_initial,
    draw_interval,
    draw_thresholds,
    label_of_axis,
    name_statistic,
    positions,
    set_axis,
)

_PANEL = (3.3, 2.25)
_LEGEND_HEIGHT = 0.4
_MOST_FACETS, _MOST_RATES = 4, 6
# Networks that were thrown back to zero have next to no sharpness, and would squeeze all others.
_MOST_SPAN = 1e6
Draw = Callable[[Axes, xarray.Dataset], None]


def sweep_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return the figures of a sweep by name: "sharpness", that of how far runs came, "divergence", "critical".

    They go along the first dimension of the sweep, with a panel for each of up to four combinations of the values of
    the others, and a curve for each of up to six learning rates, spread over all there are. "squared_distance" is
    called "excess_risk" or "risk" where that is what is known; "divergence" is there if a run diverged, and "critical"
    if critical learning rates were searched for. Curves are medians, with bands
    from the first quartile to the third, as in the table and the summary; a line below the panels says so.
    """
    measure = runs.progress_measure(dataset)
    if not runs.grid(dataset):
        dataset = dataset.expand_dims(point=["the only one"])
    made = {
        "sharpness": _facets(dataset, _draw_sharpness, levels=True),
        measure: _facets(dataset, lambda axes, part: _draw_progress(axes, part, measure)),
    }
    if any(bool(runs.diverged(dataset, run).any()) for run in runs.others(dataset)):
        made["divergence"] = _facets(
            dataset, lambda axes, part: draw_divergence(axes, part, runs.others(part)), statistic=SHARES
        )
    if "critical_learning_rate_lower" in dataset:
        made["critical"] = _facets(dataset, _draw_critical)
    return made


def _facets(dataset: xarray.Dataset, draw: Draw, *, levels: bool = False, statistic: str = MEDIANS) -> Figure:
    facets = subsample(list(runs.cells(dataset, runs.grid(dataset)[1:])), _MOST_FACETS)
    columns, rows = min(len(facets), 2), (len(facets) + 1) // 2
    with matplotlib.rc_context(STYLE):
        size = (_PANEL[0] * columns, _PANEL[1] * rows + _LEGEND_HEIGHT)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes in panels[len(facets) :]:
            axes.remove()
        for axes, (values, part) in zip(panels, facets, strict=False):
            draw(axes, part)
            set_axis(axes, part)
            title = ", ".join(f"{name.replace('_', ' ')} = {_shown(value)}" for name, value in values.items())
            axes.set_title(title, fontsize=8)
            axes.label_outer()
        for axes in panels[max(0, len(facets) - columns) : len(facets)]:  # nothing stands below these
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(label_of_axis(facets[0][1]))
        plain = all(run.own_edge is None for run in runs.others(dataset))
        named = {} if plain else {"edge": "edge of stability"}
        name_statistic(figure, statistic)
        legend_above(
            figure, thresholds=levels and bool(runs.others(dataset)), bounds=levels and _has_bounds(dataset), **named
        )
    return figure


def _has_bounds(dataset: xarray.Dataset) -> bool:
    return "sharpness_lower_bound" in dataset and bool(np.isfinite(dataset["sharpness_lower_bound"]).any())


def draw_quantity(axes: Axes, part: xarray.Dataset, quantity: str) -> None:
    """Draw any number at the end of the runs along the one dimension of `part`, that at their start where it is known.

    The axis is logarithmic, unless a probe says otherwise, or not all is positive.
    """
    if quantity == "sharpness":
        _draw_sharpness(axes, part)
    else:
        if runs.knows(part, quantity):
            draw_initial(axes, part, quantity)
        draw_final(axes, part, _shown_runs(part), quantity)
        ends = part[runs.name_at_end(part, quantity)]
        if ends.attrs.get("logarithmic", 1) and not bool((ends <= 0).any()):
            axes.set_yscale("log")
        axes.set_ylabel(label_of(quantity, ends.attrs))
    set_axis(axes, part)
    axes.set_xlabel(label_of_axis(part))


def _draw_sharpness(axes: Axes, part: xarray.Dataset) -> None:
    shown = _shown_runs(part)
    draw_initial(axes, part, "sharpness")
    draw_final(axes, part, shown, "sharpness")
    draw_thresholds(axes, shown)
    if "sharpness_lower_bound" in part:
        draw_bound(axes, positions(part), part["sharpness_lower_bound"].values, "")
    axes.set_yscale("log")
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, top / _MOST_SPAN), top)
    axes.set_ylabel(LABELS["sharpness"])


def _draw_progress(axes: Axes, part: xarray.Dataset, measure: str) -> None:
    draw_initial(axes, part, measure)
    draw_final(axes, part, _shown_runs(part), measure)
    axes.set_yscale("log")
    axes.set_ylabel(LABELS[measure])


def _draw_critical(axes: Axes, part: xarray.Dataset) -> None:
    """Draw the middles of all brackets, their medians and quartiles, and 2 over the bound of Theorem 2."""
    x = positions(part)
    found = runs.critical_rates(part)
    places = np.broadcast_to(x[:, None], found.shape)
    axes.plot(places.ravel(), found.values.ravel(), "o", color="0.6", markersize=2.2, zorder=2.3)
    draw_interval(axes, x, quartiles(found.values), "critical learning rate", run_look(Run(GRADIENT_DESCENT)))
    axes.plot(x, 2 / part["sharpness_lower_bound"].values, label=r"$1/(La \Vert w^\star \Vert^{2-2/L})$", **BOUND)
    axes.set_yscale("log")
    axes.set_ylabel(r"critical learning rate $\eta$")


def _shown_runs(part: xarray.Dataset) -> tuple[Run, ...]:
    return (*runs.flows(part), *subsample(runs.others(part), _MOST_RATES))


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
