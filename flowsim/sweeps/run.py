"""A sweep from its plan to one labelled data set."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..formatting import Progress, ProgressCallback
from ..problems import LinearRegression
from ..results.schema import NOT_ASKED
from ..scenarios.grid import Point, points
from ..scenarios.runner import build_network, environment, read_data
from ..scenarios.scenario import Scenario
from ..theory import minimal_sharpness_bounds_of
from .block import plan
from .compute import Arrays, BlockResult, Failure
from .dataset import Layout, layout_of, sweep_dataset
from .store import BlockStore, Store
from .work import Block, Placed
from .workers import Workers

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class SweepResults:
    """What a sweep found: the data set, and the cells that could not be computed."""

    dataset: "xarray.Dataset"
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Planned:
    """A sweep that nothing is computed of yet: its blocks, what is `known` of each point before, and its layout."""

    layout: Layout
    known: dict[str, np.ndarray]
    placed: tuple[Placed, ...]


def planned(scenario: Scenario, folder: Path) -> Planned:
    """Return the sweep of a scenario. Raises `DataError` for data that cannot be used."""
    known = _of_points(scenario, folder)  # first, as it finds data that cannot be used
    return Planned(layout_of(scenario), known, plan(scenario, folder))


class SweepRun:
    """A sweep under way: what is found of it, and what is `missing`, the blocks by their addresses."""

    def __init__(self, sweep: Planned, store: Store):
        self._planned, self._store = sweep, store
        here = environment()
        store.tidy()
        self._addresses = [part.block.address(here) for part in sweep.placed]
        stored = {address: store.load(address) for address in self._addresses}
        self._found = {address: arrays for address, arrays in stored.items() if arrays is not None}
        blocks = zip(self._addresses, sweep.placed, strict=True)
        self.missing = {address: part.block for address, part in blocks if address not in self._found}
        self._total = sum(block.cost for block in self.missing.values())
        self._failures: list[Failure] = []

    @property
    def progress(self) -> Progress:
        """Where it stands: estimated seconds of work done, of all that was not found stored."""
        return Progress("sweep", self._total - sum(block.cost for block in self.missing.values()), self._total)

    def receive(self, address: str, result: BlockResult) -> None:
        """Take in what was missing, and store it unless a cell of it failed.

        Raises `StoreError` where it cannot be stored.
        """
        self._found[address] = result.arrays
        self._failures += result.failures
        if not result.failures:
            self._store.save(address, result.arrays)
        del self.missing[address]

    def results(self) -> SweepResults:
        """Return the results, once nothing is missing."""
        layout, failures = self._planned.layout, tuple(self._failures)
        tables = _assembled(layout, self._planned.placed, [self._found[address] for address in self._addresses])
        return SweepResults(sweep_dataset(layout, tables, self._planned.known, failures), failures)


def run_sweeps(sweeps: Iterable[SweepRun], workers: Workers, advanced: Callable[[SweepRun], None]) -> None:
    """Compute what is missing of `sweeps`, those that come first first, and what several of them miss only once.

    `advanced` is called with a sweep when it begins, and whenever a block of it is done. Raises `StoreError` as
    `SweepRun.receive`.
    """
    under_way: list[SweepRun] = []
    addresses: dict[int, str] = {}

    def groups() -> Iterator[list[Block]]:
        for sweep in sweeps:
            under_way.append(sweep)
            wanted = set(sweep.missing) - set(addresses.values())
            group = [block for address, block in sweep.missing.items() if address in wanted]
            addresses.update({id(block): address for address, block in sweep.missing.items() if address in wanted})
            advanced(sweep)
            yield group

    for block, result in workers.results(groups()):
        address = addresses.pop(id(block))
        for sweep in under_way:
            if address in sweep.missing:
                sweep.receive(address, result)
                advanced(sweep)


def run_sweep(
    scenario: Scenario,
    folder: Path,
    store: BlockStore,
    workers: Workers,
    *,
    progress: ProgressCallback = lambda event: None,
) -> SweepResults:
    """Compute what is not in `store` yet, and put all of it together.

    Every block is stored as soon as it is done. Raises `StoreError` where it cannot be.
    """
    sweep = SweepRun(planned(scenario, folder), store)
    run_sweeps([sweep], workers, lambda sweep: progress(sweep.progress))
    return sweep.results()


def _assembled(layout: Layout, placed: tuple[Placed, ...], results: list[Arrays]) -> Arrays:
    """Return every quantity over (grid, repetition), or over (grid, repetition, learning rate)."""
    tables: Arrays = {}
    for part, arrays in zip(placed, results, strict=True):
        for row, (start, index) in enumerate(zip(part.block.starts, part.indices, strict=True)):
            for column, values in arrays.items():
                if column not in tables:
                    empty = NOT_ASKED if np.issubdtype(values.dtype, np.integer) else np.nan
                    tables[column] = np.full((*layout.grid, layout.starts, *values.shape[1:]), empty, values.dtype)
                tables[column][(*index, start.repetition)] = values[row]
    return tables


def _of_points(scenario: Scenario, folder: Path) -> dict[str, np.ndarray]:
    """Return what the data and the depth of every point say before anything moves."""
    rows = [_of_point(point, folder) for point in points(scenario)]
    assert scenario.sweep is not None
    grid = tuple(len(values) for values in scenario.sweep.over.values())
    return {name: np.array([row[name] for row in rows]).reshape(grid) for name in rows[0]}


def _of_point(point: Point, folder: Path) -> dict[str, float]:
    data = read_data(point.scenario, folder)
    linear = LinearRegression(*data.flattened().training)
    depth = point.scenario.network.count_matrices()
    bounds = None
    if depth is not None and point.scenario.squares:
        network = build_network(point.scenario, point.scenario.network.inputs_for(data.shape), data.outputs)
        bounds = minimal_sharpness_bounds_of(network, linear, depth=depth)
    lower, upper = bounds or (np.nan, np.nan)
    return {
        "minimal_risk": float(linear.minimal_risk) if point.scenario.squares else np.nan,
        "largest_eigenvalue": float(linear.largest_eigenvalue),
        "smallest_eigenvalue": float(linear.smallest_eigenvalue),
        "optimum_norm": np.nan if data.numbers_classes else float(np.linalg.norm(linear.optimum)),
        "sharpness_lower_bound": lower,
        "sharpness_upper_bound": upper,
    }
