"""Figures of runs beside a flow, and of any sweep."""

import re
from collections.abc import Sequence

import matplotlib
import numpy as np
import xarray
from matplotlib.figure import Figure

from .model_figures import model_figures
from .panels import Panel, TrajectoryPanels
from .panels.sweep import CRITICAL, DIVERGED, SweepPanels
from .probes_table import own_probes
from .render_paper import figure_of, legend_above
from .render_sweep import draw_sweep_panel, name_statistic
from .style import STYLE
from .sweeps import runs


def figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return all figures of a data set of trajectories by name.

    They are "squared_distance", "sharpness" where it was followed, with runs beside the flow "distance", one for each
    probe by its name, and one of the models of each descent.
    """
    panels = TrajectoryPanels.of(dataset)
    made = {re.sub(r"\W+", "_", name): figure_of(panels.panel(name)) for name in own_probes(dataset)}
    made["squared_distance"] = figure_of(panels.panel(panels.measure_of_progress))
    if panels.is_followed("sharpness"):
        made["sharpness"] = figure_of(panels.panel("sharpness"))
    if panels.shown.others and panels.shown.has_flow:
        made["distance"] = figure_of(panels.panel("distance"))
    return made | model_figures(dataset)


def squared_distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return ‖π − w*‖² against time, of the flow and of every other run.

    Networks without a regressor show the excess risk instead, or the risk where its minimum is unknown.
    """
    panels = TrajectoryPanels.of(dataset)
    return figure_of(panels.panel(panels.measure_of_progress))


def sharpness_figure(dataset: xarray.Dataset) -> Figure:
    """Return the sharpness against time, with 2/η of every learning rate and the bounds of Theorem 2 on S_min.

    In place of 2/η stands the edge of stability of the descent where that is another, nothing where it is not known.
    Where it was asked for, thin black lines with the marks of the descents show how sharp the limit of the flow from
    their points is.
    """
    return figure_of(TrajectoryPanels.of(dataset).panel("sharpness"))


def distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return the distance ‖W_GD(t/η) − W_GF(t)‖ against time, and where each run first reaches its edge."""
    return figure_of(TrajectoryPanels.of(dataset).panel("distance"))


def sweep_figures(dataset: xarray.Dataset, *, facets: int = 4, others: int = 6) -> dict[str, Figure]:
    """Return the figures of a sweep by name: "sharpness", that of how far runs came, "divergence", "critical".

    They go along the first dimension of the sweep, with a panel for each of up to four combinations of the values of
    the others, and a curve for each of up to six learning rates, spread over all there are. "squared_distance" is
    called "excess_risk" or "risk" where that is what is known; "divergence" is there if a run diverged, and "critical"
    if critical learning rates were searched for. Curves are medians, with bands from the first quartile to the third,
    as in the table and the summary; a line below the panels says so.
    """
    measure = runs.progress_measure(dataset)
    panels = SweepPanels.of(dataset, facets=facets, others=others)
    made = {
        "sharpness": _facets(dataset, panels.panels("sharpness")),
        measure: _facets(dataset, panels.panels(measure)),
    }
    every = runs.others(dataset)
    if any(bool(runs.diverged(dataset, run).any()) for run in every):
        shown = SweepPanels.of(dataset, facets=facets, others=len(every))
        made["divergence"] = _facets(dataset, shown.panels(DIVERGED), whiskers=True)
    if "critical_learning_rate_lower" in dataset:
        made["critical"] = _facets(dataset, panels.panels(CRITICAL))
    return made


def _facets(dataset: xarray.Dataset, panels: Sequence[Panel], *, whiskers: bool = False) -> Figure:
    """Return a figure of panels, two in a row, of which each is as wide as a column of a paper."""
    columns, rows = min(len(panels), 2), (len(panels) + 1) // 2
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3 * columns, 2.25 * rows + 0.4), layout="constrained")
        drawn = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes in drawn[len(panels) :]:
            axes.remove()
        for axes, panel in zip(drawn, panels, strict=False):
            draw_sweep_panel(axes, panel, whiskers=whiskers)
            axes.set_title(panel.title, fontsize=8)
            axes.label_outer()
        for axes in drawn[max(0, len(panels) - columns) : len(panels)]:  # nothing stands below these
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(panels[0].x.label)
        plain = all(run.has_edge_of_descent for run in runs.others(dataset))
        levels = panels[0].name.startswith("sweep-sharpness")
        bounds = "sharpness_lower_bound" in dataset and bool(np.isfinite(dataset["sharpness_lower_bound"]).any())
        name_statistic(figure, panels[0].statistic)
        legend_above(
            figure,
            thresholds=levels and bool(runs.others(dataset)),
            bounds=levels and bounds,
            edge=r"$2/\eta$" if plain else "edge of stability",
        )
    return figure
