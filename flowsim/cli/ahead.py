"""A scenario that has been built and not run, and what can be said of it before it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from ..comparison.compare import RecordBudget, steps_of_descent
from ..dynamics import GradientFlow
from ..networks import split
from ..problems import Problem
from ..scenarios.runner import flow_options, read_data
from ..scenarios.scenario import Scenario
from ..scenarios.theory import Cell
from ..sweeps import BlockStore

# Of a flow that is recorded alone.
RECORDS_ALONE = 100


@dataclass(frozen=True)
class Ahead:
    """A scenario that has been built and not run: what `outlook` looks at.

    `compares` tells whether it is run itself, beside its sweep; the blocks of that are kept in a `store`, and `workers`
    processes share them.
    """

    scenario: Scenario
    problem: Problem
    network: PyTree
    cells: tuple[Cell, ...]
    folder: Path
    compares: bool
    store: BlockStore
    workers: int

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(leaf.size for leaf in jax.tree.leaves(split(self.network)[0]))

    @property
    def samples(self) -> int:
        """Number of samples; a linear regression keeps their covariance alone."""
        known = self.problem.sample_count()
        return len(read_data(self.scenario, self.folder).training[0]) if known is None else known

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of steps of the descents beside the flow."""
        asked, t1 = self.scenario.descent, self.scenario.flow.t1
        at_rate = asked.optimizer.make()
        times = [float(at_rate(rate).time_of_step()) for rate in asked.learning_rates]
        return tuple(steps_of_descent(time, asked.steps, t1) for time in times)

    @property
    def records(self) -> int:
        """Number of records of each descent."""
        return RecordBudget().of_runs(self.network, len(self.steps))

    @property
    def solver(self) -> Any:
        """The solver of the flow."""
        asked = flow_options(self.scenario)
        flow = GradientFlow(asked["solver"], rtol=asked["rtol"], atol=asked["atol"])
        return flow.solver_for(self.network, self.problem)
