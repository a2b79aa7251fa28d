"""Blocks, the units of work of a sweep, whatever they are made of: a scenario, or functions of a user's own."""

import abc
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..comparison.models import ModelOfDescent
from ..dynamics import Descent as Dynamics
from ..probes import Probe
from ..problems import Problem
from ..scenarios.sweep_settings import CriticalSettings

# The results of blocks change with this number: raise it with every change of what a block computes or stores.
FORMAT = 17


@dataclass(frozen=True)
class Start:
    """One initialization: its point of the grid by name and index, its repetition, its network's `start_options`."""

    name: str
    index: tuple[int, ...]
    repetition: int
    options: dict[str, Any]

    def describe(self) -> str:
        """Return its coordinates in words."""
        return f"{self.name or 'the only point'}, repetition {self.repetition}"


@dataclass(frozen=True)
class Descent:
    """A descent of a recipe: the number of its optimizer, learning rate, steps, and how many repetitions run it."""

    optimizer: int
    learning_rate: float
    steps: int
    repetitions: int


@dataclass(frozen=True)
class Materials:
    """What runs are made of: one problem and one set of options, and for each start its `network`.

    `held_out` is the problem on samples that training does not see, `flow` holds the arguments of `integrate`, each of
    the `optimizers` makes the descent of a learning rate, and `models` are those of the descents, by their names.
    """

    problem: Problem
    network: Callable[[Start], Any]
    held_out: Problem | None
    probes: tuple[Probe, ...]
    flow: dict[str, Any]
    optimizers: tuple[Callable[[float], Dynamics], ...]
    models: Mapping[str, ModelOfDescent]


class Recipe(abc.ABC):
    """What the networks and the problem of some blocks are made of, and what runs from each of their starts.

    It may be sent to another process. `wide` tells whether JAX is to know numbers of 64 bits, and `holds_out` whether
    there are samples that training does not see. `structure` is what a compiled program depends on: blocks that agree
    in it run one after the other in one process. `models` are the models of the descents.
    """

    wide: bool
    structure: str
    descents: tuple[Descent, ...]
    models: Collection[Any]
    flow: bool
    critical: CriticalSettings | None
    holds_out: bool

    @abc.abstractmethod
    def content(self) -> dict[str, Any]:
        """Return in plain values everything that determines what a start leads to."""

    @abc.abstractmethod
    def check_origin(self) -> None:
        """Raise `RuntimeError` where this process would compute something else than the one that planned it."""

    @abc.abstractmethod
    def materials(self) -> Materials:
        """Return what runs are made of."""


@dataclass(frozen=True, eq=False)
class Block:
    """The unit of work of a sweep: some starts of a recipe, with the flow and all descents from them.

    `cost` is a rough estimate of the seconds that it takes.
    """

    recipe: Recipe
    starts: tuple[Start, ...]
    cost: float

    def address(self, environment: dict[str, Any]) -> str:
        """Return the SHA-256 of everything that determines the result."""
        starts = [{"name": one.name, "repetition": one.repetition, "options": one.options} for one in self.starts]
        content = self.recipe.content() | {"starts": starts, "environment": environment, "format": FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
