"""The scenarios of a command line, read and checked before anything is computed or written."""

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax

from ..data import DataWarning
from ..probes import Probe
from ..problems import Problem
from ..results import BLOCKS, ResultFolder, result_folder
from ..runtime.errors import print_error
from ..runtime.memory import in_bytes
from ..scenarios import (
    Cell,
    Scenario,
    ScenarioError,
    build,
    header_comment,
    parse_overrides,
    read_scenario,
    resolved,
    theory_cells,
)
from ..sweeps import BlockStore


@dataclass(frozen=True)
class Job:
    """A scenario and the comment of its file, where its results go, and what is made of it."""

    path: Path
    name: str
    scenario: Scenario
    comment: str
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
    """Read and check everything that is asked for, before anything is computed or written.

    Raises `UserError` for what cannot be run as it is asked for, or whose results could not be written.
    """
    overrides = parse_overrides(options.set)
    scenarios: dict[str, tuple[Path, Scenario]] = {}
    for path in options.scenarios:
        scenario = read_scenario(path, overrides, notice=_print_notice)
        name = f"{path.stem}-quick" if options.quick and scenario.sweep else path.stem
        if name in scenarios:
            raise ScenarioError(
                f"{path}: its results would go to the same folder as those of {scenarios[name][0]}; "
                "rename one, or run them one by one with another --out"
            )
        scenarios[name] = path, scenario
    jobs = []
    for name, (path, scenario) in scenarios.items():
        if options.quick and scenario.sweep is not None:
            scenario = scenario.model_copy(update={"sweep": scenario.sweep.quick()})
        folder = result_folder(options.out, name, resolved(scenario), options.overwrite)
        if scenario.sweep is not None:
            BlockStore(options.out / BLOCKS).refuse_obstacles()
        try:
            with _data_warnings(path):
                problem, network, probes = build(scenario, path.parent)
                cells = theory_cells(scenario, path.parent)
        except ScenarioError as error:
            raise ScenarioError(f"{path}: {error}") from None
        chunk, needed = problem.samples_at_once(network), problem.pass_bytes(network)
        if chunk is not None and needed is not None:
            taken = f"a pass over all samples takes about {in_bytes(needed)} of memory"
            _print_notice(f"{path}: {taken}, so it is made in chunks of {chunk}")
        jobs.append(Job(path, name, scenario, header_comment(path), folder, problem, network, probes, cells))
    return jobs


def _print_notice(text: str) -> None:
    print_error(f"flowsim: {text}")


@contextmanager
def _data_warnings(path: Path) -> Iterator[None]:
    """Print each warning about the data of a scenario once, in one line; others are warned of as usual."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        yield
    for text in dict.fromkeys(str(one.message) for one in caught if one.category is DataWarning):
        _print_notice(f"{path}: data: {text}")
    for one in caught:
        if one.category is not DataWarning:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
