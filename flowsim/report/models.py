"""How closely models follow descent: rows of numbers, their table, and a figure for each learning rate."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from ..comparison.centres import DISTANCE, MEAN_EXCESS_RISK, MEAN_RISK, OSCILLATION, SHARPNESS
from ..comparison.edge_statements import common_time, models_of
from ..formatting import format_number, with_entries
from ..formatting.terminal import empty_table
from ..results.runs import Recorded, RecordedRun, read_runs
from .render_paper import legend_above
from .style import FLOW, STYLE, THRESHOLD, Drawing, set_ticks

_PREDICTED = ("sharpness", OSCILLATION.name, MEAN_RISK.name, MEAN_EXCESS_RISK.name)
_REMARKS = (
    "distance to the centre of descent's oscillation, at the last time at which all runs of one η have records",
    "S there, √tr Σ the amplitude of the oscillation, R the cycle-averaged risk: of descent as measured",
)
_COLUMNS = (
    ("η", "learning_rate", 4),
    ("t", "time", 4),
    ("distance\nto centre", "distance", 3),
    ("error\nreduction\nrelative\nto GF", "closer", 3),
    ("S at\ncentre", "sharpness", 5),
    ("√tr Σ", "oscillation", 3),
)
# Wide and pale: what models are to follow lies below them.
_CENTRE: dict[str, object] = {"color": "0.72", "linewidth": 3.6, "solid_capstyle": "round", "zorder": 2.1}
_GRADIENT_FLOW = FLOW | {"linewidth": 1.2, "label": "GF"}
# The models stand out from each other in grey too, and from GF.
_LOOKS = (
    ("#d95f02", (0, (4, 1))),
    ("#1f6fb4", (0, (1, 1))),
    ("#7a3b9c", (0, (5, 1, 1, 1))),
    ("#1b9e77", (0, (2, 1))),
    ("#8c5a1e", (0, (3, 1, 1, 1, 1, 1))),
    ("#d0308a", (0, (1, 2))),
    ("#5a8f00", (0, (7, 2))),
)


def model_rows(dataset: xarray.Dataset) -> list[dict[str, Any]]:
    """Return how descents, the gradient flow and the models compare, at the last time that is known of all.

    One row each of the descent, the gradient flow and every model for each learning rate, with `method`,
    `learning_rate`, `time`, `distance` from the centre of descent's oscillation, by how much `closer` to it than the
    gradient flow, `sharpness` there, `oscillation`, `mean_risk` and `mean_excess_risk`; NaN for what is not known.
    Empty without models.
    """
    shown = read_runs(dataset)
    return [row for descent, beside in _modelled(shown) for row in _group(shown, descent, beside)]


def _modelled(shown: Recorded) -> list[tuple[RecordedRun, list[RecordedRun]]]:
    """Return every descent that has models, and these, from the smallest learning rate to the largest."""
    found = [(run, models_of(shown, run)) for run in shown.by_rate]
    return [(descent, beside) for descent, beside in found if beside]


def _group(shown: Recorded, descent: RecordedRun, beside: Sequence[RecordedRun]) -> Iterator[dict[str, Any]]:
    rate, time = descent.run.learning_rate, common_time(descent, beside)
    flow = _at(descent, DISTANCE.name, time)
    numbers = {"learning_rate": rate, "time": time}
    measured = {name: _at(descent, name, time) for name in _PREDICTED}
    measured |= {"sharpness": _at(descent, SHARPNESS.name, time)}
    yield {"method": descent.run.method, **numbers, "distance": 0.0, "closer": math.nan, **measured}
    plain = {
        "sharpness": _at(shown.flow, "sharpness", time),
        "oscillation": 0.0,
        "mean_risk": _at(shown.flow, "risk", time),
        "mean_excess_risk": _at(shown.flow, "excess_risk", time),
    }
    yield {"method": "GF", **numbers, "distance": flow, "closer": 1.0, **plain}
    for run in beside:
        distance = _at(run, DISTANCE.name, time)
        predicted = {name: _at(run, name, time) for name in _PREDICTED}
        closer = flow / distance if distance > 0 else math.nan
        yield {"method": run.run.method, **numbers, "distance": distance, "closer": closer, **predicted}


def _at(run: RecordedRun, quantity: str, time: float) -> float:
    """Return a quantity at the record nearest to a time; where a run has come to rest before, at its end."""
    times = run.along("time")
    return float(run.along(quantity)[np.argmin(np.abs(times - time))]) if math.isfinite(time) else math.nan


def models_table(dataset: xarray.Dataset, title: str) -> Table | None:
    """Return the table of descents and their models; `None` where there are none."""
    rows = model_rows(dataset)
    if not rows:
        return None
    table = empty_table(f"{title}: models of descent" if title else "models of descent", _REMARKS)
    table.add_column("", no_wrap=True)
    # Where the minimum of the risk is unknown, so is the excess: then the risk itself is shown.
    unknown = all(math.isnan(row["mean_excess_risk"]) for row in rows)
    symbol, name = ("R", "mean_risk") if unknown else ("R − R_min", "mean_excess_risk")
    columns = with_entries((*_COLUMNS, (f"cycle-averaged\n{symbol}", name, 3)), rows)
    for header, _, _ in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["method"], *(format_number(row[key], digits) for _, key, digits in columns))
    return table


def model_figures(dataset: xarray.Dataset) -> dict[str, Figure]:
    """Return two figures for each learning rate with models: "models" and "models_sharpness".

    The first shows above the sharpness, with 2/η; in the middle the excess risk in the mean over the oscillation (the
    risk where its minimum is not known); below, how far the gradient flow and the models are from the centre of
    descent's oscillation. The second shows the sharpness alone. With several learning rates their names end with it:
    "models_eta_0.1".
    """
    shown = read_runs(dataset)
    found = _modelled(shown)
    names = [""] if len(found) == 1 else [f"_eta_{descent.run.learning_rate:.3g}" for descent, _ in found]
    if len(set(names)) < len(names):
        names = [f"_eta_{descent.run.learning_rate!r}" for descent, _ in found]
    made = {}
    for name, (descent, models) in zip(names, found, strict=True):
        made[f"models{name}"] = _figure(shown, descent, models)
        made[f"models_sharpness{name}"] = _figure(shown, descent, models, panels=1)
    return made


def _figure(shown: Recorded, descent: RecordedRun, models: Sequence[RecordedRun], *, panels: int = 3) -> Figure:
    """Return the figure of one descent with its first panels: sharpness, risk, distance."""
    draw = (_draw_sharpness, _draw_risk, _draw_distance)[:panels]
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(3.3, 1 + 1.2 * panels), layout="constrained")
        rows = figure.subplots(panels, sharex=True, squeeze=False)[:, 0]
        for axes in rows:
            set_ticks(axes)
        _set_times(rows[-1], descent)
        for draw_panel, axes in zip(draw, rows, strict=True):
            draw_panel(axes, shown.flow, descent, models)
        legend_above(figure)
    return figure


def _set_times(axes: Axes, descent: RecordedRun, first_steps: int = 3) -> None:
    """Let the axis of times be logarithmic, from so many steps after the start to where the centre is last known."""
    times = descent.along("time")
    end = times[np.isfinite(descent.along(MEAN_RISK.name))].max(initial=0)
    first = times[times > 0].min(initial=end)
    if end > first > 0:
        axes.set_xscale("log")
        axes.set_xlim(min(first_steps * first, end / 2), end)
    axes.set_xlabel(r"time $t = \eta k$" if descent.run.is_descent else r"time $t$")


def _draw_sharpness(
    axes: Axes, flow: RecordedRun, descent: RecordedRun, models: Sequence[RecordedRun], room: float = 1.1
) -> None:
    axes.set_ylabel(r"sharpness $S$")
    _draw(axes, descent, SHARPNESS.name, _CENTRE | {"label": f"centre of {descent.run.method}"})
    _draw(axes, flow, "sharpness", _GRADIENT_FLOW)
    _draw_models(axes, models, "sharpness")
    seen = [np.asarray(line.get_ydata(), float) for line in axes.lines]
    top = max((float(np.nanmax(values)) for values in seen if len(values)), default=1.0)
    threshold = descent.last_threshold
    if descent.is_scheduled:
        edge = {"color": "0.3", "label": r"$2/\eta(t)$" if descent.run.has_edge_of_descent else "edge of stability"}
        axes.plot(descent.along("time"), descent.edge_along("sharpness"), **edge, **THRESHOLD)
    elif threshold <= room * top:
        axes.axhline(threshold, color="0.3", **THRESHOLD)
        label = r" $2/\eta$" if descent.run.has_edge_of_descent else " edge"
        axes.text(1, threshold, label, transform=axes.get_yaxis_transform(), va="center")
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


def _draw_distance(axes: Axes, _: RecordedRun, descent: RecordedRun, models: Sequence[RecordedRun]) -> None:
    axes.set_ylabel(f"distance from\ncentre of {descent.run.method}")
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
