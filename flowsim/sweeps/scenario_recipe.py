"""The blocks of the sweep of a scenario."""

import hashlib
import json
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..comparison.models import GRADIENT
from ..comparison.plan import DEFAULT_STEPS, End, RunSpec
from ..data import DataWarning
from ..kinds import seeds
from ..kinds.recipes import Made
from ..kinds.registry import look_in, source_of
from ..scenarios.keys import own_kinds
from ..scenarios.points import Point, points
from ..scenarios.reading import resolved
from ..scenarios.runner import build_network, build_probes, build_problem, read_data, training_problem
from ..scenarios.scenario import Scenario
from ..scenarios.settings import DescentSettings, model_of_entry
from ..scenarios.sweep_settings import SweepSettings
from ..scenarios.values import content_of
from .blocks import Block, Materials, Recipe, Start, StartPlan, blocks_of


@dataclass(frozen=True, eq=False)
class ScenarioRecipe(Recipe):
    """Points of a scenario that share data and shape of network, and differ in `start_options` of the network alone.

    `scenario` is that of the first of these points. `models` are entries of `flow.models`, which follow the descents of
    the `sweep`. Files are looked for in `folder`, and `digests` holds the SHA-256 of those that the result depends on.
    """

    scenario: Scenario
    sweep: SweepSettings
    models: tuple[str | Made, ...]
    folder: str
    digests: dict[str, str]
    content: dict[str, Any]
    structure: str
    wide: bool = True  # single precision, too, starts from numbers drawn in double precision

    def __reduce__(self) -> tuple[Any, ...]:
        # Kinds in a user's own modules are imported where the recipe arrives.
        return _received, (self.folder, pickle.dumps([getattr(self, field.name) for field in fields(self)]))

    def plan(self) -> StartPlan:
        """Return the flow, the descents of the sweep, and the models of each."""
        flow, sweep = self.scenario.flow, self.sweep
        descents = {
            RunSpec(entry.at(rate), rate, End(steps=entry.steps)): entry.repetitions or sweep.repetitions
            for entry in sweep.descent
            for rate in entry.learning_rates
        }
        return StartPlan.of(
            RunSpec(flow.make(), until=End(flow.t1, flow.max_steps)),
            descents,
            [model for _, model in map(model_of_entry, self.models) if model is not None],
            repetitions_of_flow=sweep.starts if sweep.flow else 0,
            critical=sweep.critical,
            holds_out=self.scenario.data.holds_out(),
        )

    def check_origin(self) -> None:
        """Raise `RuntimeError` if the files that the result depends on are not those of the run that planned it."""
        here = digests(self.scenario, self.sweep, self.models, Path(self.folder))
        for name in self.digests:
            if here.get(name) != self.digests[name]:
                raise RuntimeError(f"{name} is another one than when the run was started")

    def materials(self) -> Materials:
        """Return what runs are made of: the data are drawn or read, the networks are drawn."""
        # The problem keeps the samples that the descents of the sweep draw from.
        scenario = self.scenario.model_copy(update={"sweep": self.sweep})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the command line warns of the data of a scenario, once
            data = read_data(scenario, Path(self.folder))
        inputs = scenario.network.inputs_for(data.shape)

        def network(start: Start) -> Any:
            recipe = scenario.network.model_copy(update=start.options)
            key = seeds.start_key(scenario.seed, start.name, start.repetition)
            return build_network(scenario.model_copy(update={"network": recipe}), inputs, data.outputs, key)

        held_out = data.held_out if scenario.data.holds_out() else None
        return Materials(
            problem=training_problem(scenario, data),
            network=network,
            held_out=build_problem(scenario, *held_out) if held_out else None,
            probes=build_probes(scenario, data),
            stopping=scenario.flow.stopping,
        )


def _received(folder: str, parts: bytes) -> ScenarioRecipe:
    look_in(Path(folder))
    return ScenarioRecipe(*pickle.loads(parts))


def scenario_blocks(scenario: Scenario, folder: Path) -> tuple[Block, ...]:
    """Cut the sweep of `scenario` into blocks. The cut depends on the scenario alone."""
    sweep = scenario.sweep
    assert sweep is not None
    models = tuple(entry for entry in scenario.flow.models if entry != GRADIENT and sweep.descent)
    groups: dict[tuple[int | None, ...], list[Point]] = {}
    for point in points(scenario):
        # Points that differ in options of the start alone share data and shapes, and are computed together.
        free = {f"network.{option}" for option in point.scenario.network.start_options}
        shared = tuple(
            None if axis in free else place for axis, place in zip(point.coordinates, point.index, strict=True)
        )
        groups.setdefault(shared, []).append(point)
    blocks: list[Block] = []
    for group in groups.values():
        shared = group[0].scenario
        found, free = digests(shared, sweep, models, folder), set(shared.network.start_options)
        content = _content(shared, sweep, models) | {"digests": found}
        common = content["scenario"]
        recipe = ScenarioRecipe(
            scenario=shared,
            sweep=sweep,
            models=models,
            folder=str(folder.resolve()) if found else "",
            digests=found,
            content=content,
            structure=json.dumps([common["precision"], common["network"], common["loss"], content["sizes"]]),
        )
        costs = [_cost_of_start(shared, sweep, len(models), repetition) for repetition in range(sweep.starts)]
        # Repetitions outermost: starts of the same number of descents stand together.
        starts = (
            (Start(point.name, point.index, repetition, point.scenario.network.model_dump(include=free)), cost)
            for repetition, cost in enumerate(costs)
            for point in group
        )
        # Batches of descents are worth many starts; models run one by one.
        blocks += blocks_of(recipe, starts, least=1 if models else 16, most=64)
    return tuple(blocks)


def _content(scenario: Scenario, sweep: SweepSettings, models: tuple[str | Made, ...]) -> dict[str, Any]:
    """Return in plain values what determines the runs from a start, worded as in the first stored blocks."""
    common = resolved(scenario)
    for option in scenario.network.start_options:
        common["network"].pop(option, None)
    del common["sharpness"]
    descent = DescentSettings(steps=DEFAULT_STEPS).model_dump(mode="json", exclude={"schedule", "forks"})
    descents = [
        {
            "optimizer": content_of(entry.optimizer, entry.schedule),
            "learning_rate": rate,
            "steps": entry.steps,
            "repetitions": entry.repetitions or sweep.repetitions,
        }
        for entry in sweep.descent
        for rate in entry.learning_rates
    ]
    entries = [one if isinstance(one, str) else one.model_dump(mode="json", exclude_unset=True) for one in models]
    return {
        "scenario": common | {"descent": descent, "theory": None, "lemma_3": None},
        "descents": descents,
        **({"models": entries} if entries else {}),
        "flow": sweep.flow,
        "critical": None if sweep.critical is None else sweep.critical.model_dump(),
        "sizes": scenario.data.rough_sizes(),
        "holds_out": scenario.data.holds_out(),
    }


def _cost_of_start(
    scenario: Scenario,
    sweep: SweepSettings,
    models: int,
    repetition: int,
    *,
    seconds_per_start: float = 0.02,
    seconds_per_number: float = 3e-10,
    passes_of_model: int = 30_000,
    seconds_per_pass: float = 5e-5,
) -> float:
    """Return roughly the seconds of a start on one core; no result depends on them but through the size of blocks."""
    descents = [entry for entry in sweep.descent if repetition < (entry.repetitions or sweep.repetitions)]
    steps = sum(entry.steps * len(entry.learning_rates) for entry in descents)
    if sweep.critical is not None:
        steps += 10 * sweep.critical.steps
    samples, inputs, outputs = scenario.data.rough_sizes()
    network, shape = scenario.network, scenario.data.sample_shape()
    shape = (inputs,) if shape is None and not network.keeps_shape() else shape
    numbers = 6 * (network.count_weights(network.inputs_for(shape), outputs) or 0)
    if not scenario.network.is_linear():
        numbers *= samples / 2
    passes = passes_of_model * models * sum(len(entry.learning_rates) for entry in descents)
    of_models = passes * (seconds_per_pass + numbers * seconds_per_number)
    return seconds_per_start + steps * numbers * seconds_per_number + of_models


def digests(scenario: Scenario, sweep: SweepSettings, models: Sequence[str | Made], folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that results depend on: those of the data, and modules of a user's own."""
    files = {name: folder / name for name in scenario.data.files_read()}
    entries = [part for entry in sweep.descent for part in (entry.optimizer, *entry.schedule)]
    kinds = [entry if isinstance(entry, str) else entry.kind for entry in (*entries, *models)]
    modules = {kind: source_of(kind) for kind in own_kinds(scenario, kinds)}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in (files | modules).items()
        if file is not None
    }
