"""`python -m flowsim check SCENARIO …`: whether scenarios are right, and about what they take; nothing is run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import jax
from rich.console import Console

from ..results import BLOCKS
from ..runtime.memory import device_bytes, in_bytes
from ..scenarios import in_hours
from ..sweeps import BlockStore, default_jobs
from .estimate import Estimate, estimate
from .jobs import Job, choose_device, read_jobs
from .options import Subcommand, add_run_options
from .terminal import Terminal


def check(arguments: Sequence[str]) -> int:
    """Read and check the scenarios as a run would, and print about what each takes; return the exit code.

    Raises as `read_jobs` does.
    """
    options = _parser().parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    choose_device(options.device)
    jobs, console = read_jobs(options), Terminal()
    store, processes = BlockStore(options.out / BLOCKS), options.jobs or default_jobs()
    for job in jobs:
        _print(job, estimate(job, store=store, processes=processes), console)
    return 0


def _print(job: Job, found: Estimate, console: Console) -> None:
    early = ", less if the descents converge before their last step" if found.may_end_early else ""
    about = "about" if found.solver_known else "at least"
    lines = [
        f"{job.name} is right: {found.weights} weights in {job.scenario.precision}, {found.samples} samples",
        f"  runs    {'; '.join(part.what for part in found.parts)}",
        f"  time    about {in_hours(found.seconds)} on this machine, within a factor of three{early}",
        f"  memory  {about} {in_bytes(found.bytes)} of {in_bytes(device_bytes())}",
        f"The results go to {_destination(job)}.\n",
    ]
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


def _destination(job: Job) -> str:
    if not job.folder.holds_results:
        return str(job.folder.path)
    kind = "a different scenario, which are given up" if job.folder.gives_up else "the same scenario"
    return f"{job.folder.path}, where there are some already, of {kind}"


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim check",
        description="Read and check scenarios as a run with the same options would, and say about what they will take: "
        "what is run, how long, how much memory, and where the results go. Nothing is run or written.",
        epilog="Exit codes: 0 all are right, 2 bad input.",
    )
    made.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO", help="a scenario file (YAML)")
    add_run_options(made)
    return made


CHECK = Subcommand("check SCENARIO ...", "is it right, and what will it take? nothing is run", check)
