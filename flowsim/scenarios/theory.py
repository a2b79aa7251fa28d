"""The theory section of a scenario: the statements checked on a grid of flows, and Lemma 3 by Monte Carlo."""

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..formatting import Progress, ProgressCallback, ProgressReporter, report_progress
from ..networks import DeepLinear
from ..problems import LinearRegression
from ..results import CheckedFlow, TheoryResults
from ..theory import (
    LargeProducts,
    LargeProductsSample,
    Statement,
    convergence_statement,
    deep_linear,
    follow,
    sample_large_products,
    statements,
)
from .document import ScenarioError
from .runner import build
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


def theory_cells(scenario: Scenario, folder: Path) -> tuple[Cell, ...]:
    """Build what the theory section of a scenario asks for, before anything is computed.

    Args:
        scenario: The scenario.
        folder: Where its data file, if any, is found from.

    Returns:
        A cell for each flow.

    Raises:
        DataError: For data that cannot be used.
        ScenarioError: Where they do not fit the network, or the theory does not speak of them.
    """
    cells = []
    for varied, repetition in _grid(scenario):
        built, made, _ = build(varied, folder)
        try:
            network, problem = deep_linear(made, built)
        except TypeError:
            found = f"theory: found a network of kind {varied.network.kind}, which builds a {type(made).__name__}"
            expected = "expected a flowsim.DeepLinear, which the theory is about"
            raise ScenarioError(f"{found}; {expected}; write no theory") from None
        smallest = float(problem.smallest_eigenvalue)
        condition = float(problem.largest_eigenvalue) / smallest if smallest > 0 else np.inf
        condition = varied.data.stated_condition() or condition
        cells.append(Cell(network.depth, problem.features, condition, repetition, problem, network))
    return tuple(cells)


def check_theory(
    scenario: Scenario, cells: tuple[Cell, ...], *, progress: bool | ProgressCallback = False
) -> TheoryResults | None:
    """Run the flow of every cell and check it, and draw what Lemma 3 asks for.

    Args:
        scenario: The scenario.
        cells: What `theory_cells` built of it.
        progress: As in `compare`, in flows and cases.

    Returns:
        What was found; `None` if the scenario asks for neither.
    """
    if scenario.theory is None and scenario.lemma_3 is None:
        return None
    checked = []
    with report_progress(progress) as report:
        for number, cell in enumerate(cells):
            report(Progress("theory", number, len(cells), "flows"))
            checked.append(_check_flow(cell, scenario))
        drawn = tuple(_large_products(scenario, report))
    return TheoryResults(tuple(checked), _convergence(scenario, checked), drawn)


def _grid(scenario: Scenario) -> Iterator[tuple[Scenario, int]]:
    """Yield the scenario of every cell, and its repetition.

    The seed depends on the repetition alone: flows of one repetition that differ in depth share their data.
    """
    theory = scenario.theory
    if theory is None:
        return
    for _, values in theory.grid.points():
        sections = {}
        for name in ("network", "data"):
            options = {axis.removeprefix(f"{name}."): value for axis, value in values.items() if axis.startswith(name)}
            sections[name] = getattr(scenario, name).model_copy(update=options)
        for repetition in range(theory.repetitions):
            seed = scenario.seed
            if repetition > 0:
                seed = zlib.crc32(f"{seed}, repetition {repetition}".encode())
            yield scenario.model_copy(update={"seed": seed, **sections}), repetition


def _check_flow(cell: Cell, scenario: Scenario) -> CheckedFlow:
    assert scenario.theory is not None
    path = follow(cell.network, cell.problem, **scenario.flow.options())
    found = statements(path, subjects=scenario.theory.subjects)
    return CheckedFlow(
        depth=cell.depth,
        features=cell.features,
        condition=cell.condition,
        repetition=cell.repetition,
        outcome=path.end.outcome,
        steps=path.steps,
        time=path.escape_time + float(path.times[-1]),
        statements=tuple(found),
    )


def _convergence(scenario: Scenario, checked: list[CheckedFlow]) -> dict[int, Statement]:
    """Return how often flows from a residual initialization reach their limit, by depth."""
    if not scenario.network.starts_near_identity():
        return {}
    converged: dict[int, list[bool]] = {}
    for one in checked:
        converged.setdefault(one.depth, []).append(one.outcome.converged)
    return {depth: convergence_statement(found) for depth, found in converged.items() if len(found) > 1}


def _large_products(scenario: Scenario, report: ProgressReporter) -> Iterator[LargeProductsSample]:
    """Draw what Lemma 3 asks for, one case on each core: NumPy's linear algebra runs beside other threads."""
    settings = scenario.lemma_3
    if settings is None:
        return

    def sample(case: LargeProducts) -> LargeProductsSample:
        rng = np.random.default_rng([scenario.seed, zlib.crc32(f"lemma 3, {case}".encode())])
        return sample_large_products(case, settings.initializations, rng=rng)

    cases = [LargeProducts(**case) for _, case in settings.grid.points()]
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for number, drawn in enumerate(pool.map(sample, cases), start=1):
            report(Progress("Lemma 3", number, len(cases), "cases"))
            yield drawn
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for cases that have not begun
