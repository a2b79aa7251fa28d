"""Scenarios computed one after another, each stored and reported as soon as it is done."""

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import jax

from ..curvature.finiteness import NotFiniteError
from ..formatting.progress import show_progress_bar
from ..results import BLOCKS, SWEEP, THEORY, theory_to_dataset
from ..runtime.errors import print_error
from ..scenarios import ScenarioError, check_theory, default_device, environment, resolved, run
from ..sweeps import (
    BlockStore,
    ClusterError,
    PendingSweep,
    Workers,
    default_jobs,
    sweeps_ahead,
    workers,
)
from .jobs import Job, choose_device, read_jobs
from .kept_programs import keep_programs
from .report import Terminal, conclude, report

if TYPE_CHECKING:
    from ..report import Document


def run_scenarios(options: argparse.Namespace) -> int:
    """Read, run and report the scenarios that are asked for, and return the exit code."""
    jax.config.update("jax_enable_x64", True)
    choose_device(options.device)
    with Terminal().status("reading what is asked for"):
        jobs = read_jobs(options)
        keep_programs()
    warnings.filterwarnings("ignore", message="the gradient jumps")  # the table says it
    warnings.filterwarnings("ignore", message="the weights are")  # the scenario's precision says it
    with worker_pool(jobs, options) as pool:
        return run_all(jobs, pool)


def run_all(jobs: list[Job], pool: Workers | None) -> int:
    """Run and report job after job, while the worker pool is ahead with the sweeps; return the worst exit code."""
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.folder.locked())
        pending: dict[str, PendingSweep] = {}
        if pool is not None:
            for job in jobs:
                if job.scenario.sweep is not None:
                    blocks = BlockStore(job.folder.path.parent / BLOCKS)
                    pending[job.name] = PendingSweep(job.scenario, job.path.parent, blocks, pool)
            sweeps_ahead(list(pending.values()), pool)
        documents = [_run_and_report(job, pending.get(job.name)) for job in jobs]
        return conclude(documents, Terminal())


@contextmanager
def worker_pool(jobs: Sequence[Job], options: argparse.Namespace) -> Iterator[Workers | None]:
    """Provide the workers that compute the blocks of the sweeps among the jobs, `None` where there are no sweeps.

    Raises `ScenarioError` for several processes on one accelerator, and for a cluster that does not answer.
    """
    if not any(job.scenario.sweep for job in jobs):
        yield None
        return
    count = options.jobs or default_jobs()
    platform = default_device().platform
    if count > 1 and platform != "cpu":
        raise ScenarioError(f"--jobs {count}: one process has all of a {platform}; write --jobs 1, or --device cpu")

    def notify(message: str) -> None:
        print_error(f"flowsim: --dask {options.dask}: {message}")

    try:
        with workers(count, dask=options.dask, device=options.device, notify=notify) as pool:
            yield pool
    except ClusterError as error:
        raise ScenarioError(f"--dask {options.dask}: {error}") from None
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        raise ScenarioError("--dask: needs Dask's distributed; write pip install 'flowsim[dask]'") from None


def _run_and_report(job: Job, pending: PendingSweep | None) -> "Document":
    """Compute what the scenario of a job asks for, store it, and report it.

    Raises `StoreError` where a file cannot be written into the folder of the job.
    """
    console, comparison = Terminal(), None
    with show_progress_bar(console, job.name) as shown:
        progress = shown.callback or False
        if job.compares:
            try:
                comparison = run(job.scenario, job.problem, job.network, job.probes, progress=progress)
            except NotFiniteError as error:
                raise ScenarioError(f"{job.path}: {error}") from None
        theory = check_theory(job.scenario, job.cells, progress=progress)
        sweep = None if pending is None else pending.result(shown)
    with console.status(f"{job.name}: sharpness at the end"):  # which is measured first, where it is not known yet
        content = resolved(job.scenario)
        attributes = {"scenario": json.dumps(content)}
        trajectories = None if comparison is None else comparison.to_dataset(attributes)
        written = [job.folder.write_scenario(content, environment(), job.comment)]
        if trajectories is not None:
            written.append(job.folder.write_dataset(trajectories))
        if theory is not None:
            written.append(job.folder.write_dataset(theory_to_dataset(theory, attributes), THEORY))
        if sweep is not None:
            written.append(job.folder.write_dataset(sweep.dataset, SWEEP))
    return report(job.folder, job.name, written, console)
