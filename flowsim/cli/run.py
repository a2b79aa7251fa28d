"""Job after job: computed, and reported as soon as it is."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console

from ..formatting.progress_bar import show_progress_bar
from ..results import BLOCKS
from ..scenarios import check_theory, run
from ..sweeps import BlockStore, PendingSweep, Workers, sweeps_ahead
from .closed import silence
from .findings import Findings, report, store
from .jobs import Job
from .together import conclude

if TYPE_CHECKING:
    from ..report import Document


class Terminal(Console):
    """A console that falls silent when nobody reads it any more.

    The results are files, and tables only tell of them: `python -m flowsim a.yaml b.yaml | head -1` computes and writes
    all that it was asked for, and its exit code says how that went.
    """

    def __init__(self) -> None:
        # What is printed comes from folders and files: nothing in it is an instruction.
        super().__init__(markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on, what is still to be flushed included."""
        self.quiet = True
        silence()


def run_all(jobs: list[Job], crew: Workers | None) -> int:
    """Run and report job after job, while the workers are ahead with the sweeps; return the worst exit code."""
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.folder.locked())
        pending = [_asked(job, crew) for job in jobs]
        if crew is not None:
            sweeps_ahead([sweep for sweep in pending if sweep is not None], crew)
        made = [_run_and_report(job, sweep) for job, sweep in zip(jobs, pending, strict=True)]
        return conclude(made, Terminal())


def _asked(job: Job, crew: Workers | None) -> PendingSweep | None:
    if job.scenario.sweep is None or crew is None:
        return None
    return PendingSweep(job.scenario, job.path.parent, BlockStore(job.folder.path.parent / BLOCKS), crew)


def _run_and_report(job: Job, pending: PendingSweep | None) -> "Document":
    console = Terminal()
    found = _found(job, pending, console)
    with console.status(f"{job.name}: sharpness at the end"):
        written = store(job, found)
    return report(job.folder, job.name, written, console)


def _found(job: Job, pending: PendingSweep | None, console: Console) -> Findings:
    with show_progress_bar(console, job.name) as shown:
        progress, comparison = shown.callback or False, None
        if job.compares:
            comparison = run(job.scenario, job.problem, job.network, job.probes, progress=progress)
        theory = check_theory(job.scenario, job.cells, progress=progress)
        sweep = None if pending is None else pending.result(shown)
    return Findings(comparison, theory, sweep)
