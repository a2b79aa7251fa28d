"""Blocks, the units of work of a sweep, whatever they are made of: a scenario, or a user's functions."""

import abc
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..comparison.models import ModelOfDescent
from ..comparison.plan import End, RunSpec, plan_models
from ..dynamics import GradientFlow, Stopping
from ..probes import Probe
from ..problems import Problem
from ..scenarios.sweep_settings import CriticalSettings

# The results of blocks change with this number: raise it with every change of what a block computes or stores.
FORMAT = 18


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


@dataclass(frozen=True, eq=False)
class StartPlan:
    """What runs from the starts of a recipe: each run, and how many repetitions it has, the first ones.

    `flow` is the gradient flow, to which the centres of descents are compared even if it is not among the runs.
    `critical` are the settings of the search for critical learning rates. With `holds_out`, ends are measured on
    held-out samples, too.
    """

    flow: RunSpec
    runs: Mapping[RunSpec, int]
    critical: CriticalSettings | None
    holds_out: bool

    @classmethod
    def of(
        cls,
        flow: RunSpec,
        descents: Mapping[RunSpec, int],
        models: Collection[ModelOfDescent],
        *,
        repetitions_of_flow: int,
        critical: CriticalSettings | None = None,
        holds_out: bool = False,
    ) -> "StartPlan":
        """Return the plan of a flow, of descents with their repetitions, and of the models that follow each descent."""
        runs = {flow: repetitions_of_flow} if repetitions_of_flow else {}
        runs |= descents
        gradient_flow, until = flow.dynamics, End(steps=flow.until.steps)
        assert isinstance(gradient_flow, GradientFlow)
        tolerances: dict[str, Any] = {"rtol": gradient_flow.rtol, "atol": gradient_flow.atol}
        for model in plan_models(models, list(descents), until, **tolerances):
            assert model.follows is not None
            runs[model] = descents[model.follows]
        return cls(flow, runs, critical, holds_out)

    @cached_property
    def descents(self) -> tuple[RunSpec, ...]:
        """The descents."""
        return tuple(run for run in self.runs if run.is_descent)

    @cached_property
    def models(self) -> tuple[RunSpec, ...]:
        """The models of the descents, those of the first kind first."""
        return tuple(run for run in self.runs if run.follows is not None)


@dataclass(frozen=True)
class Materials:
    """What runs are made of: one problem and one set of options, and for each start its `network`.

    `held_out` is the problem on held-out samples.
    """

    problem: Problem
    network: Callable[[Start], Any]
    held_out: Problem | None
    probes: tuple[Probe, ...]
    stopping: Stopping | None


class Recipe(abc.ABC):
    """What the networks and the problem of some blocks are made of, and what runs from each of their starts.

    A recipe may be sent to another process. `content` holds in plain values everything that determines the runs from a
    start. `structure` is what a compiled program depends on: blocks that agree in it run one after the other in one
    process. With `wide`, JAX uses numbers of 64 bits.
    """

    content: dict[str, Any]
    structure: str
    wide: bool

    @abc.abstractmethod
    def plan(self) -> StartPlan:
        """Return what runs from each start."""

    @abc.abstractmethod
    def check_origin(self) -> None:
        """Raise `RuntimeError` if this process would compute something else than the one that planned the blocks."""

    @abc.abstractmethod
    def materials(self) -> Materials:
        """Return what runs are made of."""


@dataclass(frozen=True, eq=False)
class Block:
    """The unit of work of a sweep: some starts of a recipe, with all runs from them.

    `cost` is a rough estimate of its seconds.
    """

    recipe: Recipe
    starts: tuple[Start, ...]
    cost: float

    def address(self, environment: dict[str, Any]) -> str:
        """Return the SHA-256 of everything that determines the result."""
        starts = [{"name": one.name, "repetition": one.repetition, "options": one.options} for one in self.starts]
        content = self.recipe.content | {"starts": starts, "environment": environment, "format": FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def blocks_of(
    recipe: Recipe, starts: Iterable[tuple[Start, float]], *, least: int, most: int, seconds: float = 20.0
) -> Iterator[Block]:
    """Cut starts, each with its cost, into blocks of `least` to `most`.

    Between these numbers a block takes about so many `seconds`, which is the work that a kill can lose.
    """
    part: list[Start] = []
    taken = 0.0
    for start, cost in starts:
        part.append(start)
        taken += cost
        if len(part) == most or (len(part) >= least and taken >= seconds):
            yield Block(recipe, tuple(part), taken)
            part, taken = [], 0.0
    if part:
        yield Block(recipe, tuple(part), taken)
