"""Figures of runs beside a flow, of any sweep and of the theory, and one quantity of runs in axes of a user's own."""

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..columns import RECORD, RUN, SHARPNESS
from ..results import TheoryResults
from ..tables.probes import ROWS, file_name, overlaid_probes, own_probes
from .panels import (
    NODES,
    PATH,
    SideBySidePanels,
    TrajectoryPanels,
    layer_panels,
    model_panels,
    plane_panels,
    spectrum_panels,
)
from .panels.sweep import DIVERGED, SweepPanels, quantities
from .panels.theory import TheoryPanels
from .render_paper import draw_panel, figure_of
from .style import STYLE
from .sweeps import runs

_ACROSS = (6.8, 3.2)  # both columns of a paper, in inches: the legend names folders and runs


def figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return all figures of a data set of trajectories by name.

    They are "squared_distance", or "excess_risk" or "risk" where no more is known, "sharpness" where it was followed,
    with runs beside the flow "distance", one for each probe by its name, of one number for each layer a map,
    "spectrum", "plane" and "sharpest_plane" where they were asked for, and one of the models of each descent.
    """
    panels = TrajectoryPanels.of(dataset)
    made: dict[str, Figure] = {}
    for panel in plane_panels(panels) if PATH in dataset else ():
        made[panel.name] = figure_of([panel], (3.3, 3.0))
    maps = {"spectrum": spectrum_panels(panels)} if NODES in dataset else {}
    for name in own_probes(dataset):
        if (drawn := dataset[name].attrs.get("drawn")) in ROWS:
            maps[file_name(name)] = layer_panels(panels, name, rows=ROWS[drawn])
        else:
            made[file_name(name)] = figure_of([panels.panel(name)], balanced=False)
    for name, shown in maps.items():
        rows = 2 if name == "spectrum" else 1
        columns = len(shown) // rows
        if columns:  # one or two columns of a paper
            size = (3.3 if columns == 1 else 6.6, 2.0 * rows + 0.2)
            made[name] = figure_of(shown, size, columns=columns, sharex="row", sharey="row")
    others = [*filter(panels.is_followed, [SHARPNESS]), *(["distance"] if panels.has_distances else [])]
    for name in (panels.measure_of_progress, *others):
        made[name] = figure_of([panels.panel(name)], balanced=False)
    for name, shown in model_panels(dataset).items():
        made[name] = figure_of(shown, (3.3, 4.6), sharex="col")
        made[name.replace("models", "models_sharpness")] = figure_of(shown[:1], (3.3, 2.2))
    return made


def pictures(dataset: xarray.Dataset) -> dict[str, str]:
    """Return which figures of a data set of trajectories the page shows as they are: maps, each with what it shows."""
    found = {}
    if NODES in dataset:
        found["spectrum"] = (
            "Above the eigenvalues of the Hessian over time, below their distribution at the start and at the end."
        )
    layers = (name for name in own_probes(dataset) if dataset[name].attrs.get("drawn") in ROWS)
    return found | {file_name(name): f"Over time: {dataset[name].attrs['long_name']}." for name in layers}


def squared_distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return ‖π − w*‖² against time, of the flow and of every other run.

    Networks without a regressor show the excess risk instead, or the risk where its minimum is unknown.
    """
    panels = TrajectoryPanels.of(dataset)
    return figure_of([panels.panel(panels.measure_of_progress)], balanced=False)


def sharpness_figure(dataset: xarray.Dataset) -> Figure:
    """Return the sharpness against time, with 2/η of every learning rate and the bounds of Theorem 2 on S_min.

    In place of 2/η stands the edge of stability of the descent where that is another, nothing where it is not known.
    Where it was asked for, thin black lines with the marks of the descents show how sharp the limit of the flow from
    their points is.
    """
    return figure_of([TrajectoryPanels.of(dataset).panel("sharpness")], balanced=False)


def distance_figure(dataset: xarray.Dataset) -> Figure:
    """Return the distance ‖W_GD(t/η) − W_GF(t)‖ against time, and where each run first reaches its edge."""
    return figure_of([TrajectoryPanels.of(dataset).panel("distance")], balanced=False)


def sweep_figures(dataset: xarray.Dataset, *, facets: int = 4, others: int = 6) -> dict[str, Figure]:
    """Return the figures of a sweep by name: "sharpness", that of how far runs came, "divergence", "critical".

    They go along the first dimension of the sweep, with panels for the values of the others, and curves for learning
    rates. "squared_distance" is called "excess_risk" or "risk" where that is what is known; "divergence" is there if a
    run diverged, and "critical" if critical learning rates were searched for. Curves are medians, with bands from the
    first quartile to the third, as in the table and the summary; a line below the panels says so.

    Args:
        dataset: The data set of the sweep.
        facets: The largest number of panels, one for each combination of the values.
        others: The largest number of learning rates in a panel, spread over all there are.

    Returns:
        The figures.
    """
    made = {}
    for quantity in quantities(dataset):
        most = len(runs.others(dataset)) if quantity == DIVERGED else others
        panels = SweepPanels.of(dataset, facets=facets, others=most).panels(quantity)
        columns, rows = min(len(panels), 2), (len(panels) + 1) // 2
        made["divergence" if quantity == DIVERGED else quantity] = figure_of(
            panels, (3.3 * columns, 2.25 * rows + 0.4), columns=columns, sharex="col", sharey="all"
        )
    return made


def theory_figures(results: TheoryResults) -> dict[str, Figure]:
    """Return the figures by name: "theory", where statements depend on time, and "conditioning", for several Λ/λ."""
    panels, made = TheoryPanels.of(results.flows), {}
    if panels.names:
        columns, rows = len(panels.keys), len(panels.names)
        size = (0.9 + 1.7 * columns, 0.5 + 1.15 * rows)
        made["theory"] = figure_of(panels.grid(), size, columns=columns, sharex="col", balanced=False)
    if (conditioning := panels.conditioning()) is not None:
        made["conditioning"] = figure_of([conditioning])
    return made


def figures_of_folders(datasets: Mapping[str, xarray.Dataset]) -> dict[str, Figure]:
    """Return the figures of several data sets of trajectories over each other, as `figures` has them; not of models."""
    panels = SideBySidePanels.of(datasets)
    beside = any(part.has_distances for part in panels.parts.values())
    known = [*filter(panels.is_followed, [SHARPNESS]), panels.measure_of_progress, *(["distance"] if beside else [])]
    asked = [*known, *filter(panels.is_followed, overlaid_probes(datasets.values()))]
    return {file_name(name): figure_of([panels.panel(name)], _ACROSS, balanced=False) for name in dict.fromkeys(asked)}


def plot_folders(datasets: Mapping[str, xarray.Dataset], quantity: str, ax: Axes | None = None) -> Axes:
    """Draw one quantity of several data sets of trajectories over each other, as `plot_runs` does."""
    known = tuple(dict.fromkeys(name for dataset in datasets.values() for name in recorded_names(dataset)))
    if quantity not in known:
        raise _unknown(quantity, known)
    panel = SideBySidePanels.of(datasets).panel(quantity)
    return _drawn(lambda axes: draw_panel(axes, panel), ax)


def plot_runs(dataset: xarray.Dataset, quantity: str, ax: Axes | None = None) -> Axes:
    """Draw one quantity of a data set of trajectories against time, as the figures do, and return the axes.

    Raises `ValueError`, with the names that are known, for a quantity that was not recorded.
    """
    known = recorded_names(dataset)
    if quantity not in known:
        raise _unknown(quantity, known)
    panel = TrajectoryPanels.of(dataset).panel(quantity)
    return _drawn(lambda axes: draw_panel(axes, panel), ax)


def recorded_names(dataset: xarray.Dataset) -> tuple[str, ...]:
    """Return the names of what is known along the runs of a data set of trajectories, somewhere."""
    along = (name for name in dataset if dataset[name].dims[:2] == (RUN, RECORD) and name != "time")
    return tuple(str(name) for name in along if bool(np.isfinite(dataset[name]).any()))


def plot_sweep(
    dataset: xarray.Dataset, quantity: str, ax: Axes | None = None, at: Mapping[str, Any] | None = None
) -> Axes:
    """Draw one quantity at the ends of a sweep's runs along its first axis, as the figures do, and return the axes.

    `at` gives the values of the other axes by name; where it says none, it is the first. Raises `ValueError`, with
    what is known, for a quantity that was not measured, and for an axis or a value that the sweep does not have.
    """
    known = final_names(dataset)
    if quantity not in known:
        raise _unknown(quantity, known)
    (panel,) = SweepPanels.of(_line(dataset, at or {}), facets=1, others=6).panels(quantity)

    def draw(axes: Axes) -> None:
        before = axes.viewLim.frozen() if axes.has_data() else None
        draw_panel(axes, panel)
        if before is not None:  # what was drawn there before stays in view
            axes.set_xlim(min(before.x0, axes.viewLim.x0), max(before.x1, axes.viewLim.x1))
            axes.set_ylim(min(before.y0, axes.viewLim.y0), max(before.y1, axes.viewLim.y1))

    return _drawn(draw, ax)


def final_names(dataset: xarray.Dataset) -> tuple[str, ...]:
    """Return the names of the numbers that are known at the ends of runs of a sweep."""
    axes = {*runs.grid(dataset), runs.REPETITION, RUN}
    ends = (str(name) for name in dataset if set(dataset[name].dims) == axes and name not in ("outcome", "steps_asked"))
    return tuple(name.removeprefix("final_") for name in ends if bool(np.isfinite(dataset[name]).any()))


def _line(dataset: xarray.Dataset, at: Mapping[str, Any]) -> xarray.Dataset:
    """Return the part of a sweep along its first axis, at the values `at` of the others, or their first."""
    if not runs.grid(dataset):
        return dataset
    along, *others = runs.grid(dataset)
    if unknown := set(at) - set(others):
        known = ", ".join(others) or "none"
        raise ValueError(f"at has {unknown.pop()!r}: the axes beside {along}, along which it goes, are {known}")
    index = {}
    for name in others:
        values = dataset[name].values.tolist()
        if at.get(name, values[0]) not in values:
            raise ValueError(f"at[{name!r}] is {at[name]!r}: the sweep has {', '.join(map(repr, values))}")
        index[name] = [values.index(at.get(name, values[0]))]
    return dataset.isel(index)


def _drawn(draw: Callable[[Axes], None], ax: Axes | None) -> Axes:
    """Draw into the axes, or into new ones of pyplot, which a notebook shows and an interactive session too."""
    if ax is None:
        import matplotlib.pyplot as plt

        with matplotlib.rc_context(STYLE):
            _, ax = plt.subplots(layout="constrained")
            return _drawn(draw, ax)
    if not isinstance(ax, Axes):  # such as the array of axes that pyplot.subplots(1, 2) returns
        raise TypeError(f"ax must be one axes of Matplotlib, such as figure.add_subplot(), got {type(ax).__name__}")
    draw(ax)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def _unknown(quantity: str, known: tuple[str, ...]) -> ValueError:
    return ValueError(f"{quantity!r} was not recorded: there are {', '.join(known) or 'no numbers'}")
