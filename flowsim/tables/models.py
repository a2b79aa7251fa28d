"""How closely models follow descent: rows of numbers, and their table."""

import math
from typing import Any

import numpy as np
from rich.table import Table

from ..columns import LabelledArrays, RecordedRun, read_runs
from ..comparison.centres import DISTANCE, MEAN_EXCESS_RISK, MEAN_RISK, OSCILLATION, SHARPNESS
from ..comparison.edge_statements import common_time, models_of
from ..formatting import format_number, with_entries
from ..formatting.terminal import empty_table

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


def model_rows(dataset: LabelledArrays) -> list[dict[str, Any]]:
    """Return how descents, the gradient flow and the models compare, at the last time that is known of all.

    One row each of the descent, the gradient flow and every model for each learning rate, the smallest first: `method`,
    `learning_rate`, `time`, `distance` from the centre of descent's oscillation, by how much `closer` to it than the
    gradient flow, `sharpness` there, `oscillation`, `mean_risk` and `mean_excess_risk`; NaN for what is not known.
    Empty without models.
    """
    shown, rows = read_runs(dataset), []
    for descent in shown.by_rate:
        models = models_of(shown, descent)
        if not models:
            continue
        time = common_time(descent, models)
        flow_distance = _at(descent, DISTANCE.name, time)
        numbers = {"learning_rate": descent.run.learning_rate, "time": time}
        measured = {name: _at(descent, name, time) for name in _PREDICTED}
        measured |= {"sharpness": _at(descent, SHARPNESS.name, time)}
        rows.append({"method": descent.run.method, **numbers, "distance": 0.0, "closer": math.nan, **measured})
        of_flow = {
            "sharpness": _at(shown.flow, "sharpness", time),
            "oscillation": 0.0,
            "mean_risk": _at(shown.flow, "risk", time),
            "mean_excess_risk": _at(shown.flow, "excess_risk", time),
        }
        rows.append({"method": "GF", **numbers, "distance": flow_distance, "closer": 1.0, **of_flow})
        for run in models:
            distance = _at(run, DISTANCE.name, time)
            closer = flow_distance / distance if distance > 0 else math.nan
            predicted = {name: _at(run, name, time) for name in _PREDICTED}
            rows.append({"method": run.run.method, **numbers, "distance": distance, "closer": closer, **predicted})
    return rows


def _at(run: RecordedRun, quantity: str, time: float) -> float:
    """Return a quantity at the record nearest to a time; where a run has come to rest before, at its end."""
    times = run.along("time")
    return float(run.along(quantity)[np.argmin(np.abs(times - time))]) if math.isfinite(time) else math.nan


def models_table(dataset: LabelledArrays, title: str) -> Table | None:
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
