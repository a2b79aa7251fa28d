"""`python -m flowsim check SCENARIO …`: whether they are right, and about what they will take; nothing is run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import jax
from rich import box
from rich.table import Table
from rich.text import Text

from ..results import BLOCKS
from ..runtime.memory import device_bytes, in_bytes
from ..scenarios import in_hours
from ..sweeps import BlockStore, default_jobs
from .ahead import Ahead
from .device import choose_device
from .jobs import Job, read_jobs
from .options import add_run_options
from .outlook import Outlook, outlook
from .pace import measure_pace
from .run import Terminal
from .word import Word


def check(words: Sequence[str]) -> int:
    """Read and check the scenarios as a run would, and print about what each takes; return the exit code.

    Raises as `read_jobs` does.
    """
    options = options_of(words)
    jax.config.update("jax_enable_x64", True)
    choose_device(options.device)
    jobs, console = read_jobs(options), Terminal()
    for job in jobs:
        console.print(_table(job, predicted(job, options)))
    return 0


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Return the options that `words` give: scenarios, and all that a run with them would take."""
    return _parser().parse_args(words)


def predicted(job: Job, options: argparse.Namespace) -> Outlook:
    """Return about what a job will take, run with these options; its gradient is compiled and timed for that."""
    ahead = Ahead(
        scenario=job.scenario,
        problem=job.problem,
        network=job.network,
        cells=job.cells,
        folder=job.path.parent,
        compares=job.compares,
        store=BlockStore(options.out / BLOCKS),
        workers=options.jobs or default_jobs(),
    )
    return outlook(ahead, measure_pace(job.network, job.problem))


def _table(job: Job, found: Outlook) -> Table:
    looks = {"title_justify": "left", "caption_justify": "left", "box": box.SIMPLE_HEAD, "pad_edge": False}
    caption = Text(f"{_results(job)}\n", style="not dim not italic")
    table = Table(title=Text(_title(job, found)), caption=caption, show_edge=False, **looks)
    table.add_column("part", no_wrap=True)
    table.add_column("what")
    table.add_column("about", justify="right", no_wrap=True)
    for part in found.parts:
        table.add_row(part.name, f"{part.what} (a guess)" if part.guess else part.what, in_hours(part.seconds))
    where = "on this machine, by a gradient timed just now; a factor of three is to be expected"
    table.add_row("time in all", where, _in_all(found), end_section=True)
    for kept in found.memory:
        table.add_row("", kept.what, "not known" if kept.bytes is None else in_bytes(kept.bytes))
    table.add_row("memory in all", f"of {in_bytes(device_bytes())}", in_bytes(found.bytes))
    return table


def _title(job: Job, found: Outlook) -> str:
    return f"{job.name} is right: {found.weights} weights in {job.scenario.precision}, {found.samples} samples"


def _in_all(found: Outlook) -> str:
    """Return about how long all of it takes, from the least to the most where these are far apart."""
    most = in_hours(found.seconds)
    return most if found.seconds < 2 * found.least else f"{in_hours(found.least)} to {most}"


def _results(job: Job) -> str:
    path = job.folder.path
    if not job.folder.holds_results:
        return f"The results go to {path}."
    kind = "a different scenario, which are given up" if job.folder.gives_up else "the same scenario"
    return f"The results go to {path}, where there are some already, of {kind}."


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


CHECK = Word("check SCENARIO ...", "is it right, and what will it take? nothing is run", check)
