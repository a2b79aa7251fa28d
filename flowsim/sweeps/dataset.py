"""What the blocks of a sweep found, as one labelled data set over (grid, repetition, run)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..columns import FAILED, FLOW, NOT_ASKED, RUN, Edge, Run, attributes, run_coordinates
from ..comparison.plan import RunSpec
from ..probes import Label
from ..scenarios.grid import Grid
from ..scenarios.scenario import Scenario
from .blocks import StartPlan
from .compute import Arrays, Failure
from .models import LABELS

if TYPE_CHECKING:
    import xarray

REPETITION = "repetition"
RESERVED = ("repetition", "run", "dynamics", "learning_rate", "stability_threshold", "threshold_of")
Labels = Mapping[str, Label]
# What blocks say of a run, in addition to what they measure at its end, and what results call it.
_OF_A_RUN = {name: name for name in ("outcome", "steps", "distance_to_flow", "gradients", "products")}
_OF_A_RUN["time"] = "end_time"


@dataclass(frozen=True)
class Layout:
    """What the results of a sweep stand over, and their attributes.

    `names` are those of the dimensions of the grid, by its axes, and `starts` is the number of repetitions. Blocks have
    a column for each descent, and for each model, of the `plan`.
    """

    grid: Grid
    names: Mapping[str, str]
    starts: int
    plan: StartPlan
    labels: Labels
    attrs: Mapping[str, str]


def axis_names(scenario: Scenario) -> dict[str, str]:
    """Return for every axis its short name: the last part of its key, or all of it where that is taken."""
    axes = scenario.sweep.over if scenario.sweep else {}
    short = {key: key.rpartition(".")[2] for key in axes}
    count = Counter([*short.values(), *RESERVED])
    return {key: name if count[name] == 1 else key.replace(".", "_") for key, name in short.items()}


def sweep_dataset(
    layout: Layout, tables: Arrays, known: Mapping[str, np.ndarray], failures: Sequence[Failure]
) -> "xarray.Dataset":
    """Return everything that is known of a sweep.

    `initial_*` and `critical_*` stand over (grid, repetition); outcome, steps, times and `final_*` over (grid,
    repetition, run), the flow first and then the descents by learning rate; what is `known` of the data over the grid
    alone. `tables` are those of the blocks; the descents and the cells that failed become attributes, as JSON.
    """
    import xarray

    grid = tuple(layout.names[axis] for axis in layout.grid.axes)
    variables: dict[str, Any] = {
        f"{kind}_{name}": _over((*grid, REPETITION), name, values, f"{kind}_{name}", layout.labels)
        for (kind, name), values in sorted(tables.items(), key=lambda item: item[0])
        if kind in ("initial", "critical")
    }
    variables |= _of_runs(layout, tables, (*grid, REPETITION, RUN))
    variables |= {name: (grid, values, attributes(name)) for name, values in known.items()}
    coordinates: dict[str, Any] = {
        layout.names[axis]: (layout.names[axis], _coordinate(values), {"long_name": axis, "units": "1"})
        for axis, values in layout.grid.axes.items()
    }
    flow, descents, models = _in_order(layout.plan)
    runs = [*([FLOW] if flow else []), *map(run_of, descents), *map(run_of, models)]
    count = {"long_name": "number of the initialization", "units": "1"}
    coordinates |= {REPETITION: (REPETITION, np.arange(layout.starts), count), **run_coordinates(runs)}
    attrs = {**layout.attrs, "failures": json.dumps([asdict(one) for one in failures])}
    return xarray.Dataset(variables, coordinates, attrs)


def run_of(spec: RunSpec) -> Run:
    """Return the run that a descent or a model makes, with its edge, of a rate that changes the one after all steps."""
    end = (spec.follows or spec).end_time
    return replace(spec.run, edge=Edge.of(spec.descent.at(jnp.asarray(end))))


def _in_order(plan: StartPlan) -> tuple[list[RunSpec], list[RunSpec], list[RunSpec]]:
    """Return flow, descents and models as results have them.

    Descents of one optimizer stand together, by learning rate, and so do models of one kind, in the order of the
    descents.
    """
    kinds = list(dict.fromkeys(spec.dynamics.kind() for spec in (*plan.descents, *plan.models)))

    def rank(spec: RunSpec) -> tuple[int, float]:
        return kinds.index(spec.dynamics.kind()), spec.learning_rate or 0.0

    descents = sorted(plan.descents, key=rank)
    order = {spec: number for number, spec in enumerate(descents)}
    models = sorted(plan.models, key=lambda spec: (rank(spec)[0], order[spec.follows] if spec.follows else 0))
    return [plan.flow] if plan.flow in plan.runs else [], descents, models


def _of_runs(layout: Layout, tables: Arrays, dims: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables over `dims`, of which the last is that of the runs."""
    axis, plan = len(dims) - 1, layout.plan
    flow, descents, models = _in_order(plan)
    columns = {"descent": list(map(plan.descents.index, descents)), "model": list(map(plan.models.index, models))}
    of_kind: dict[str, dict[str, np.ndarray]] = {"flow": {}, "descent": {}, "model": {}}
    for (kind, name), values in tables.items():
        if kind == "flow":
            of_kind[kind][name] = np.expand_dims(values, axis)
        elif kind in columns:
            of_kind[kind][name] = np.take(values, columns[kind], axis)
    if descents:
        ends = of_kind["descent"]
        made = np.where(np.isin(ends["outcome"], (NOT_ASKED, FAILED)), np.nan, ends["steps"])
        times = [spec.step_times.after(made[..., place]) for place, spec in enumerate(descents)]
        ends["time"] = np.stack(times, axis=axis)
    parts, labels = [part for part in of_kind.values() if part], LABELS | dict(layout.labels)
    variables: dict[str, Any] = {
        _name(name): _over(dims, name, _join(parts, name, axis), _name(name), labels)
        for name in sorted({name for part in parts for name in part})
    }
    if parts:
        # The flow, and models, take the steps that they need.
        steps = np.array([*([NOT_ASKED] * len(flow)), *(spec.steps for spec in descents), *([NOT_ASKED] * len(models))])
        variables["steps_asked"] = (RUN, steps.astype(int), attributes("steps_asked"))
    return variables


def _over(dims: tuple[str, ...], name: str, values: np.ndarray, called: str, labels: Labels) -> tuple:
    """Return a variable over `dims`, and over axes of its own where a probe measures more than a number."""
    inner = tuple(f"{name}_{axis}" for axis in range(values.ndim - len(dims)))
    return (*dims, *inner), values, attributes(called, labels.get(name))


def _name(name: str) -> str:
    return _OF_A_RUN.get(name, f"final_{name}")


def _join(parts: Sequence[dict[str, np.ndarray]], name: str, axis: int) -> np.ndarray:
    """Return one quantity of all runs along an axis, NaN for those that do not have it."""
    (inner,) = {part[name].shape[axis + 1 :] for part in parts if name in part}
    return np.concatenate(
        [part[name] if name in part else np.full((*part["outcome"].shape, *inner), np.nan) for part in parts], axis
    )


def _coordinate(values: tuple[Any, ...]) -> list[Any]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return list(values) if numbers else ["null" if value is None else str(value) for value in values]
