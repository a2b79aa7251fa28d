"""The theory section of a scenario: the statements checked on a grid of flows, and Lemma 3 by Monte Carlo."""

import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from ..dynamics import Outcome
from ..networks import DeepLinear
from ..problems import LinearRegression
from ..theory import (
    LargeProducts,
    LargeProductsSample,
    Statement,
    Verdict,
    convergence_statement,
    follow,
    sample_large_products,
    statements,
)
from .document import ScenarioError
from .runner import build, flow_options
from .scenario import Scenario


@dataclass(frozen=True)
class Cell:
    """One flow to check: how it differs from others of the grid, and what it starts from."""

    depth: int
    features: int
    condition: float
    repetition: int
    problem: LinearRegression
    network: DeepLinear


@dataclass(frozen=True)
class CheckedCell:
    """What the statements came to on the flow of one cell."""

    cell: Cell
    outcome: Outcome
    steps: int
    time: float
    statements: tuple[Statement, ...]

    @property
    def arrived(self) -> bool:
        """Whether the flow reached its limit."""
        return self.outcome in (Outcome.CONVERGED, Outcome.RISK_REACHED)


@dataclass(frozen=True)
class TheoryResults:
    """Everything that the theory sections of a scenario ask for.

    `convergence` is Theorem 4 as a frequency, one statement for each depth at which there are several flows.
    """

    cells: tuple[CheckedCell, ...]
    convergence: dict[int, Statement]
    large_products: tuple[LargeProductsSample, ...]

    @property
    def failed(self) -> bool:
        """Whether a statement fails."""
        found = [statement for checked in self.cells for statement in checked.statements]
        found += [sample.statement() for sample in self.large_products]
        return any(statement.verdict is Verdict.FAILS for statement in found)


def theory_cells(scenario: Scenario, folder: Path) -> tuple[Cell, ...]:
    """Build what the theory section of `scenario` asks for, before anything is computed. Raises as `build` does."""
    return tuple(_cell(asked, repetition, folder) for asked, repetition in _grid(scenario))


def check_theory(
    scenario: Scenario, cells: tuple[Cell, ...], *, progress: Callable[[str], None] = lambda stage: None
) -> TheoryResults | None:
    """Run the flow of every cell and check it, and draw what Lemma 3 asks for; `None` if there is neither."""
    if scenario.theory is None and scenario.lemma_3 is None:
        return None
    checked = []
    for number, cell in enumerate(cells, start=1):
        progress(f"theory, flow {number} of {len(cells)}")
        checked.append(_checked(cell, scenario))
    return TheoryResults(tuple(checked), _convergence(scenario, checked), tuple(_large_products(scenario, progress)))


def _grid(scenario: Scenario) -> Iterator[tuple[Scenario, int]]:
    """Yield the scenario of every cell, and its repetition.

    The seed depends on the repetition alone: flows of one repetition that differ in depth share their data.
    """
    theory = scenario.theory
    if theory is None:
        return
    axes = (theory.depths or (None,), theory.features or (None,), theory.conditions or (None,))
    for depth, features, condition in product(*axes):
        for repetition in range(theory.repetitions):
            network, data = scenario.network, scenario.data
            if depth is not None:
                network = network.model_copy(update={"depth": depth})
            wanted = {"features": features, "condition": condition}
            data = data.model_copy(update={key: value for key, value in wanted.items() if value is not None})
            seed = _seed(scenario.seed, repetition)
            yield scenario.model_copy(update={"seed": seed, "network": network, "data": data}), repetition


def _seed(seed: int, repetition: int) -> int:
    return seed if repetition == 0 else zlib.crc32(f"{seed}, repetition {repetition}".encode())


def _cell(scenario: Scenario, repetition: int, folder: Path) -> Cell:
    problem, network = build(scenario, folder)
    if not (isinstance(problem, LinearRegression) and isinstance(network, DeepLinear)):
        found = f"theory: found a network of kind {scenario.network.kind}, which builds a {type(network).__name__}"
        raise ScenarioError(f"{found}; expected a flowsim.DeepLinear, which the theory is about; write no theory")
    smallest = float(problem.smallest_eigenvalue)
    condition = float(problem.largest_eigenvalue) / smallest if smallest > 0 else np.inf
    stated = scenario.data.stated_condition()
    return Cell(network.depth, problem.features, stated or condition, repetition, problem, network)


def _checked(cell: Cell, scenario: Scenario) -> CheckedCell:
    assert scenario.theory is not None
    path = follow(cell.network, cell.problem, **flow_options(scenario))
    found = statements(path, subjects=scenario.theory.subjects)
    return CheckedCell(cell, path.end.outcome, path.steps, path.escape_time + float(path.times[-1]), tuple(found))


def _convergence(scenario: Scenario, checked: list[CheckedCell]) -> dict[int, Statement]:
    """Return how often flows from a residual initialization reach their limit, by depth."""
    if not scenario.network.starts_near_identity():
        return {}
    arrived: dict[int, list[bool]] = {}
    for one in checked:
        arrived.setdefault(one.cell.depth, []).append(one.arrived)
    return {depth: convergence_statement(found) for depth, found in arrived.items() if len(found) > 1}


def _large_products(scenario: Scenario, progress: Callable[[str], None]) -> Iterator[LargeProductsSample]:
    """Draw what Lemma 3 asks for, one case on each core: NumPy's linear algebra runs beside other threads."""
    asked = scenario.lemma_3
    if asked is None:
        return

    def sample(case: LargeProducts) -> LargeProductsSample:
        rng = np.random.default_rng([scenario.seed, zlib.crc32(f"lemma 3, {case}".encode())])
        return sample_large_products(case, asked.initializations, rng=rng)

    cases = [LargeProducts(*case) for case in product(asked.deviations, asked.scales, asked.widths, asked.depths)]
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for number, drawn in enumerate(pool.map(sample, cases), start=1):
            progress(f"Lemma 3, case {number} of {len(cases)}")
            yield drawn
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for cases that have not begun
