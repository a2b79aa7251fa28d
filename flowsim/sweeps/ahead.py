"""Sweeps that are computed elsewhere while this process goes on with the rest."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from ..formatting import Progress, ProgressCallback
from ..scenarios.scenario import Scenario
from .run import SweepResults, SweepRun, planned, run_sweep, run_sweeps
from .store import BlockStore
from .workers import Workers


@dataclass(eq=False)
class PendingSweep:
    """A sweep to be computed: under way in the background, or run when its result is wanted."""

    scenario: Scenario
    folder: Path
    store: BlockStore
    pool: Workers
    future: Future[SweepResults] = field(default_factory=Future)
    latest: Progress = field(default_factory=lambda: Progress("sweep"))

    def result(self, progress: ProgressCallback, *, poll_seconds: float = 0.1) -> SweepResults:
        """Wait for the results, and raise what `run_sweep` raises; `progress` is called meanwhile."""
        if not self.pool.elsewhere:
            return run_sweep(self.scenario, self.folder, self.store, self.pool, progress=progress)
        while True:
            if wait([self.future], poll_seconds).done:
                return self.future.result()
            progress(self.latest)


def sweeps_ahead(sweeps: Sequence[PendingSweep], pool: Workers) -> None:
    """Have sweeps computed in their order while this process goes on, by workers outside of it.

    A caller that leaves early does not wait: a sweep under way stops where the pool is closed. Without such workers
    nothing begins before a result is wanted.
    """
    if pool.elsewhere and sweeps:
        threading.Thread(target=_compute, args=(sweeps, pool)).start()


def _compute(sweeps: Sequence[PendingSweep], pool: Workers) -> None:
    """Compute all sweeps and settle each as soon as it is complete, or cannot be."""
    pending: dict[SweepRun, PendingSweep] = {}

    def runs() -> Iterator[SweepRun]:
        for sweep in sweeps:
            try:
                run = SweepRun(planned(sweep.scenario, sweep.folder), sweep.store)
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
