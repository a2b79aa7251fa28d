"""The options of the command line, and its scenarios: read and checked before anything is computed or written."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax

from ..probes import Probe
from ..problems import Problem
from ..results import BLOCKS, ResultFolder, result_folder
from ..runtime.memory import in_bytes
from ..scenarios import (
    Cell,
    Scenario,
    ScenarioError,
    build,
    parse_overrides,
    read_scenario,
    resolved,
    theory_cells,
)
from ..sweeps import BlockStore

_EPILOG = """\
exit codes: 0 done, 1 no limit reached or a statement fails, 2 bad input,
  128 + n ended by signal n (Ctrl-C: 130)

examples:
  python -m flowsim scenarios/residual.yaml
  python -m flowsim scenarios/residual.yaml --set network.scale=0.3 --overwrite
  python -m flowsim report results/residual   # the results again, not computed
  python -m flowsim new residual              # a residual.yaml to be changed
  python -m flowsim check residual.yaml       # is it right, what will it take?"""


@dataclass(frozen=True)
class Subcommand:
    """Something to do other than to run scenarios, named by the first argument of the command line.

    `usage` is its name with what may follow, `summary` says in one line what it does, and `act` is called with the
    arguments that follow the name, and returns the exit code. Each is entered in `command.SUBCOMMANDS`.
    """

    usage: str
    summary: str
    act: Callable[[Sequence[str]], int]

    @property
    def name(self) -> str:
        """Its name, the first word of its usage."""
        return self.usage.split()[0]


def parser(subcommands: Iterable[Subcommand]) -> argparse.ArgumentParser:
    """Return the parser of a command line that runs scenarios; its help names the subcommands."""
    width = max(len(one.usage) for one in subcommands)
    named = "\n".join(f"  {one.usage:{width}}  {one.summary}" for one in subcommands)
    made = argparse.ArgumentParser(
        prog="python -m flowsim",
        description="Integrate the gradient flow of neural networks to its limit, beside gradient\n"
        f"descent and theory.\n\nin place of scenarios:\n{named}\n(each has a --help of its own)",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("scenarios", nargs="*", type=Path, metavar="SCENARIO", help="a scenario file (YAML)")
    add_run_options(made)
    made.add_argument("--schema", action="store_true", help="print the JSON Schema of a scenario, and end")
    return made


def add_run_options(made: argparse.ArgumentParser) -> None:
    """Add the options that say how scenarios are run, and where their results go."""
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace one value in every scenario, for instance --set network.scale=0.3",
    )
    made.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder for the results (default: results)",
    )
    made.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the results of a different scenario of the same name",
    )
    made.add_argument(
        "--device",
        choices=["cpu", "gpu", "tpu"],
        help="where to compute (default: what JAX finds best); gpu needs pip install 'flowsim[cuda]'",
    )
    workers = made.add_mutually_exclusive_group()
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
    made.add_argument(
        "--quick",
        action="store_true",
        help="sweeps with a tenth of the steps and three repetitions at most, into folders of their own; "
        "claims of figures that do not hold there are undecided",
    )


def _positive(text: str) -> int:
    # Each process is some hundred megabytes; the most that a machine has cores for is a thousand.
    if not (text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= 1024):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number from 1 to 1024; write --jobs 2")
    return int(text)


@dataclass(frozen=True)
class Job:
    """A scenario, where its results go, and what is made of it."""

    path: Path
    name: str
    scenario: Scenario
    folder: ResultFolder
    problem: Problem
    network: eqx.Module
    probes: tuple[Probe, ...]
    cells: tuple[Cell, ...]

    @property
    def compares(self) -> bool:
        """Whether the scenario itself is run: a sweep without learning rates of its own is only a grid."""
        return self.scenario.sweep is None or bool(self.scenario.descent.learning_rates)


def choose_device(kind: str | None) -> None:
    """Compute on a kind of device from now on, `None` for what JAX finds best. Raises `ScenarioError` for none."""
    if kind is None:
        return
    try:
        device, *_ = jax.devices(kind)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ScenarioError(f"--device {kind}: there is none here ({reason}); leave the option out") from None
    jax.config.update("jax_default_device", device)


def read_jobs(options: argparse.Namespace) -> list[Job]:
    """Read and check everything that is asked for, before anything is computed or written."""
    if not options.scenarios:
        raise ScenarioError("no scenario given; write for instance: python -m flowsim scenarios/residual.yaml")
    overrides = parse_overrides(options.set)
    scenarios = [(path, read_scenario(path, overrides, notice=_print_notice)) for path in options.scenarios]
    names: dict[str, Path] = {}
    for path, scenario in scenarios:
        name = f"{path.stem}-quick" if options.quick and scenario.sweep else path.stem
        if name in names:
            raise ScenarioError(
                f"{path}: its results would go to the same folder as those of {names[name]}; "
                "rename one, or run them one by one with another --out"
            )
        names[name] = path
    return [_job(path, name, scenario, options) for name, (path, scenario) in zip(names, scenarios, strict=True)]


def _print_notice(text: str) -> None:
    print(f"flowsim: {text}", file=sys.stderr, flush=True)


def _job(path: Path, name: str, scenario: Scenario, options: argparse.Namespace) -> Job:
    if options.quick and scenario.sweep is not None:
        scenario = scenario.model_copy(update={"sweep": scenario.sweep.quick()})
    folder = result_folder(options.out, name, resolved(scenario), options.overwrite)
    if scenario.sweep is not None:
        BlockStore(options.out / BLOCKS).refuse_obstacles()
    try:
        problem, network, probes = build(scenario, path.parent)
        chunk, needed = problem.samples_at_once(network), problem.pass_bytes(network)
        if chunk is not None and needed is not None:
            taken = f"a pass over all samples takes about {in_bytes(needed)} of memory"
            _print_notice(f"{path}: {taken}, so it is made in chunks of {chunk}")
        return Job(path, name, scenario, folder, problem, network, probes, theory_cells(scenario, path.parent))
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
