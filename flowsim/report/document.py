"""Stored results become a document: tables to print, numbers and figures to write. Nothing here computes a run."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray
from matplotlib.figure import Figure
from rich.text import Text

from ..experiments import (
    Figure as AskedFigure,
    ResultFolder,
    Results,
    StoreError,
    difference,
    figures_of,
    open_results,
    refuse_obstacles,
    theory_from_dataset,
)
from ..experiments.failing import failing
from ..experiments.store import SCENARIO, SUMMARY, SWEEP, THEORY, TRAJECTORIES
from ..kinds import UnknownKindError
from ..recorded import recorded
from ..theory import Claim
from .claims_table import claims_summary, claims_table
from .figures import figures as trajectories_figures
from .statements_table import any_fails
from .sweeps import runs, sweep_figures, sweep_summary, sweep_tables
from .table import summary as trajectories_summary, tables
from .theory_figures import theory_figures
from .theory_table import theory_summary, theory_tables

_MOST_FAILURES = 10


@dataclass(frozen=True)
class Document:
    """What is made of stored results: tables for the terminal, the summary, figures by name.

    `complete` tells whether everything arrived where it should: the flows at their limits, the statements at no
    failure, and every cell of a sweep at an end.
    """

    tables: tuple[Any, ...]
    summary: dict[str, Any]
    figures: dict[str, Figure]
    complete: bool

    def write(self, folder: ResultFolder) -> list[Path]:
        """Write summary and figures, and return their paths. Raises `StoreError` as the folder does."""
        paths = [folder.write_summary(self.summary)]
        for name, figure in self.figures.items():
            paths.extend(folder.write_figure(name, figure))
        return paths


@dataclass(frozen=True)
class _Part:
    """What one data set gives to a document; `complaints` stand below all tables."""

    tables: tuple[Any, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    complaints: tuple[Text, ...] = ()
    complete: bool = True


def document(results: Results, title: str) -> Document:
    """Return the document of `results`, with the figures that their scenario asks for.

    Raises `StoreError` where a figure is asked for that is not there, or lacks a data set.
    """
    asked = _asked(results)
    claims = [claim for figure in asked for claim in _claimed(figure, results)]
    # Drawn as it was asked for, a sweep needs no other figures.
    parts = [_of_trajectories(results, title), _of_theory(results, title), _of_sweep(results, title, drawn=not asked)]
    summary: dict[str, Any] = {}
    figures = {}
    for part in parts:
        summary |= part.summary
        figures |= part.figures
    judged = [claims_table(claims, title=f"{title}: what is said, and what was measured")] if claims else []
    return Document(
        tables=(
            *(table for part in parts for table in part.tables),
            *judged,
            *(complaint for part in parts for complaint in part.complaints),
        ),
        summary=summary | ({"claims": claims_summary(claims)} if claims else {}),
        figures=figures | {figure.name: _drawn(figure, results) for figure in asked},
        complete=all(part.complete for part in parts),
    )


def _claimed(figure: AskedFigure, results: Results) -> Sequence[Claim]:
    with failing(f"the figure {figure.name}, where its claims are checked,"):
        return figure.claims(results)


def _drawn(figure: AskedFigure, results: Results) -> Figure:
    with failing(f"the figure {figure.name}, where it is drawn,"):
        drawn = figure.draw(results)
        if not isinstance(drawn, Figure):
            raise TypeError(f"draw returns a {type(drawn).__name__}: expected a figure of Matplotlib")
    return drawn


def _asked(results: Results) -> tuple[AskedFigure, ...]:
    names = results.scenario.get("figure")
    try:
        return figures_of([names] if isinstance(names, str) else names)
    except UnknownKindError as error:
        raise StoreError(f"{results.folder / SCENARIO}: figure: {error}") from None


def _of_trajectories(results: Results, title: str) -> _Part:
    found = results.trajectories
    if found is None:
        return _Part()
    complete = recorded(found).flow.outcome.arrived and not any_fails(found)
    return _Part(tables(found, title), trajectories_summary(found), trajectories_figures(found), complete=complete)


def _of_theory(results: Results, title: str) -> _Part:
    if results.theory is None:
        return _Part(summary={"theory": None})
    found = theory_from_dataset(results.theory)
    tables, figures = theory_tables(found, title), theory_figures(found)
    return _Part(tuple(tables), {"theory": theory_summary(found)}, figures, complete=not found.failed)


def _of_sweep(results: Results, title: str, *, drawn: bool) -> _Part:
    found = results.sweep
    if found is None:
        return _Part()
    figures = {f"sweep_{name}": figure for name, figure in sweep_figures(found).items()} if drawn else {}
    failures, unconverged = runs.failures(found), runs.unconverged(found)
    return _Part(
        tables=sweep_tables(found, title),
        summary={"sweep": sweep_summary(found) | {"failures": failures}},
        figures=figures,
        complaints=tuple(_complaints(failures, unconverged)),
        complete=not failures and not unconverged,
    )


def _complaints(failures: list[dict[str, str]], unconverged: int) -> Iterator[Text]:
    """Say what a sweep lacks."""
    for failure in failures[:_MOST_FAILURES]:
        yield Text(f"failed: {failure['cell']}: {failure['message']}")
    if (more := len(failures) - _MOST_FAILURES) > 0:
        yield Text(f"failed: {more} more, which are in summary.json")
    if unconverged:
        yield Text(f"{unconverged} flows did not reach their limit")


def sweep_shown(dataset: xarray.Dataset, title: str) -> tuple[Any, ...]:
    """Return the tables of a sweep, and what it lacks, as they are printed."""
    complaints = _complaints(runs.failures(dataset), runs.unconverged(dataset))
    return (*sweep_tables(dataset, title), *complaints)


def save(dataset: xarray.Dataset, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a data set of trajectories with its summary and figures into `folder`, and return the paths.

    Raises `StoreError` where `folder` holds other results, unless `overwrite`, and where it cannot be written.
    """
    refuse_obstacles(folder)
    with ResultFolder(folder).locked():
        here = ResultFolder(folder, _others(folder, bytes(dataset.to_netcdf(engine="h5netcdf")), overwrite))
        written = [here.write_dataset(dataset)]
        return written + document(open_results(folder), folder.resolve().name).write(here)


def _others(folder: Path, content: bytes, overwrite: bool) -> list[Path]:
    """Return the files of other results; refuse them without `overwrite`."""
    stored = folder / TRAJECTORIES
    others = [path for path in (folder / name for name in (SCENARIO, SUMMARY, SWEEP, THEORY)) if path.exists()]
    if not stored.exists() or stored.read_bytes() != content:
        others += [stored] if stored.exists() else []
    elif others == [folder / SUMMARY]:
        return []
    if others and not overwrite:
        raise StoreError(f"{folder}: holds other results; write overwrite=True, or give another folder")
    return others


def save_sweep(dataset: xarray.Dataset, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the data set of a sweep from Python with its summary and figures into `folder`, and return the paths.

    Raises `StoreError` where `folder` holds other results, unless `overwrite`, and where it cannot be written.
    """
    with sweep_folder(folder, dataset.attrs, overwrite=overwrite) as write:
        return write(dataset)


@contextmanager
def sweep_folder(
    folder: Path, attrs: Mapping[str, str], *, overwrite: bool = False
) -> Iterator[Callable[[xarray.Dataset], list[Path]]]:
    """Keep a folder for the sweep that `attrs` describe, and provide what writes its data set, summary and figures.

    Raises `StoreError` where `folder` holds other results than a part of that sweep, unless `overwrite`, and where it
    cannot be written.
    """
    refuse_obstacles(folder)
    with ResultFolder(folder).locked():
        here = ResultFolder(folder, _beside_sweep(folder, json.loads(attrs["sweep"]), overwrite))

        def write(dataset: xarray.Dataset) -> list[Path]:
            written = [here.write_dataset(dataset, SWEEP)]
            return written + document(open_results(folder), folder.resolve().name).write(here)

        yield write


def _beside_sweep(folder: Path, asked: dict[str, Any], overwrite: bool) -> list[Path]:
    """Return the files in `folder` that are not of the sweep `asked` for; refuse them without `overwrite`."""
    others = [path for path in (folder / name for name in (SCENARIO, TRAJECTORIES, THEORY)) if path.exists()]
    found = f"{others[0].name} is there" if others else None
    if (folder / SWEEP).exists():
        others.append(folder / SWEEP)
        found = found or (None if overwrite else _unlike(open_results(folder).required("sweep"), asked))
    if found is None and not overwrite:
        return []
    if not overwrite:
        raise StoreError(f"{folder}: holds other results ({found}); write overwrite=True, or give another folder")
    return others


def _unlike(stored: xarray.Dataset, asked: dict[str, Any]) -> str | None:
    """Return in words how a stored sweep differs from one that is asked for, None where it is a part of that."""
    there = json.loads(stored.attrs.get("sweep", "null"))
    if there is None:
        return "the sweep of a scenario"
    here = json.loads(json.dumps(asked))
    for name, values in there["over"].items():
        if name in here["over"] and all(value in here["over"][name] for value in values):
            here["over"][name] = values
    if here["repetitions"] > there["repetitions"]:
        here["repetitions"] = there["repetitions"]
    return difference(there, here, "the sweep")
