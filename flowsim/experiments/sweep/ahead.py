"""Sweeps that are computed elsewhere while this process goes on with the rest."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..scenario import Scenario
from .run import Progress, SweepResults, run_sweep
from .store import BlockStore
from .workers import Workers

_POLL_SECONDS = 0.1
Listener = Callable[[Progress], None]


class Submit(Protocol):
    """Asks for a sweep; its arguments are those of `run_sweep`."""

    def __call__(self, scenario: Scenario, folder: Path, store: BlockStore) -> "PendingSweep":
        """Return the sweep that was asked for, which may have begun."""
        ...


@dataclass
class PendingSweep:
    """A sweep that was asked for: running in the background, or to be run when its result is wanted."""

    run: Callable[[Listener], SweepResults]
    future: Future[SweepResults] | None = None
    latest: Progress = field(default_factory=lambda: Progress(0.0, 0.0))

    def result(self, progress: Listener) -> SweepResults:
        """Wait for the results, and raise what `run_sweep` raises; `progress` hears of it meanwhile."""
        if self.future is None:
            return self.run(progress)
        while True:
            try:
                return self.future.result(timeout=_POLL_SECONDS)
            except TimeoutError:
                if self.future.done():
                    raise
                progress(self.latest)

    def hear(self, progress: Progress) -> None:
        """Remember where the sweep stands."""
        self.latest = progress


@contextmanager
def sweeps_ahead(crew: Workers) -> Iterator[Submit]:
    """Provide a function that asks for sweeps.

    Workers outside of this process begin at once, sweep after sweep; this process begins when a result is wanted. Who
    leaves early does not wait: the workers' own end is what stops a sweep under way.
    """
    background = ThreadPoolExecutor(1) if crew.elsewhere else None

    def submit(scenario: Scenario, folder: Path, store: BlockStore) -> PendingSweep:
        pending = PendingSweep(lambda heard: run_sweep(scenario, folder, store, crew, progress=heard))
        if background is not None:
            pending.future = background.submit(pending.run, pending.hear)
        return pending

    try:
        yield submit
    finally:
        if background is not None:
            background.shutdown(wait=False, cancel_futures=True)
