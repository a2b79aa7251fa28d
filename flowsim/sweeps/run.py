"""A sweep from its plan to one labelled data set."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..columns import NOT_ASKED
from ..formatting import Progress, ProgressCallback
from ..formatting.presentation import Drawn, view_of
from ..problems import LinearRegression
from ..runtime.signals import ending_held
from ..scenarios.points import points
from ..scenarios.reading import resolved
from ..scenarios.runner import build_network, environment, read_data
from ..scenarios.scenario import Scenario
from ..scenarios.values import labels_of
from ..theory import minimal_sharpness_bounds_of
from .blocks import Block
from .compute import Arrays, BlockResult, Failure
from .dataset import Layout, axis_names, sweep_dataset
from .scenario_recipe import scenario_blocks
from .store import BlockStore
from .workers import Workers

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, repr=False)
class Sweep(Drawn):
    """What a sweep found: everything over (grid, repetition, run), and the cells that could not be computed.

    Printed, it is the table of the command line, as wide as the terminal, and so it is in a notebook; `repr` is a line.
    """

    dataset: "xarray.Dataset"
    """Everything over (grid, repetition, run)."""
    failures: tuple[Failure, ...]
    """The cells that could not be computed."""

    def to_dataset(self) -> "xarray.Dataset":
        """Return all numbers as labelled arrays, in the form that sweeps of scenarios have."""
        return self.dataset

    def __repr__(self) -> str:
        return repr(view_of(self)).replace("StoredSweep", "Sweep", 1)


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that nothing is computed of yet: its blocks, what is `known` of each point before, and its layout."""

    layout: Layout
    known: dict[str, np.ndarray]
    blocks: tuple[Block, ...]


def plan_scenario(scenario: Scenario, folder: Path) -> SweepPlan:
    """Return the sweep of a scenario. Raises `DataError` for data that cannot be used."""
    known = _of_points(scenario, folder)  # first, as it finds data that cannot be used
    sweep, blocks = scenario.sweep, scenario_blocks(scenario, folder)
    assert sweep is not None
    layout = Layout(
        grid=sweep.grid,
        names=axis_names(scenario),
        starts=sweep.starts,
        plan=blocks[0].recipe.plan(),
        labels=labels_of(scenario.record),
        attrs={"scenario": json.dumps(resolved(scenario))},
    )
    return SweepPlan(layout, known, blocks)


class SweepRun:
    """A sweep under way: what is found of it, and what is `missing`, the blocks by their addresses."""

    def __init__(self, sweep: SweepPlan, store: BlockStore | None):
        self._plan, self._store = sweep, store
        here = environment()
        self._addresses = [block.address(here) for block in sweep.blocks]
        self._found: dict[str, Arrays] = {}
        if store is not None:
            store.tidy()
            stored = {address: store.load(address) for address in self._addresses}
            self._found = {address: arrays for address, arrays in stored.items() if arrays is not None}
        blocks = zip(self._addresses, sweep.blocks, strict=True)
        self.missing = {address: block for address, block in blocks if address not in self._found}
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
        if self._store is not None and not result.failures:
            self._store.save(address, result.arrays)
        del self.missing[address]

    def results(self) -> Sweep:
        """Return the results, once nothing is missing."""
        layout, failures = self._plan.layout, tuple(self._failures)
        tables = _assembled(layout, self._plan.blocks, [self._found[address] for address in self._addresses])
        return Sweep(sweep_dataset(layout, tables, self._plan.known, failures), failures)


def run_sweeps(sweeps: Iterable[SweepRun], workers: Workers, advanced: Callable[[SweepRun], None]) -> None:
    """Compute what is missing of `sweeps`, those that come first first, and what several of them miss only once.

    `advanced` is called with a sweep when it begins, and whenever a block of it is done. Raises `StoreError` as
    `SweepRun.receive`.
    """
    under_way: list[SweepRun] = []
    addresses: dict[Block, str] = {}

    def groups() -> Iterator[list[Block]]:
        for sweep in sweeps:
            under_way.append(sweep)
            wanted = set(sweep.missing) - set(addresses.values())
            group = {block: address for address, block in sweep.missing.items() if address in wanted}
            addresses.update(group)
            advanced(sweep)
            yield list(group)

    for block, result in workers.results(groups()):
        address = addresses.pop(block)
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
) -> Sweep:
    """Compute the blocks of a sweep that are not stored yet, and put all of it together.

    Every block is stored as soon as it is done.

    Args:
        scenario: The scenario, with a `sweep`.
        folder: Where its data file, if any, is found from.
        store: Where blocks are kept.
        workers: What computes them: this process, others, or a cluster.
        progress: Called with a `flowsim.Progress` as blocks are done.

    Returns:
        What was found.

    Raises:
        StoreError: Where a block cannot be stored.
    """
    sweep = SweepRun(plan_scenario(scenario, folder), store)
    run_sweeps([sweep], workers, lambda sweep: progress(sweep.progress))
    return sweep.results()


@dataclass(eq=False)
class PendingSweep:
    """A sweep to be computed: under way in the background, or run when its result is wanted."""

    scenario: Scenario
    folder: Path
    store: BlockStore
    pool: Workers
    future: Future[Sweep] = field(default_factory=Future)
    latest: Progress = field(default_factory=lambda: Progress("sweep"))

    def result(self, progress: ProgressCallback, *, poll_seconds: float = 0.1) -> Sweep:
        """Wait for the results, and raise what `run_sweep` raises; `progress` is called meanwhile."""
        if not self.pool.elsewhere:
            return run_sweep(self.scenario, self.folder, self.store, self.pool, progress=progress)
        while True:
            with ending_held():
                if wait([self.future], poll_seconds).done:
                    return self.future.result()
            progress(self.latest)


def sweeps_ahead(sweeps: Sequence[PendingSweep], pool: Workers) -> None:
    """Have sweeps computed in their order while this process goes on, by workers outside of it.

    A caller that leaves early does not wait: a sweep under way stops where the pool is closed. Without such workers
    nothing begins before a result is wanted.
    """
    if pool.elsewhere and sweeps:
        with ending_held():
            threading.Thread(target=_compute, args=(sweeps, pool)).start()


def _compute(sweeps: Sequence[PendingSweep], pool: Workers) -> None:
    """Compute all sweeps and settle each as soon as it is complete, or cannot be."""
    pending: dict[SweepRun, PendingSweep] = {}

    def runs() -> Iterator[SweepRun]:
        for sweep in sweeps:
            try:
                run = SweepRun(plan_scenario(sweep.scenario, sweep.folder), sweep.store)
            except Exception as error:
                sweep.future.set_exception(error)
            else:
                pending[run] = sweep
                yield run

    def advanced(run: SweepRun) -> None:
        pending[run].latest = run.progress
        if not run.missing:
            pending[run].future.set_result(run.results())

    try:
        run_sweeps(runs(), pool, advanced)
    except BaseException as error:
        for sweep in sweeps:
            if not sweep.future.done():
                sweep.future.set_exception(error)


def _assembled(layout: Layout, blocks: tuple[Block, ...], results: list[Arrays]) -> Arrays:
    """Return every quantity over (grid, repetition), or over (grid, repetition, learning rate)."""
    tables: Arrays = {}
    for block, arrays in zip(blocks, results, strict=True):
        for row, start in enumerate(block.starts):
            for column, values in arrays.items():
                if column not in tables:
                    empty = NOT_ASKED if np.issubdtype(values.dtype, np.integer) else np.nan
                    tables[column] = np.full(
                        (*layout.grid.shape, layout.starts, *values.shape[1:]), empty, values.dtype
                    )
                tables[column][(*start.index, start.repetition)] = values[row]
    return tables


def _of_points(scenario: Scenario, folder: Path) -> dict[str, np.ndarray]:
    """Return what follows from the data and the depth of every point before anything moves."""
    rows: list[dict[str, float]] = []
    for there in (point.scenario for point in points(scenario)):
        data = read_data(there, folder)
        linear = LinearRegression(*data.flattened().training)
        depth, bounds = there.network.count_matrices(), None
        squares = there.squares and there.weight_decay == 0
        if depth is not None and squares:
            network = build_network(there, there.network.inputs_for(data.shape), data.outputs)
            bounds = minimal_sharpness_bounds_of(network, linear, depth=depth)
        lower, upper = bounds or (np.nan, np.nan)
        rows.append(
            {
                "minimal_risk": float(linear.minimal_risk) if squares else np.nan,
                "largest_eigenvalue": float(linear.largest_eigenvalue),
                "smallest_eigenvalue": float(linear.smallest_eigenvalue),
                "covariance_nullity": linear.features - int(np.count_nonzero(linear.eigenvalues)),
                "optimum_norm": np.nan if data.numbers_classes else float(np.linalg.norm(linear.optimum)),
                "sharpness_lower_bound": float(lower),
                "sharpness_upper_bound": float(upper),
            }
        )
    assert scenario.sweep is not None
    return {name: np.array([row[name] for row in rows]).reshape(scenario.sweep.grid.shape) for name in rows[0]}
