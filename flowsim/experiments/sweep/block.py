"""Blocks: the units of work of a sweep, each known by what determines its result."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..reading import resolved
from ..scenario import Scenario
from ..settings import FileData
from .grid import Point, points

# The results of blocks change with this number: raise it with every change of what a block computes.
FORMAT = 3
# A block takes about so long on one core, which is what a kill can cost, and holds at least and at most so many starts.
_SECONDS = 20.0
_LEAST, _MOST = 16, 64
# Rough costs on one core, to share the work out evenly. No result depends on them but through the size of blocks.
_SECONDS_PER_NUMBER = 3e-10
_SECONDS_PER_START = 0.02


@dataclass(frozen=True)
class Start:
    """One initialization: the scale of its network, the name of its point of the grid, and its repetition."""

    scale: float
    name: str
    repetition: int


@dataclass(frozen=True)
class Descent:
    """Gradient descent that is asked for: a learning rate, a number of steps, and how many repetitions run it."""

    learning_rate: float
    steps: int
    repetitions: int


@dataclass(frozen=True)
class Block:
    """Some starts that share data and shape of network, with the flow and all descents from them.

    `scenario` is resolved, with scale 0 in its network; `folder` is where its data file is looked for, and `digest`
    the SHA-256 of that file.
    """

    scenario: dict[str, Any]
    starts: tuple[Start, ...]
    descents: tuple[Descent, ...]
    flow: bool
    critical: dict[str, Any] | None
    folder: str
    digest: str | None

    def address(self, environment: dict[str, Any]) -> str:
        """Return the SHA-256 of everything that determines the result, the folder not among it."""
        content = {**asdict(self), "folder": None, "environment": environment, "format": FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def structure(self) -> str:
        """What a compiled program depends on: blocks that agree in it run one after the other in one process."""
        return json.dumps([self.scenario[key] for key in ("precision", "network")] + [_sizes(self.scenario)])

    @cached_property
    def cost(self) -> float:
        """A rough estimate of the seconds that the block takes."""
        return sum(_cost_of_start(self, start.repetition) for start in self.starts)

    def describe(self, start: Start) -> str:
        """Return the coordinates of one start, in words."""
        return f"{start.name or 'the only point'}, repetition {start.repetition}"


@dataclass(frozen=True)
class Placed:
    """A block, and for each of its starts the index of its point in the grid."""

    block: Block
    indices: tuple[tuple[int, ...], ...]


def plan(scenario: Scenario, folder: Path) -> tuple[Placed, ...]:
    """Cut the sweep of `scenario` into blocks. The cut depends on the scenario alone."""
    assert scenario.sweep is not None
    groups: dict[str, list[Point]] = {}
    for point in points(scenario):
        groups.setdefault(json.dumps(_without_scale(point.scenario)), []).append(point)
    return tuple(placed for group in groups.values() for placed in _blocks_of(scenario, group, folder))


def _blocks_of(scenario: Scenario, group: list[Point], folder: Path) -> Iterator[Placed]:
    sweep = scenario.sweep
    assert sweep is not None
    content = _without_scale(group[0].scenario)
    descents = tuple(
        Descent(rate, entry.steps, entry.repetitions or sweep.repetitions)
        for entry in sweep.descent
        for rate in entry.learning_rates
    )
    critical = sweep.critical.model_dump() if sweep.critical else None
    found = digest(group[0].scenario, folder)
    common = (descents, sweep.flow, critical, str(folder.resolve()) if found else "", found)
    # Repetitions outermost: starts of the same number of descents stand together.
    starts = [
        (Start(point.scenario.network.scale, point.name, repetition), point.index)
        for repetition in range(sweep.starts)
        for point in group
    ]
    probe = Block(content, (), *common)
    for part in _parts(probe, starts):
        yield Placed(Block(content, tuple(start for start, _ in part), *common), tuple(index for _, index in part))


def _parts(probe: Block, starts: Iterable[tuple[Start, tuple[int, ...]]]) -> Iterator[list]:
    """Cut starts into parts of about equal cost, of `_LEAST` to `_MOST` starts."""
    part: list = []
    seconds = 0.0
    for entry in starts:
        part.append(entry)
        seconds += _cost_of_start(probe, entry[0].repetition)
        if len(part) == _MOST or (len(part) >= _LEAST and seconds >= _SECONDS):
            yield part
            part, seconds = [], 0.0
    if part:
        yield part


def _cost_of_start(block: Block, repetition: int) -> float:
    steps = sum(descent.steps for descent in block.descents if repetition < descent.repetitions)
    if block.critical is not None:
        steps += 10 * block.critical["steps"]
    samples, features, outputs = _sizes(block.scenario)
    network = Scenario.model_validate(block.scenario).network
    numbers = 6 * network.count_weights(features, outputs)
    if not network.linear:
        numbers *= samples / 2
    return _SECONDS_PER_START + steps * numbers * _SECONDS_PER_NUMBER


def _sizes(scenario: dict[str, Any]) -> tuple[int, int, int]:
    """Return samples, features and outputs, rough numbers in place of those that only a file knows."""
    data = scenario["data"]
    return (data["samples"], data["features"], data["outputs"]) if data["kind"] == "gaussian" else (100, 10, 1)


def _without_scale(scenario: Scenario) -> dict[str, Any]:
    content = resolved(scenario)
    content["network"]["scale"] = 0.0
    # What the result of a block does not depend on.
    return content | {"descent": resolved_default("descent"), "theory": None, "lemma_3": None}


def resolved_default(section: str) -> Any:
    """Return what a section of a scenario is where nothing is said about it."""
    return Scenario.model_fields[section].get_default(call_default_factory=True).model_dump(mode="json")


def digest(scenario: Scenario, folder: Path) -> str | None:
    """Return the SHA-256 of the data file of `scenario`, `None` where the data are drawn."""
    if not isinstance(scenario.data, FileData):
        return None
    return hashlib.sha256((folder / scenario.data.path).read_bytes()).hexdigest()
