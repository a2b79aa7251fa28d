"""Figures of runs beside a flow: how far from the optimum, how sharp, how far from the flow, and of each probe."""

import re

import xarray
from matplotlib.figure import Figure

from .model_figures import model_figures
from .panels import TrajectoryPanels
from .probed import own_probes
from .render_paper import figure_of


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
