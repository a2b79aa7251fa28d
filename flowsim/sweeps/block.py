"""The blocks of the sweep of a scenario."""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..comparison.models import GRADIENT
from ..comparison.plan import DEFAULT_STEPS
from ..data import DataWarning
from ..kinds import seeds
from ..kinds.registry import look_in, source_of
from ..scenarios.grid import Point, points
from ..scenarios.keys import own_kinds
from ..scenarios.reading import resolved
from ..scenarios.runner import build_network, build_probes, build_problem, flow_options, read_data, training_problem
from ..scenarios.scenario import Scenario
from ..scenarios.settings import DescentSettings, FlowSettings
from ..scenarios.sweep_settings import CriticalSettings, SweepSettings
from ..scenarios.values import content_of, optimizer_of
from .work import Block, Descent, Materials, Recipe, Start


@dataclass(frozen=True, eq=False)
class ScenarioRecipe(Recipe):
    """Points of a scenario that share data and shape of network, and differ in `start_options` of the network alone.

    `common` and `optimizers` are plain values, which can be sent to another process: a scenario without these options,
    of which `options` has some, and what the descents do in a step; so are `models`. `folder` is where files are looked
    for, and `digests` holds the SHA-256 of those that the result depends on. `sizes` are samples, inputs and outputs,
    roughly.
    """

    common: dict[str, Any]
    options: dict[str, Any]
    optimizers: tuple[dict[str, Any], ...]
    descents: tuple[Descent, ...]
    models: tuple[str | dict[str, Any], ...]
    flow: bool
    critical: CriticalSettings | None
    folder: str
    digests: dict[str, str]
    sizes: tuple[int, int, int]
    holds_out: bool
    structure: str
    wide: bool = True  # single precision, too, starts from numbers drawn in double precision
    planned_as: InitVar[Scenario | None] = None

    def __post_init__(self, planned_as: Scenario | None) -> None:
        if planned_as is not None:
            vars(self)["scenario"] = planned_as

    def __getstate__(self) -> dict[str, Any]:
        # Kinds are looked up where the block is computed: their classes cannot be sent.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario that it was planned as; in another process it is validated once, with the modules there."""
        look_in(Path(self.folder))
        return Scenario.model_validate(self.common | {"network": self.common["network"] | self.options})

    def content(self) -> dict[str, Any]:
        """Return in plain values everything that determines what a start leads to, the folder not among it."""
        descents = [{**asdict(descent), "optimizer": self.optimizers[descent.optimizer]} for descent in self.descents]
        return {
            "scenario": self.common,
            "descents": descents,
            **({"models": self.models} if self.models else {}),
            "flow": self.flow,
            "critical": None if self.critical is None else self.critical.model_dump(),
            "digests": self.digests,
            "sizes": self.sizes,
            "holds_out": self.holds_out,
        }

    def check_origin(self) -> None:
        """Raise `RuntimeError` where the files that the result depends on are not those of the run that planned it."""
        try:
            found = digests(self.scenario, self.optimizers, self.models, Path(self.folder))
        except ValidationError as error:  # of a module that is not there, most of all
            raise RuntimeError(f"the worker cannot read the scenario: {error.errors()[0]['msg']}") from None
        for name in self.digests:
            if found.get(name) != self.digests[name]:
                raise RuntimeError(f"{name} is another one than when the run was started")

    def materials(self) -> Materials:
        """Return what runs are made of: the data are drawn or read, the networks are drawn."""
        scenario = self.scenario
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the command line warns of the data of a scenario, once
            data = read_data(scenario, Path(self.folder))
        inputs = scenario.network.inputs_for(data.shape)

        def network(start: Start) -> Any:
            recipe = scenario.network.model_copy(update=start.options)
            key = seeds.start_key(scenario.seed, start.name, start.repetition)
            return build_network(scenario.model_copy(update={"network": recipe}), inputs, data.outputs, key)

        held_out = data.held_out if self.holds_out else None
        return Materials(
            problem=training_problem(scenario, data),
            network=network,
            held_out=build_problem(scenario, *held_out) if held_out else None,
            probes=build_probes(scenario, data),
            flow=flow_options(scenario),
            optimizers=tuple(optimizer_of(content) for content in self.optimizers),
            models=FlowSettings.model_validate({"models": self.models}).of_descent,
        )


def plan(scenario: Scenario, folder: Path) -> tuple[Block, ...]:
    """Cut the sweep of `scenario` into blocks. The cut depends on the scenario alone."""
    assert scenario.sweep is not None
    groups: dict[tuple[int | None, ...], list[Point]] = {}
    for point in points(scenario):
        # Points that differ in options of the start alone share data and shapes, and are computed together.
        free = {f"network.{option}" for option in point.scenario.network.start_options}
        shared = tuple(
            None if axis in free else place for axis, place in zip(point.coordinates, point.index, strict=True)
        )
        groups.setdefault(shared, []).append(point)
    entries = [one for one in scenario.flow.models if one != GRADIENT and scenario.sweep.descent]
    models = tuple(one if isinstance(one, str) else one.model_dump(mode="json", exclude_unset=True) for one in entries)
    return tuple(block for group in groups.values() for block in _blocks_of(scenario.sweep, group, models, folder))


def _blocks_of(
    sweep: SweepSettings, group: list[Point], models: tuple[str | dict[str, Any], ...], folder: Path
) -> Iterator[Block]:
    shared = group[0].scenario
    chosen = list(dict.fromkeys((entry.optimizer, entry.schedule) for entry in sweep.descent))
    optimizers = tuple(content_of(*one) for one in chosen)
    descents = tuple(
        Descent(
            chosen.index((entry.optimizer, entry.schedule)), rate, entry.steps, entry.repetitions or sweep.repetitions
        )
        for entry in sweep.descent
        for rate in entry.learning_rates
    )
    content = resolved(shared)
    for option in shared.network.start_options:
        content["network"].pop(option, None)
    # What the result of a block does not depend on, in the words of the first blocks that were stored.
    del content["sharpness"]
    descent = DescentSettings(steps=DEFAULT_STEPS).model_dump(mode="json", exclude={"schedule", "forks"})
    found = digests(shared, optimizers, models, folder)
    free, sizes = set(shared.network.start_options), shared.data.rough_sizes()
    recipe = ScenarioRecipe(
        common=content | {"descent": descent, "theory": None, "lemma_3": None},
        options=shared.network.model_dump(include=free),
        optimizers=optimizers,
        descents=descents,
        models=models,
        flow=sweep.flow,
        critical=sweep.critical,
        folder=str(folder.resolve()) if found else "",
        digests=found,
        sizes=sizes,
        structure=json.dumps([*(content[key] for key in ("precision", "network", "loss")), sizes]),
        holds_out=shared.data.holds_out(),
        planned_as=shared,
    )
    costs = [_cost_of_start(shared, sweep, descents, len(models), repetition) for repetition in range(sweep.starts)]
    # Repetitions outermost: starts of the same number of descents stand together.
    starts = [
        Start(point.name, point.index, repetition, point.scenario.network.model_dump(include=free))
        for repetition in range(sweep.starts)
        for point in group
    ]
    # Batches of descents are worth many starts; models run one by one.
    for part in _parts(starts, costs, least=1 if models else 16):
        yield Block(recipe, part, cost=sum(costs[start.repetition] for start in part))


def _parts(
    starts: Iterable[Start],
    costs: Sequence[float],
    *,
    seconds: float = 20.0,
    least: int,
    most: int = 64,
) -> Iterator[tuple[Start, ...]]:
    """Cut starts into parts of `least` to `most`, each of about so many `seconds`, which is what a kill can cost."""
    part: list[Start] = []
    taken = 0.0
    for start in starts:
        part.append(start)
        taken += costs[start.repetition]
        if len(part) == most or (len(part) >= least and taken >= seconds):
            yield tuple(part)
            part, taken = [], 0.0
    if part:
        yield tuple(part)


def _cost_of_start(
    scenario: Scenario,
    sweep: SweepSettings,
    descents: Sequence[Descent],
    models: int,
    repetition: int,
    *,
    seconds_per_start: float = 0.02,
    seconds_per_number: float = 3e-10,
    passes_of_model: int = 30_000,
    seconds_per_pass: float = 5e-5,
) -> float:
    """Return roughly the seconds of a start on one core; no result depends on them but through the size of blocks."""
    steps = sum(descent.steps for descent in descents if repetition < descent.repetitions)
    if sweep.critical is not None:
        steps += 10 * sweep.critical.steps
    samples, inputs, outputs = scenario.data.rough_sizes()
    network, shape = scenario.network, scenario.data.sample_shape()
    shape = (inputs,) if shape is None and not network.keeps_shape() else shape
    numbers = 6 * (network.count_weights(network.inputs_for(shape), outputs) or 0)
    if not scenario.network.is_linear():
        numbers *= samples / 2
    passes = passes_of_model * models * sum(repetition < descent.repetitions for descent in descents)
    of_models = passes * (seconds_per_pass + numbers * seconds_per_number)
    return seconds_per_start + steps * numbers * seconds_per_number + of_models


def digests(
    scenario: Scenario, optimizers: Iterable[dict[str, Any]], models: Iterable[str | dict[str, Any]], folder: Path
) -> dict[str, str]:
    """Return the SHA-256 of the files that results depend on: those of the data, and modules of a user's own."""
    files = {name: folder / name for name in scenario.data.files_read()}
    descents = [part["kind"] for optimizer in optimizers for part in (optimizer, *optimizer.get("schedule", ()))]
    kinds = [*descents, *(model if isinstance(model, str) else model["kind"] for model in models)]
    modules = {kind: source_of(kind) for kind in own_kinds(scenario, kinds)}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in (files | modules).items()
        if file is not None
    }
