"""What the blocks of a sweep found, as one labelled data set over (grid, repetition, run)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...quantities import NOT_ASKED, attributes
from ...runs import FLOW, GRADIENT_DESCENT, RUN, Run, run_coordinates
from ..reading import resolved
from ..scenario import Scenario
from ..sweep_settings import SweepSettings
from .compute import Arrays, Failure
from .grid import axis_names

if TYPE_CHECKING:
    import xarray

REPETITION = "repetition"
# What blocks say of a run beside what they measure at its end.
_OF_A_RUN = {"outcome": "outcome", "steps": "steps", "time": "end_time", "distance_to_flow": "distance_to_flow"}


def sweep_dataset(scenario: Scenario, tables: Arrays, known: Arrays, failures: Sequence[Failure]) -> "xarray.Dataset":
    """Return everything that is known of a sweep.

    `initial_*` stand over (grid, repetition); outcome, steps, times and `final_*` over (grid, repetition, run), the
    flow first and then gradient descent by learning rate; what is `known` of the data over the grid alone. `tables` are
    those of the blocks, and the scenario and the cells that failed become attributes, as JSON.
    """
    import xarray

    sweep = scenario.sweep
    assert sweep is not None
    names = axis_names(scenario)
    grid = tuple(names.values())
    starts = {name: tables[name] for name in sorted(tables) if not name.startswith(("flow_", "descent_"))}
    variables = {name: ((*grid, REPETITION), values, attributes(name)) for name, values in starts.items()}
    variables |= _of_runs(sweep, tables, (*grid, REPETITION, RUN))
    variables |= {name: (grid, values, attributes(name)) for name, values in known.items()}
    coordinates: dict[str, Any] = {
        names[key]: (names[key], _coordinate(values), {"long_name": key, "units": "1"})
        for key, values in sweep.over.items()
    }
    count = {"long_name": "number of the initialization", "units": "1"}
    coordinates |= {REPETITION: (REPETITION, np.arange(sweep.starts), count), **run_coordinates(_runs(sweep))}
    attrs = {"scenario": json.dumps(resolved(scenario)), "failures": json.dumps([asdict(one) for one in failures])}
    return xarray.Dataset(variables, coordinates, attrs)


def _runs(sweep: SweepSettings) -> list[Run]:
    rates = sorted(rate for entry in sweep.descent for rate in entry.learning_rates)
    return [*([FLOW] if sweep.flow else []), *(Run(GRADIENT_DESCENT, rate) for rate in rates)]


def _of_runs(sweep: SweepSettings, tables: Arrays, dims: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables over `dims`, of which the last is that of the runs."""
    rates = np.array([rate for entry in sweep.descent for rate in entry.learning_rates])
    order = np.argsort(rates)
    kinds = {"flow_": lambda values: values[..., None], "descent_": lambda values: values[..., order]}
    parts = {
        prefix: {name.removeprefix(prefix): of(values) for name, values in tables.items() if name.startswith(prefix)}
        for prefix, of in kinds.items()
    }
    if rates.size:
        descent = parts["descent_"]
        made = np.where(descent["outcome"] == NOT_ASKED, np.nan, descent["steps"])
        descent["time"] = rates[order] * made
    parts = [part for part in parts.values() if part]
    variables: dict[str, Any] = {
        _name(name): (dims, _beside(parts, name), attributes(_name(name)))
        for name in sorted({name for part in parts for name in part})
    }
    if parts:
        steps = np.array([entry.steps for entry in sweep.descent for _ in entry.learning_rates], int)
        asked = np.append([NOT_ASKED] if sweep.flow else [], steps[order]).astype(int)
        variables["steps_asked"] = (RUN, asked, attributes("steps_asked"))
    return variables


def _name(name: str) -> str:
    return _OF_A_RUN.get(name, f"final_{name}")


def _beside(parts: Iterable[Arrays], name: str) -> np.ndarray:
    """Return one quantity of all runs along the last axis, NaN for those that do not have it."""
    return np.concatenate(
        [part[name] if name in part else np.full(part["outcome"].shape, np.nan) for part in parts], -1
    )


def _coordinate(values: tuple[Any, ...]) -> list[Any]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return list(values) if numbers else ["null" if value is None else str(value) for value in values]
