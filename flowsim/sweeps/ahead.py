"""Sweeps that are computed elsewhere while this process goes on with the rest."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from ..formatting import Progress, ProgressCallback
from ..scenarios.scenario import Scenario
from .run import SweepResults, SweepRun, planned, run_sweep, run_sweeps
from .store import BlockStore
from .workers import Workers

_POLL_SECONDS = 0.1


@dataclass(eq=False)
class PendingSweep:
    """A sweep that was asked for: under way in the background, or to be run when its result is wanted."""

    scenario: Scenario
    folder: Path
    store: BlockStore
    crew: Workers
    future: Future[SweepResults] = field(default_factory=Future)
    latest: Progress = field(default_factory=lambda: Progress("sweep"))

    def result(self, progress: ProgressCallback) -> SweepResults:
        """Wait for the results, and raise what `run_sweep` raises; `progress` hears of it meanwhile."""
        if not self.crew.elsewhere:
            return run_sweep(self.scenario, self.folder, self.store, self.crew, progress=progress)
        while True:
            try:
                return self.future.result(timeout=_POLL_SECONDS)
            except TimeoutError:
                if self.future.done():
                    raise
                progress(self.latest)


def sweeps_ahead(asked: Sequence[PendingSweep], crew: Workers) -> None:
    """Have sweeps computed in their order while this process goes on, by workers outside of it.

    Who leaves early does not wait: the workers' own end is what stops a sweep under way. Without such workers nothing
    begins before a result is wanted.
    """
    if crew.elsewhere and asked:
        threading.Thread(target=_compute, args=(asked, crew)).start()


def _compute(asked: Sequence[PendingSweep], crew: Workers) -> None:
    """Compute all sweeps and settle each as soon as it is complete, or cannot be."""
    pending: dict[SweepRun, PendingSweep] = {}

    def runs() -> Iterator[SweepRun]:
        for sweep in asked:
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
        run_sweeps(runs(), crew, advanced)
    except BaseException as error:
        for sweep in asked:
            if not sweep.future.done():
                sweep.future.set_exception(error)
