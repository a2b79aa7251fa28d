"""What a sweep asks of a block, wherever that comes from: a scenario, or functions of a user's own."""

import abc
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from ..dynamics import Descent as Dynamics
from ..probes import Probe
from ..problems import Problem
from ..scenarios.sweep_settings import CriticalSettings

# The results of blocks change with this number: raise it with every change of what a block computes or stores.
FORMAT = 14


@dataclass(frozen=True)
class Start:
    """One initialization: the name of its point of the grid, its repetition, and the `start_options` of its network."""

    name: str
    repetition: int
    options: dict[str, Any]

    def describe(self) -> str:
        """Return its coordinates in words."""
        return f"{self.name or 'the only point'}, repetition {self.repetition}"


@dataclass(frozen=True)
class Descent:
    """A descent of a block: the number of its optimizer, learning rate, steps, and how many repetitions run it."""

    optimizer: int
    learning_rate: float
    steps: int
    repetitions: int


@dataclass(frozen=True)
class Materials:
    """What the runs of a block are made of: one problem and one set of options, and for each start its `network`.

    `held_out` is the problem on samples that training does not see, `flow` holds the arguments of `integrate`, and
    each of the `optimizers` makes the descent of a learning rate.
    """

    problem: Problem
    network: Callable[[Start], Any]
    held_out: Problem | None
    probes: tuple[Probe, ...]
    flow: dict[str, Any]
    optimizers: tuple[Callable[[float], Dynamics], ...]


class Block(abc.ABC):
    """Some starts that share a problem and the shape of a network, with the flow and all descents from them.

    It may be sent to another process. `holds_out` tells whether there are samples that training does not see, and
    `cost` is a rough estimate of the seconds that it takes.
    """

    starts: tuple[Start, ...]
    descents: tuple[Descent, ...]
    flow: bool
    critical: CriticalSettings | None
    holds_out: bool
    cost: float

    @property
    @abc.abstractmethod
    def wide(self) -> bool:
        """Whether JAX is to know numbers of 64 bits."""

    @property
    @abc.abstractmethod
    def structure(self) -> Hashable:
        """What a compiled program depends on: blocks that agree in it run one after the other in one process."""

    @abc.abstractmethod
    def address(self, environment: dict[str, Any]) -> str:
        """Return the SHA-256 of everything that determines the result."""

    @abc.abstractmethod
    def check_origin(self) -> None:
        """Raise `RuntimeError` where this process would compute something else than the one that planned it."""

    @abc.abstractmethod
    def materials(self) -> Materials:
        """Return what the block is computed from."""


@dataclass(frozen=True)
class Placed:
    """A block, and for each of its starts the index of its point in the grid."""

    block: Block
    indices: tuple[tuple[int, ...], ...]
