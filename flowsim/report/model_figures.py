"""How closely models follow descent: sharpness, risk and distance on one time axis, a figure for each learning rate."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..comparison.edge_statements import models_of
from ..comparison.models import DISTANCE, MEAN_EXCESS_RISK, MEAN_RISK, SHARPNESS
from ..results.runs import Recorded, RecordedRun, read_runs
from .render_paper import legend_above
from .style import FLOW, STYLE, THRESHOLD, set_ticks

# Wide and pale: what models are to follow lies below them.
_CENTRE = {"color": "0.72", "linewidth": 3.6, "solid_capstyle": "round", "zorder": 2.1, "label": "centre of GD"}
_GRADIENT_FLOW = FLOW | {"linewidth": 1.2, "label": "GF"}
# The models stand out from each other in grey too, and from GF.
_LOOKS = (("#d95f02", (0, (4, 1))), ("#1f6fb4", (0, (1, 1))), ("#7a3b9c", (0, (5, 1, 1, 1))), ("#1b9e77", (0, (2, 1))))


def model_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return a figure for each learning rate with models, by its name: "models", of several "models_eta_0.1".

    Above the sharpness, with 2/η; in the middle the excess risk in the mean over the oscillation (the risk where its
    minimum is not known); below, how far the gradient flow and the models are from the centre of descent's oscillation.
    """
    shown = read_runs(dataset)
    descents = [run for run in shown.by_rate if run.run.is_descent and models_of(shown, run)]
    alone = len(descents) == 1
    return {
        "models" if alone else f"models_eta_{descent.run.learning_rate:.3g}": _figure(
            shown, descent, models_of(shown, descent)
        )
        for descent in descents
    }


def _figure(shown: Recorded, descent: RecordedRun, models: Sequence[RecordedRun], first_steps: int = 3) -> Figure:
    """Return the figure of one descent, whose logarithmic axis begins so many steps after the start."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.3, 4.6), layout="constrained")
        sharpness, risk, distance = figure.subplots(3, sharex=True)
        for axes in (sharpness, risk, distance):
            set_ticks(axes)
        times = descent.along("time")
        end = times[np.isfinite(descent.along(MEAN_RISK.name))].max(initial=0)
        first = times[times > 0].min(initial=end)
        if end > first > 0:
            distance.set_xscale("log")
            distance.set_xlim(min(first_steps * first, end / 2), end)
        distance.set_xlabel(r"time $t = \eta k$")
        _draw_sharpness(sharpness, shown.flow, descent, models)
        _draw_risk(risk, shown.flow, descent, models)
        _draw_distance(distance, descent, models)
        legend_above(figure)
    return figure


def _draw_sharpness(
    axes: Axes, flow: RecordedRun, descent: RecordedRun, models: Sequence[RecordedRun], room: float = 1.1
) -> None:
    axes.set_ylabel(r"sharpness $S$")
    _draw(axes, descent, SHARPNESS.name, _CENTRE)
    _draw(axes, flow, "sharpness", _GRADIENT_FLOW)
    _draw_models(axes, models, "sharpness")
    seen = [np.asarray(line.get_ydata(), float) for line in axes.lines]
    top = max((float(np.nanmax(values)) for values in seen if len(values)), default=1.0)
    threshold = descent.run.threshold
    if threshold <= room * top:
        axes.axhline(threshold, color="0.3", **THRESHOLD)
        axes.text(1, threshold, r" $2/\eta$", transform=axes.get_yaxis_transform(), va="center")
    axes.set_ylim(0, room * top)


def _draw_risk(axes: Axes, flow: RecordedRun, descent: RecordedRun, models: Sequence[RecordedRun]) -> None:
    known = np.isfinite(descent.along(MEAN_EXCESS_RISK.name)).any()
    label, plain = (MEAN_EXCESS_RISK, "excess_risk") if known else (MEAN_RISK, "risk")
    axes.set_ylabel("mean excess risk" if known else "mean risk")
    axes.set_yscale("log")
    _draw(axes, descent, label.name, _CENTRE)
    _draw(axes, flow, plain, _GRADIENT_FLOW)
    _draw_models(axes, models, label.name)
    centre = np.asarray(axes.lines[0].get_ydata(), float)
    if (centre > 0).any():
        axes.set_ylim(float(np.nanmin(centre[centre > 0])) / 3, 2 * float(np.nanmax(centre)))


def _draw_distance(axes: Axes, descent: RecordedRun, models: Sequence[RecordedRun]) -> None:
    axes.set_ylabel("distance from\ncentre of GD")
    axes.set_yscale("log")
    _draw(axes, descent, DISTANCE.name, _GRADIENT_FLOW)
    _draw_models(axes, models, DISTANCE.name)


def _draw_models(axes: Axes, models: Sequence[RecordedRun], quantity: str) -> None:
    for index, run in enumerate(models):
        colour, dashes = _LOOKS[index % len(_LOOKS)]
        look = {"color": colour, "linestyle": dashes, "linewidth": 1.6, "zorder": 3, "label": run.run.method}
        _draw(axes, run, quantity, look)


def _draw(axes: Axes, run: RecordedRun, quantity: str, look: dict[str, object]) -> None:
    """Draw what is known of a quantity; where a run stays for ever, on to the end of the axis."""
    values, times = run.along(quantity).astype(float), run.along("time")
    known = np.isfinite(values) & ((values > 0) | (axes.get_yscale() == "linear"))
    times, values = times[known], values[known]
    if run.outcome.stays and len(times) and known[-1]:
        times, values = np.append(times, max(axes.get_xlim()[1], times[-1])), np.append(values, values[-1])
    axes.plot(times, values, **look)  # pyright: ignore[reportArgumentType]
