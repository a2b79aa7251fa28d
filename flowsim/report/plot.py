"""One quantity in one pair of axes, a user's own or new ones: of runs against time, of a sweep along its first axis."""

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes

from ..results.schema import RECORD, RUN
from .panels import TrajectoryPanels
from .panels.sweep import SweepPanels
from .render_paper import draw_panel
from .render_sweep import draw_sweep_panel
from .style import STYLE
from .sweeps import runs


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
        draw_sweep_panel(axes, panel)
        if before is not None:  # what was drawn there before stays in view
            axes.set_xlim(min(before.x0, axes.viewLim.x0), max(before.x1, axes.viewLim.x1))
            axes.set_ylim(min(before.y0, axes.viewLim.y0), max(before.y1, axes.viewLim.y1))
        if panel.title:
            axes.set_title(panel.title)

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
    draw(ax)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def _unknown(quantity: str, known: tuple[str, ...]) -> ValueError:
    return ValueError(f"{quantity!r} was not recorded: there are {', '.join(known) or 'no numbers'}")
