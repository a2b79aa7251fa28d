"""What the blocks of a sweep found, as one labelled data set over (grid, repetition, run)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...probes import Label
from ...quantities import NOT_ASKED, attributes
from ...runs import FLOW, RUN, Run, run_coordinates
from ..reading import resolved
from ..record import labels_of
from ..scenario import Scenario
from ..sweep_settings import SweepSettings
from .compute import Arrays, Failure
from .grid import axis_names

if TYPE_CHECKING:
    import xarray

REPETITION = "repetition"
Labels = Mapping[str, Label]
# What blocks say of a run beside what they measure at its end.
_OF_A_RUN = {"outcome": "outcome", "steps": "steps", "time": "end_time", "distance_to_flow": "distance_to_flow"}


def sweep_dataset(scenario: Scenario, tables: Arrays, known: Arrays, failures: Sequence[Failure]) -> "xarray.Dataset":
    """Return everything that is known of a sweep.

    `initial_*` stand over (grid, repetition); outcome, steps, times and `final_*` over (grid, repetition, run), the
    flow first and then the descents by learning rate; what is `known` of the data over the grid alone. `tables` are
    those of the blocks, and the scenario and the cells that failed become attributes, as JSON.
    """
    import xarray

    sweep = scenario.sweep
    assert sweep is not None
    names = axis_names(scenario)
    grid = tuple(names.values())
    starts = {name: tables[name] for name in sorted(tables) if not name.startswith(("flow_", "descent_"))}
    labels = labels_of(scenario.record)
    variables = {
        name: _over((*grid, REPETITION), name.removeprefix("initial_"), values, name, labels)
        for name, values in starts.items()
    }
    variables |= _of_runs(sweep, tables, (*grid, REPETITION, RUN), labels)
    variables |= {name: (grid, values, attributes(name)) for name, values in known.items()}
    coordinates: dict[str, Any] = {
        names[key]: (names[key], _coordinate(values), {"long_name": key, "units": "1"})
        for key, values in sweep.over.items()
    }
    runs = [*([FLOW] if sweep.flow else []), *(run for _, run, _ in _in_order(sweep))]
    count = {"long_name": "number of the initialization", "units": "1"}
    coordinates |= {REPETITION: (REPETITION, np.arange(sweep.starts), count), **run_coordinates(runs)}
    attrs = {"scenario": json.dumps(resolved(scenario)), "failures": json.dumps([asdict(one) for one in failures])}
    return xarray.Dataset(variables, coordinates, attrs)


def _in_order(sweep: SweepSettings) -> list[tuple[int, Run, int]]:
    """Return of every descent its column in the blocks, the run that it is, and its number of steps.

    Those of one optimizer stand together, by learning rate.
    """
    asked = [(entry.optimizer.kind, rate, entry.steps) for entry in sweep.descent for rate in entry.learning_rates]
    kinds = list(dict.fromkeys(kind for kind, _, _ in asked))
    order = sorted(range(len(asked)), key=lambda column: (kinds.index(asked[column][0]), asked[column][1]))
    return [(column, Run(asked[column][0], asked[column][1]), asked[column][2]) for column in order]


def _of_runs(sweep: SweepSettings, tables: Arrays, dims: tuple[str, ...], labels: Labels) -> dict[str, Any]:
    """Return the variables over `dims`, of which the last is that of the runs."""
    axis, columns = len(dims) - 1, [column for column, _, _ in _in_order(sweep)]
    kinds = {"flow_": lambda values: np.expand_dims(values, axis), "descent_": lambda v: np.take(v, columns, axis)}
    parts = {
        prefix: {name.removeprefix(prefix): of(values) for name, values in tables.items() if name.startswith(prefix)}
        for prefix, of in kinds.items()
    }
    if columns:
        descent = parts["descent_"]
        made = np.where(descent["outcome"] == NOT_ASKED, np.nan, descent["steps"])
        descent["time"] = np.array([run.learning_rate for _, run, _ in _in_order(sweep)]) * made
    parts = [part for part in parts.values() if part]
    variables: dict[str, Any] = {
        _name(name): _over(dims, name, _beside(parts, name, axis), _name(name), labels)
        for name in sorted({name for part in parts for name in part})
    }
    if parts:
        steps = [steps for _, _, steps in _in_order(sweep)]
        asked = np.array([*([NOT_ASKED] if sweep.flow else []), *steps], int)
        variables["steps_asked"] = (RUN, asked, attributes("steps_asked"))
    return variables


def _over(dims: tuple[str, ...], name: str, values: np.ndarray, called: str, labels: Labels) -> tuple:
    """Return a variable over `dims`, and over axes of its own where a probe measures more than a number."""
    inner = tuple(f"{name}_{axis}" for axis in range(values.ndim - len(dims)))
    return (*dims, *inner), values, attributes(called, labels.get(name))


def _name(name: str) -> str:
    return _OF_A_RUN.get(name, f"final_{name}")


def _beside(parts: Iterable[Arrays], name: str, axis: int) -> np.ndarray:
    """Return one quantity of all runs along an axis, NaN for those that do not have it."""
    (inner,) = {part[name].shape[axis + 1 :] for part in parts if name in part}
    return np.concatenate(
        [part[name] if name in part else np.full((*part["outcome"].shape, *inner), np.nan) for part in parts], axis
    )


def _coordinate(values: tuple[Any, ...]) -> list[Any]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return list(values) if numbers else ["null" if value is None else str(value) for value in values]
