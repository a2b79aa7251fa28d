"""Blocks: the units of work of a sweep, each known by what determines its result."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..comparison.compare import steps_of_descent
from ..kinds import named_in
from ..kinds.outside import look_in, sha256, source_of
from ..scenarios.keys import choices
from ..scenarios.optimizer import optimizer_of
from ..scenarios.reading import resolved
from ..scenarios.runner import build_network, build_probes, build_problem, flow_options, read_data
from ..scenarios.scenario import Scenario
from ..scenarios.sweep_settings import SweepSettings
from .grid import Point, points, start_key
from .work import FORMAT, Block, Descent, Materials, Placed, Start

# A block takes about so long on one core, which is what a kill can cost, and holds at least and at most so many starts.
_SECONDS = 20.0
_LEAST, _MOST = 16, 64
# Rough costs on one core, to share the work out evenly. No result depends on them but through the size of blocks.
_SECONDS_PER_NUMBER = 3e-10
_SECONDS_PER_START = 0.02


@dataclass(frozen=True)
class ScenarioBlock(Block):
    """Some starts that share data and shape of network, with the flow and all descents from them.

    `scenario` is resolved, without the `start_options` of its network; `folder` is where its files are looked for,
    and `digests` holds the SHA-256 of those that the result depends on. `sizes` are samples, inputs and outputs,
    roughly; `holds_out` tells whether there are samples that training does not see; `cost` is a rough estimate of the
    seconds that it takes.
    """

    scenario: dict[str, Any]
    starts: tuple[Start, ...]
    descents: tuple[Descent, ...]
    flow: bool
    critical: dict[str, Any] | None
    folder: str
    digests: dict[str, str]
    sizes: tuple[int, int, int]
    holds_out: bool
    cost: float

    @property
    def wide(self) -> bool:
        """Always: single precision, too, starts from numbers drawn in double precision."""
        return True

    def scenario_of(self, start: Start) -> Scenario:
        """Return the scenario of one start. Modules that it names are looked for in the folder too, from now on."""
        look_in(Path(self.folder))
        network = self.scenario["network"] | start.options
        return Scenario.model_validate(self.scenario | {"network": network})

    def address(self, environment: dict[str, Any]) -> str:
        """Return the SHA-256 of everything that determines the result, the folder not among it."""
        unimportant = {"folder": None, "cost": None}
        content = {**asdict(self), **unimportant, "environment": environment, "format": FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def structure(self) -> str:
        """What a compiled program depends on: blocks that agree in it run one after the other in one process."""
        return json.dumps([self.scenario[key] for key in ("precision", "network", "loss")] + [self.sizes])

    def refuse_another_place(self) -> None:
        """Raise `RuntimeError` where the files that the result depends on are not those of the run that planned it."""
        try:
            found = digests(self.scenario_of(self.starts[0]), self.descents, Path(self.folder))
        except ValidationError as error:  # of a module that is not there, most of all
            raise RuntimeError(f"the worker cannot read the scenario: {error.errors()[0]['msg']}") from None
        for name in self.digests:
            if found.get(name) != self.digests[name]:
                raise RuntimeError(f"{name} is another one than when the run was started")

    def materials(self) -> Materials:
        """Return what the block is computed from: the data are drawn or read, the networks are drawn."""
        scenario = self.scenario_of(self.starts[0])
        data = read_data(scenario, Path(self.folder))

        def network(start: Start) -> Any:
            key = start_key(scenario.seed, start.name, start.repetition)
            asked = self.scenario_of(start)
            return build_network(asked, asked.network.inputs_for(data.shape), data.outputs, key)

        held_out = data.held_out if self.holds_out else None
        return Materials(
            problem=build_problem(scenario, *data.training),
            network=network,
            held_out=build_problem(scenario, *held_out) if held_out else None,
            probes=build_probes(scenario, data),
            flow=flow_options(scenario),
            optimizer=optimizer_of,
        )


def plan(scenario: Scenario, folder: Path) -> tuple[Placed, ...]:
    """Cut the sweep of `scenario` into blocks. The cut depends on the scenario alone."""
    assert scenario.sweep is not None
    groups: dict[str, list[Point]] = {}
    for point in points(scenario):
        groups.setdefault(json.dumps(_without_start_options(point.scenario)), []).append(point)
    return tuple(placed for group in groups.values() for placed in _blocks_of(scenario.sweep, group, folder))


def _blocks_of(sweep: SweepSettings, group: list[Point], folder: Path) -> Iterator[Placed]:
    shared = group[0].scenario
    descents = tuple(
        Descent(entry.optimizer.model_dump(mode="json"), rate, entry.steps, entry.repetitions or sweep.repetitions)
        for entry in sweep.descent
        for rate in entry.learning_rates
    )
    found = digests(shared, descents, folder)
    common = {
        "scenario": _without_start_options(shared),
        "descents": descents,
        "flow": sweep.flow,
        "critical": sweep.critical.model_dump() if sweep.critical else None,
        "folder": str(folder.resolve()) if found else "",
        "digests": found,
        "sizes": shared.data.rough_sizes(),
        "holds_out": shared.data.holds_out(),
    }
    costs = [_cost_of_start(shared, sweep, descents, repetition) for repetition in range(sweep.starts)]
    # Repetitions outermost: starts of the same number of descents stand together.
    starts = [
        (Start(point.name, repetition, _start_options(point.scenario)), point.index)
        for repetition in range(sweep.starts)
        for point in group
    ]
    for part in _parts(starts, costs):
        chosen = tuple(start for start, _ in part)
        block = ScenarioBlock(starts=chosen, cost=sum(costs[start.repetition] for start in chosen), **common)
        yield Placed(block, tuple(index for _, index in part))


def _parts(starts: Iterable[tuple[Start, tuple[int, ...]]], costs: Sequence[float]) -> Iterator[list]:
    """Cut starts into parts of about equal cost, of `_LEAST` to `_MOST` starts."""
    part: list = []
    seconds = 0.0
    for entry in starts:
        part.append(entry)
        seconds += costs[entry[0].repetition]
        if len(part) == _MOST or (len(part) >= _LEAST and seconds >= _SECONDS):
            yield part
            part, seconds = [], 0.0
    if part:
        yield part


def _cost_of_start(scenario: Scenario, sweep: SweepSettings, descents: Iterable[Descent], repetition: int) -> float:
    steps = sum(descent.steps for descent in descents if repetition < descent.repetitions)
    if sweep.critical is not None:
        steps += 10 * sweep.critical.steps
    samples, inputs, outputs = scenario.data.rough_sizes()
    network, shape = scenario.network, scenario.data.sample_shape()
    shape = (inputs,) if shape is None and not network.keeps_shape() else shape
    numbers = 6 * (network.count_weights(network.inputs_for(shape), outputs) or 0)
    if not scenario.network.is_linear():
        numbers *= samples / 2
    return _SECONDS_PER_START + steps * numbers * _SECONDS_PER_NUMBER


def _start_options(scenario: Scenario) -> dict[str, Any]:
    chosen = scenario.network.start_options
    return {key: value for key, value in resolved(scenario)["network"].items() if key in chosen}


def _without_start_options(scenario: Scenario) -> dict[str, Any]:
    content = resolved(scenario)
    for option in scenario.network.start_options:
        content["network"].pop(option, None)
    # What the result of a block does not depend on, in the words of the first blocks that were stored.
    del content["sharpness"]
    descent = resolved_default("descent") | {"steps": steps_of_descent(1.0, None, math.inf)}
    return content | {"descent": descent, "theory": None, "lemma_3": None}


def resolved_default(section: str) -> Any:
    """Return what a section of a scenario is where nothing is said about it."""
    return Scenario.model_fields[section].get_default(call_default_factory=True).model_dump(mode="json")


def digests(scenario: Scenario, descents: Iterable[Descent], folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that results depend on: those of the data, and modules of a user's own."""
    files = {name: folder / name for name in scenario.data.files_read()}
    kinds = {getattr(scenario, name).kind for name in choices()} | {entry.kind for entry in scenario.record}
    kinds |= {descent.optimizer["kind"] for descent in descents}
    kinds |= {name for section in (scenario.data, scenario.network, scenario.flow) for name in named_in(section)}
    modules = {kind: source_of(kind) for kind in sorted(kinds)}
    return {name: sha256(file) for name, file in (files | modules).items() if file is not None}
