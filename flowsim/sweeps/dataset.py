"""What the blocks of a sweep found, as one labelled data set over (grid, repetition, run)."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..columns import FAILED, FLOW, NOT_ASKED, RUN, Edge, Run, attributes, run_coordinates
from ..dynamics import Descent, times_of_steps
from ..probes import Label
from ..scenarios.reading import resolved
from ..scenarios.scenario import Scenario
from ..scenarios.values import kind_of, labels_of
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
class PlannedDescent:
    """A descent of a sweep: the run that it is, its number of steps, and the time that so many take."""

    run: Run
    steps: int
    time_of: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(cls, dynamics: str, optimizer: Descent, learning_rate: float, steps: int) -> "PlannedDescent":
        """Return the descent of an optimizer called `dynamics`, made for a learning rate.

        Where that changes, its edge is the one after all steps.
        """
        if not optimizer.is_scheduled():
            run = Run(dynamics, learning_rate, edge=Edge.of(optimizer))
            return cls(run, steps, lambda made: made * float(optimizer.time_of_step()))
        times = times_of_steps(optimizer, steps=steps)
        run = Run(dynamics, learning_rate, edge=Edge.of(optimizer.at(jnp.asarray(times[-1]))))
        return cls(run, steps, lambda made: np.where(np.isnan(made), np.nan, times[np.nan_to_num(made).astype(int)]))


@dataclass(frozen=True)
class Layout:
    """What the results of a sweep stand over, and their attributes.

    `axes` holds under the name of each dimension of the grid what it is and its values, `starts` is the number of
    repetitions, `descents` are the descents as blocks have them, and `models` names the models of each.
    """

    axes: Mapping[str, tuple[str, tuple[Any, ...]]]
    starts: int
    flow: bool
    descents: tuple[PlannedDescent, ...]
    models: tuple[str, ...]
    labels: Labels
    attrs: Mapping[str, str]

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of values of each axis."""
        return tuple(len(values) for _, values in self.axes.values())


def layout_of(scenario: Scenario) -> Layout:
    """Return the layout of the sweep of a scenario."""
    sweep = scenario.sweep
    assert sweep is not None
    return Layout(
        axes={name: (key, sweep.over[key]) for key, name in axis_names(scenario).items()},
        starts=sweep.starts,
        flow=sweep.flow,
        descents=tuple(
            PlannedDescent.of(kind_of(entry.optimizer), entry.at(rate), rate, entry.steps)
            for entry in sweep.descent
            for rate in entry.learning_rates
        ),
        models=tuple(scenario.flow.of_descent) if sweep.descent else (),
        labels=labels_of(scenario.record),
        attrs={"scenario": json.dumps(resolved(scenario))},
    )


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

    grid = tuple(layout.axes)
    variables: dict[str, Any] = {
        f"{kind}_{name}": _over((*grid, REPETITION), name, values, f"{kind}_{name}", layout.labels)
        for (kind, name), values in sorted(tables.items(), key=lambda item: item[0])
        if kind in ("initial", "critical")
    }
    variables |= _of_runs(layout, tables, (*grid, REPETITION, RUN))
    variables |= {name: (grid, values, attributes(name)) for name, values in known.items()}
    coordinates: dict[str, Any] = {
        name: (name, _coordinate(values), {"long_name": key, "units": "1"})
        for name, (key, values) in layout.axes.items()
    }
    runs = [*([FLOW] if layout.flow else []), *(descent.run for _, descent in _in_order(layout))]
    runs += [run for _, run in _models_in_order(layout)]
    count = {"long_name": "number of the initialization", "units": "1"}
    coordinates |= {REPETITION: (REPETITION, np.arange(layout.starts), count), **run_coordinates(runs)}
    attrs = {**layout.attrs, "failures": json.dumps([asdict(one) for one in failures])}
    return xarray.Dataset(variables, coordinates, attrs)


def _in_order(layout: Layout) -> list[tuple[int, PlannedDescent]]:
    """Return every descent after its column in the blocks.

    Those of one optimizer stand together, by learning rate.
    """
    runs = [descent.run for descent in layout.descents]
    kinds = list(dict.fromkeys(run.dynamics for run in runs))
    ranks = [(kinds.index(run.dynamics), run.learning_rate or 0.0) for run in runs]
    order = sorted(range(len(runs)), key=lambda column: ranks[column])
    return [(column, layout.descents[column]) for column in order]


def _models_in_order(layout: Layout) -> list[tuple[int, Run]]:
    """Return every model of a descent after its column in the blocks: those of one kind stand together, as descents."""
    return [
        (
            column * len(layout.models) + number,
            Run(name, planned.run.learning_rate, edge=planned.run.edge, models=planned.run.dynamics),
        )
        for number, name in enumerate(layout.models)
        for column, planned in _in_order(layout)
    ]


def _of_runs(layout: Layout, tables: Arrays, dims: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables over `dims`, of which the last is that of the runs."""
    axis, columns = len(dims) - 1, [column for column, _ in _in_order(layout)]
    of_models = [column for column, _ in _models_in_order(layout)]
    flow = {name: np.expand_dims(values, axis) for (kind, name), values in tables.items() if kind == "flow"}
    descent = {name: np.take(values, columns, axis) for (kind, name), values in tables.items() if kind == "descent"}
    model = {name: np.take(values, of_models, axis) for (kind, name), values in tables.items() if kind == "model"}
    if columns:
        made = np.where(np.isin(descent["outcome"], (NOT_ASKED, FAILED)), np.nan, descent["steps"])
        times = [planned.time_of(made[..., place]) for place, (_, planned) in enumerate(_in_order(layout))]
        descent["time"] = np.stack(times, axis=axis)
    parts, labels = [part for part in (flow, descent, model) if part], LABELS | dict(layout.labels)
    variables: dict[str, Any] = {
        _name(name): _over(dims, name, _join(parts, name, axis), _name(name), labels)
        for name in sorted({name for part in parts for name in part})
    }
    if parts:
        steps = [planned.steps for _, planned in _in_order(layout)]
        to_limits = [NOT_ASKED] if layout.flow else []  # of the flow, and of models, which take the steps they need
        steps = np.array([*to_limits, *steps, *([NOT_ASKED] * len(of_models))], int)
        variables["steps_asked"] = (RUN, steps, attributes("steps_asked"))
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
