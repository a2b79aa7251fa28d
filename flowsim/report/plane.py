"""The figures of the paths of all runs in one plane of the weights."""

import matplotlib
import xarray
from matplotlib.figure import Figure

from .panels import Panel, TrajectoryPanels, plane_panels
from .render_paper import legend_above
from .style import STYLE, Drawing, set_ticks


def plane_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return the figures of the paths by name: "plane", and "sharpest_plane" where the top eigenvector is known."""
    panels = TrajectoryPanels.of(dataset)
    bounded = {key.name for key, run in panels.keyed_runs if run.outcome.name != "DIVERGED"}
    return {panel.name: _drawn(panel, bounded) for panel in plane_panels(panels)}


def _drawn(panel: Panel, bounded: set[str]) -> Figure:
    """Return the figure of the paths, with the common start marked, and the ends of those runs that are `bounded`."""
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(3.3, 3.0), layout="constrained")
        drawn = figure.add_subplot()
        set_ticks(drawn)
        for key, x, y in ((curve.key, curve.x, curve.y) for curve in panel.curves):
            drawn.plot(x, y, label=key.label, **{**key.look, "marker": "none"})
            if key.name in bounded:
                mark = {"marker": key.look.get("marker", "o"), "color": key.look["color"], "markeredgecolor": "black"}
                drawn.plot(x[-1:], y[-1:], linestyle="none", zorder=5, markersize=5, **mark)
        for start in panel.overlays:
            drawn.plot(start.x, start.y, **{**start.key.look, "label": start.key.label})
        drawn.set_xlim(panel.x.linear)
        drawn.set_ylim(panel.y.linear)
        drawn.set_xlabel(panel.x.label)
        drawn.set_ylabel(panel.y.label)
        legend_above(figure)
    return figure
