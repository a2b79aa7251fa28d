"""The command line: scenarios in, tables, figures and numbers out."""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
from rich.console import Console

from . import report
from .comparison import Comparison
from .experiments import (
    Cell,
    ResultFolder,
    Scenario,
    ScenarioError,
    StoreError,
    TheoryResults,
    build,
    check_theory,
    environment,
    open_results,
    parse_overrides,
    read_scenario,
    resolved,
    run,
    scenario_json_schema,
    theory_cells,
)
from .problems import Problem
from .problems.data import DataError

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


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
        _choose_device(options.device)
        return max([_run_and_report(job) for job in _jobs(options)])
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
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a scenario, and end")
    return parser


@dataclass(frozen=True)
class _Job:
    path: Path
    scenario: Scenario
    folder: ResultFolder
    problem: Problem
    network: eqx.Module
    cells: tuple[Cell, ...]


def _jobs(options: argparse.Namespace) -> list[_Job]:
    """Read and check everything that is asked for, before anything is computed or written."""
    if not options.scenarios:
        raise ScenarioError("no scenario given; write for instance: python -m flowsim scenarios/residual.yaml")
    overrides = parse_overrides(options.set)
    scenarios = {path: read_scenario(path, overrides) for path in options.scenarios}
    names: dict[str, Path] = {}
    for path in options.scenarios:
        if path.stem in names:
            raise ScenarioError(
                f"{path}: its results would go to the same folder as those of {names[path.stem]}; "
                "rename one, or run them one by one with another --out"
            )
        names[path.stem] = path
    return [_job(path, scenario, options) for path, scenario in scenarios.items()]


def _job(path: Path, scenario: Scenario, options: argparse.Namespace) -> _Job:
    folder = open_results(options.out, path.stem, resolved(scenario), options.overwrite)
    try:
        made = build(scenario, path.parent)
        return _Job(path, scenario, folder, *made, theory_cells(scenario, path.parent))
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _run_and_report(job: _Job) -> int:
    console = _Terminal()
    with console.status(job.path.stem) as status:

        def progress(stage: str) -> None:
            status.update(f"{job.path.stem}: {stage}")

        comparison = run(job.scenario, job.problem, job.network, progress=progress)
        theory = check_theory(job.scenario, job.cells, progress=progress)
        progress("sharpness at the end, figures")
        tables = [report.render(comparison, title=job.path.stem)]
        if theory is not None:
            tables += report.theory_tables(theory, title=job.path.stem)
        written = _write(job, comparison, theory)
    for table in tables:
        console.print(table)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False)
    failed = theory is not None and theory.failed
    return DONE if comparison.flow.converged and not failed else FAILED


def _write(job: _Job, comparison: Comparison, theory: TheoryResults | None) -> list[Path]:
    folder, content = job.folder, resolved(job.scenario)
    # All that can fail for another reason than the disk comes before the first file.
    summary = report.summary(comparison) | {"theory": None if theory is None else report.theory_summary(theory)}
    dataset = report.dataset(comparison, {"scenario": json.dumps(content)})
    figures = report.figures(comparison) | ({} if theory is None else report.theory_figures(theory))
    paths = [folder.write_scenario(content, environment()), folder.write_summary(summary)]
    paths.append(folder.write_dataset(dataset))
    for name, figure in figures.items():
        paths.extend(folder.write_figure(name, figure))
    return paths
