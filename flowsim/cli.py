"""The command line: scenarios in, tables, figures and numbers out."""

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from rich.console import Console
from rich.progress import BarColumn, Progress as ProgressBar, TextColumn, TimeRemainingColumn
from rich.text import Text

from . import report
from .comparison import Comparison
from .experiments import (
    FOLDER,
    SWEEP,
    BlockStore,
    Cell,
    ClusterError,
    PendingSweep,
    Progress,
    ResultFolder,
    Scenario,
    ScenarioError,
    StoreError,
    SweepResults,
    TheoryResults,
    Workers,
    build,
    check_theory,
    default_device,
    default_jobs,
    environment,
    keep_compiled_programs,
    open_results,
    parse_overrides,
    read_scenario,
    refuse_unwritable,
    resolved,
    run,
    scenario_json_schema,
    sweeps_ahead,
    theory_cells,
    workers,
)
from .problems import Problem
from .problems.data import DataError

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_MOST_FAILURES = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m flowsim` with `arguments` (default: those of the process) and return its exit code."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # η has no place in every encoding
    try:
        if options.schema:
            print(json.dumps(scenario_json_schema(), indent=2))
            return DONE
        jax.config.update("jax_enable_x64", True)
        keep_compiled_programs()
        _choose_device(options.device)
        jobs = _jobs(options)
        with _workers(options, jobs) as crew:
            return _run_all(jobs, crew)
    except (ScenarioError, DataError, StoreError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("flowsim: interrupted; files written so far are whole, the others are missing", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone: say no more, not even when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}; use another file or folder")
    except MemoryError:
        return _refuse("not enough memory; use fewer samples or features, or a smaller network")
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return _refuse("not enough memory on the device; use a smaller network, or precision: float32")


def _choose_device(kind: str | None) -> None:
    if kind is None:
        return
    try:
        device, *_ = jax.devices(kind)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ScenarioError(f"--device {kind}: there is none here ({reason}); leave the option out") from None
    jax.config.update("jax_default_device", device)


@contextmanager
def _workers(options: argparse.Namespace, jobs: list["_Job"]) -> Iterator[Workers | None]:
    """Provide who computes the blocks of the sweeps among the jobs, `None` where there are none."""
    if not any(job.scenario.sweep for job in jobs):
        yield None
        return
    count = options.jobs or default_jobs()
    platform = default_device().platform
    if count > 1 and platform != "cpu":
        raise ScenarioError(f"--jobs {count}: one process has all of a {platform}; write --jobs 1, or --device cpu")
    try:
        with workers(count, dask=options.dask, device=options.device) as crew:
            yield crew
    except ClusterError as error:
        raise ScenarioError(f"--dask {options.dask}: {error}") from None
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        raise ScenarioError("--dask: needs Dask's distributed; write pip install 'flowsim[dask]'") from None


def _refuse(message: str) -> int:
    print(f"flowsim: {message}", file=sys.stderr)
    return BAD_INPUT


class _Terminal(Console):
    """A console that lets the command line decide what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flowsim",
        description="Integrate the gradient flow of neural networks to its limit, beside gradient descent and theory.",
        epilog="Exit codes: 0 done, 1 no limit reached or a statement fails, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("scenarios", nargs="*", type=Path, metavar="SCENARIO", help="a scenario file (YAML)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace one value in every scenario, for instance --set network.scale=0.3",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the results (default: results)",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the results of a different scenario of the same name",
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "gpu", "tpu"],
        help="where to compute (default: what JAX finds best); gpu needs pip install 'flowsim[cuda]'",
    )
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="processes that share the work of a sweep (default: the cores; 1: no other process)",
    )
    workers.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="give the work of a sweep to the Dask cluster at this address; needs pip install 'flowsim[dask]'",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="sweeps with a tenth of the steps and three repetitions at most, into folders of their own",
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a scenario, and end")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number, one or more; write --jobs 2")
    return int(text)


@dataclass(frozen=True)
class _Job:
    path: Path
    name: str
    scenario: Scenario
    folder: ResultFolder
    problem: Problem
    network: eqx.Module
    cells: tuple[Cell, ...]

    @property
    def compares(self) -> bool:
        """Whether the scenario itself is run: a sweep without learning rates of its own is only a grid."""
        return self.scenario.sweep is None or bool(self.scenario.descent.learning_rates)


@dataclass(frozen=True)
class _Findings:
    comparison: Comparison | None
    theory: TheoryResults | None
    sweep: SweepResults | None
    claims: tuple[report.Claim, ...] = ()

    @property
    def code(self) -> int:
        """The exit code that says whether everything arrived where it should."""
        lost = self.comparison is not None and not self.comparison.flow.converged
        failed = self.theory is not None and self.theory.failed
        incomplete = self.sweep is not None and bool(self.sweep.failures or self.sweep.unconverged)
        return FAILED if lost or failed or incomplete else DONE


def _jobs(options: argparse.Namespace) -> list[_Job]:
    """Read and check everything that is asked for, before anything is computed or written."""
    if not options.scenarios:
        raise ScenarioError("no scenario given; write for instance: python -m flowsim scenarios/residual.yaml")
    overrides = parse_overrides(options.set)
    scenarios = [(path, read_scenario(path, overrides)) for path in options.scenarios]
    names: dict[str, Path] = {}
    for path, scenario in scenarios:
        name = _name(path, scenario, options)
        if name in names:
            raise ScenarioError(
                f"{path}: its results would go to the same folder as those of {names[name]}; "
                "rename one, or run them one by one with another --out"
            )
        names[name] = path
    return [_job(path, scenario, options) for path, scenario in scenarios]


def _name(path: Path, scenario: Scenario, options: argparse.Namespace) -> str:
    return f"{path.stem}-quick" if options.quick and scenario.sweep else path.stem


def _job(path: Path, scenario: Scenario, options: argparse.Namespace) -> _Job:
    name = _name(path, scenario, options)
    if options.quick and scenario.sweep is not None:
        scenario = scenario.model_copy(update={"sweep": scenario.sweep.quick()})
    folder = open_results(options.out, name, resolved(scenario), options.overwrite)
    if scenario.sweep is not None:
        refuse_unwritable(options.out / FOLDER)
    try:
        made = build(scenario, path.parent)
        return _Job(path, name, scenario, folder, *made, theory_cells(scenario, path.parent))
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _run_all(jobs: list[_Job], crew: Workers | None) -> int:
    """Run and report job after job, while the workers are ahead with the sweeps; return the worst exit code."""
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.folder.locked())
        pending = [_asked(job, crew) for job in jobs]
        if crew is not None:
            sweeps_ahead([sweep for sweep in pending if sweep is not None], crew)
        return max([_run_and_report(job, sweep) for job, sweep in zip(jobs, pending, strict=True)])


def _asked(job: _Job, crew: Workers | None) -> PendingSweep | None:
    if job.scenario.sweep is None or crew is None:
        return None
    return PendingSweep(job.scenario, job.path.parent, BlockStore(job.folder.path.parent / FOLDER), crew)


def _run_and_report(job: _Job, pending: PendingSweep | None) -> int:
    console = _Terminal()
    found = _found(job, pending, console)
    with console.status(f"{job.name}: sharpness at the end, figures"):
        tables, written = _tables(job, found), _write(job, found)
    for table in tables:
        console.print(table)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False, markup=False)
    return found.code


def _found(job: _Job, pending: PendingSweep | None, console: Console) -> _Findings:
    with console.status(job.name) as status:

        def progress(stage: str) -> None:
            status.update(f"{job.name}: {stage}")

        comparison = None
        if job.compares:
            comparison = run(job.scenario, job.problem, job.network, progress=progress)
        theory = check_theory(job.scenario, job.cells, progress=progress)
    sweep = None
    if pending is not None:
        with _bar(job.name, console) as advance:
            sweep = pending.result(advance)
    claims: tuple[report.Claim, ...] = ()
    if sweep is not None and job.scenario.figure is not None:
        claims = report.claims(job.scenario.figure, sweep.dataset, comparison)
    return _Findings(comparison, theory, sweep, claims)


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


def _tables(job: _Job, found: _Findings) -> list[Any]:
    tables = []
    if found.comparison is not None:
        tables.append(report.render(found.comparison, title=job.name))
    if found.theory is not None:
        tables += report.theory_tables(found.theory, title=job.name)
    if found.sweep is not None:
        tables.append(report.sweep_table(found.sweep.dataset, title=job.name))
        if found.claims:
            title = f"{job.name}: what the paper says, and what was measured"
            tables.append(report.claims_table(found.claims, title=title))
        tables += _complaints(found.sweep)
    return tables


def _complaints(sweep: SweepResults) -> Iterator[Text]:
    """Say what a sweep lacks."""
    for failure in sweep.failures[:_MOST_FAILURES]:
        yield Text(f"failed: {failure.cell}: {failure.message}")
    if (more := len(sweep.failures) - _MOST_FAILURES) > 0:
        yield Text(f"failed: {more} more, which are in summary.json")
    if sweep.unconverged:
        yield Text(f"{sweep.unconverged} flows did not reach their limit")


def _write(job: _Job, found: _Findings) -> list[Path]:
    folder, content = job.folder, resolved(job.scenario)
    attributes = {"scenario": json.dumps(content)}
    # All that can fail for another reason than the disk comes before the first file.
    summary, figures = _summary(job, found), _figures(job, found)
    trajectories = None if found.comparison is None else report.dataset(found.comparison, attributes)
    paths = [folder.write_scenario(content, environment()), folder.write_summary(summary)]
    if trajectories is not None:
        paths.append(folder.write_dataset(trajectories))
    if found.sweep is not None:
        paths.append(folder.write_dataset(found.sweep.dataset, SWEEP))
    for name, figure in figures.items():
        paths.extend(folder.write_figure(name, figure))
    return paths


def _summary(job: _Job, found: _Findings) -> dict[str, Any]:
    summary = {} if found.comparison is None else report.summary(found.comparison)
    summary["theory"] = None if found.theory is None else report.theory_summary(found.theory)
    if found.sweep is not None:
        failures = [{"cell": failure.cell, "message": failure.message} for failure in found.sweep.failures]
        summary["sweep"] = report.sweep_summary(found.sweep.dataset) | {"failures": failures}
        if found.claims:
            summary["claims"] = report.claims_summary(found.claims)
    return summary


def _figures(job: _Job, found: _Findings) -> dict[str, Any]:
    figures = {} if found.comparison is None else report.figures(found.comparison)
    if found.theory is not None:
        figures |= report.theory_figures(found.theory)
    if found.sweep is None:
        return figures
    if (number := job.scenario.figure) is not None:
        return figures | {f"figure{number}": report.paper_figure(number, found.sweep.dataset, found.comparison)}
    return figures | {f"sweep_{name}": figure for name, figure in report.sweep_figures(found.sweep.dataset).items()}
