"""Job after job: computed, and reported as soon as it is."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress as ProgressBar, TextColumn, TimeRemainingColumn

from ..experiments import BLOCKS, BlockStore, PendingSweep, Progress, Workers, check_theory, run, sweeps_ahead
from .closed import silence
from .findings import Findings, report, store
from .jobs import Job


class Terminal(Console):
    """A console that falls silent when nobody reads it any more.

    The results are files, and tables only tell of them: `python -m flowsim a.yaml b.yaml | head -1` computes and writes
    all that it was asked for, and its exit code says how that went.
    """

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
        return max([_run_and_report(job, sweep) for job, sweep in zip(jobs, pending, strict=True)])


def _asked(job: Job, crew: Workers | None) -> PendingSweep | None:
    if job.scenario.sweep is None or crew is None:
        return None
    return PendingSweep(job.scenario, job.path.parent, BlockStore(job.folder.path.parent / BLOCKS), crew)


def _run_and_report(job: Job, pending: PendingSweep | None) -> int:
    console = Terminal()
    found = _found(job, pending, console)
    with console.status(f"{job.name}: sharpness at the end"):
        written = store(job, found)
    return report(job.folder, job.name, written, console)


def _found(job: Job, pending: PendingSweep | None, console: Console) -> Findings:
    with console.status(job.name) as status:

        def progress(stage: str) -> None:
            status.update(f"{job.name}: {stage}")

        comparison = None
        if job.compares:
            comparison = run(job.scenario, job.problem, job.network, job.probes, progress=progress)
        theory = check_theory(job.scenario, job.cells, progress=progress)
    sweep = None
    if pending is not None:
        with _bar(job.name, console) as advance:
            sweep = pending.result(advance)
    return Findings(comparison, theory, sweep)


@contextmanager
def _bar(name: str, console: Console) -> Iterator[Callable[[Progress], None]]:
    """Show a bar with the time left, on a terminal only."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    # Blocks may take half a minute each: the speed is that of the whole run, not of the last moments.
    options = {"console": console, "transient": True, "speed_estimate_period": math.inf}
    with ProgressBar(*columns, TimeRemainingColumn(), **options) as bar:
        task = bar.add_task(name)
        if not console.is_terminal:
            bar.stop()
        yield lambda progress: bar.update(task, completed=progress.done, total=progress.total or 1)
