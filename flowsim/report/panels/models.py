"""The panels of models of descent: each descent at the centre of its oscillation, the gradient flow, and the models."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray

from ...columns import RecordedRun, read_runs
from ...comparison.centres import DISTANCE, MEAN_EXCESS_RISK, MEAN_RISK, SHARPNESS
from ...comparison.edge_statements import models_of
from ..style import FLOW, THRESHOLD
from .panel import INK, Curve, Guide, Key, Panel, abscissae, axis_over, ordinates

# Wide and pale: what models are to follow lies below them.
_CENTRE: dict[str, Any] = {"color": "0.72", "linewidth": 3.6, "solid_capstyle": "round", "zorder": 2.1}
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


def model_panels(dataset: xarray.Dataset) -> dict[str, list[Panel]]:
    """Return the panels of each descent that has models: its sharpness, its risk, and the distance from its centre.

    With one descent their name is "models"; with several it ends with the learning rate, as in "models_eta_0.1".
    """
    shown = read_runs(dataset)
    modelled = [(run, models) for run in shown.by_rate if (models := models_of(shown, run))]
    names = [""] if len(modelled) == 1 else [f"_eta_{descent.run.learning_rate:.3g}" for descent, _ in modelled]
    if len(set(names)) < len(names):
        names = [f"_eta_{descent.run.learning_rate!r}" for descent, _ in modelled]
    return {
        f"models{name}": list(_panels(shown.flow, descent, models))
        for name, (descent, models) in zip(names, modelled, strict=True)
    }


def _panels(
    flow: RecordedRun, descent: RecordedRun, models: Sequence[RecordedRun], *, first_steps: int = 3, room: float = 1.1
) -> Iterator[Panel]:
    """Yield the three panels of a descent, from its `first_steps` on to where its centre is last known."""
    times, of_descent = descent.along("time"), descent.run.has_edge_of_descent
    end = float(times[np.isfinite(descent.along(MEAN_RISK.name))].max(initial=0))
    first = float(times[times > 0].min(initial=end))
    log = (min(first_steps * first, end / 2), end) if end > first > 0 else None
    centre = Key("centre", f"centre of {descent.run.method}", f"centre of {descent.run.method}", _CENTRE)
    gradient_flow = Key("flow", "GF", "GF", FLOW | {"linewidth": 1.2})
    keyed = []
    for index, run in enumerate(models):
        colour, dashes = _LOOKS[index % len(_LOOKS)]
        look = {"color": colour, "linestyle": dashes, "linewidth": 1.6, "zorder": 3}
        keyed.append((Key(f"model-{index}", run.run.method, run.run.method, look), run))
    is_excess = bool(np.isfinite(descent.along(MEAN_EXCESS_RISK.name)).any())
    risk, plain = (MEAN_EXCESS_RISK.name, "excess_risk") if is_excess else (MEAN_RISK.name, "risk")
    shown = {
        r"sharpness $S$": ("sharpness", [(centre, descent, SHARPNESS.name), (gradient_flow, flow, "sharpness")]),
        "mean excess risk" if is_excess else "mean risk": (
            risk,
            [(centre, descent, risk), (gradient_flow, flow, plain)],
        ),
        f"distance from\ncentre of {descent.run.method}": (
            DISTANCE.name,
            [(gradient_flow, descent, DISTANCE.name)],
        ),
    }
    for label, (quantity, others) in shown.items():
        logarithmic, curves, guides = quantity != "sharpness", [], []
        for key, run, name in (*others, *((key, run, quantity) for key, run in keyed)):
            x, y = run.along("time"), run.along(name).astype(float)
            there = np.isfinite(y) & ((y > 0) | (not logarithmic))
            x, y = x[there], y[there]
            if run.outcome.stays and len(x) and there[-1]:  # at rest, to the end of the axis
                x, y = np.append(x, max(end if log else 0.0, x[-1])), np.append(y, y[-1])
            curves.append(Curve(key, x, y))
        values = ordinates(curves)
        y = axis_over(label, label, values, logarithmic=logarithmic)
        if quantity == risk and len(lowest := curves[0].y):
            y = replace(y, log=(float(lowest.min()) / 3, 2 * float(lowest.max())))
        if quantity == "sharpness":
            top = room * max(values, default=1.0)
            y = replace(y, linear=(0.0, top))
            name = r"$2/\eta(t)$" if of_descent else "edge of stability"
            edge = Key(INK, "edge", name, {"color": "0.3", **THRESHOLD})
            if descent.is_scheduled:
                curves.append(Curve(edge, times, descent.edge_along("sharpness").astype(float)))
            elif descent.last_threshold <= top:
                name = r"$2/\eta$" if of_descent else "edge"
                guides.append(Guide(float(descent.last_threshold), edge, name))
        x = axis_over(r"time $t = \eta k$" if descent.run.is_descent else r"time $t$", "time", abscissae(curves))
        x = replace(x, log=log, logarithmic=log is not None)
        yield Panel(f"models-{quantity}", label, label, x, y, curves, guides)
