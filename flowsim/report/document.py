"""Stored results become a document: tables to print, numbers, figures and a page to write. Nothing computes a run."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import xarray
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from rich.text import Text

from ..comparison import edge_statements
from ..formatting.html import as_html
from ..formatting.terminal import printable
from ..kinds import UnknownKindError
from ..results import (
    Figure as AskedFigure,
    ResultFolder,
    Results,
    StoreError,
    figures_of,
    open_results,
    refuse_obstacles,
    theory_from_dataset,
)
from ..results.reading import read_bytes
from ..results.store import PAGE, SCENARIO, SUMMARY, SWEEP, THEORY, TRAJECTORIES, netcdf
from ..scenarios.runner import failing
from ..sweeps.store import sweep_folder
from ..tables import (
    claims_summary,
    claims_table,
    ended_as_expected,
    summary as trajectories_summary,
    tables,
    warnings_of_claims,
    warnings_of_runs,
)
from ..theory import Claim
from .figures import figures as trajectories_figures, pictures, sweep_figures, theory_figures
from .sweeps import runs, sweep_summary, sweep_tables, warnings_of_sweep
from .theory_table import theory_summary, theory_tables, warnings_of_theory


@dataclass(frozen=True)
class Document:
    """What is made of stored results."""

    results: Results
    """The results."""
    title: str
    """What stands above the tables."""
    tables: tuple[Any, ...]
    """Tables and texts for the terminal."""
    summary: dict[str, Any]
    """The numbers, in the types of JSON."""
    draw: Callable[[], dict[str, Figure]]
    """Draws the figures, by name."""
    panels: dict[str, str]
    """The figures that the page shows as they are, with alternative text."""
    warnings: tuple[str, ...]
    """Sentences about what did not converge, or does not hold."""
    complete: bool
    """Whether the flows reached their limits, no statement fails, and every cell of a sweep was computed."""

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures by name, drawn when first read. Raises `StoreError` where one lacks a data set."""
        return self.draw()

    def write(self, folder: ResultFolder) -> list[Path]:
        """Write summary, figures and the page, and return their paths. Raises `StoreError` as the folder does."""
        from .page import page  # not above: it takes a moment to import

        figures = self.figures  # before anything is written
        paths = [folder.write_summary(self.summary)]
        drawn = {name: folder.write_figure(name, figure) for name, figure in figures.items()}
        paths += [path for both in drawn.values() for path in both]
        shown = {name: words for name, words in self.panels.items() if name in drawn}
        panels = [(name, drawn[name][0].read_bytes(), words, _has_map(figures[name])) for name, words in shown.items()]
        said = {"tables": [as_html(self.tables)], "warnings": self.warnings, "complete": self.complete}
        return [*paths, folder.write(PAGE, page(self.results, self.title, panels=panels, **said))]


@dataclass(frozen=True)
class _Part:
    """What one data set gives to a document; `complaints` stand below all tables, `panels` are as of `Document`."""

    tables: tuple[Any, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    figures: Callable[[], dict[str, Figure]] = dict
    panels: dict[str, str] = field(default_factory=dict)
    complaints: tuple[Text, ...] = ()
    warnings: tuple[str, ...] = ()
    complete: bool = True
    drawn_as_asked: bool = False


def document(results: Results, title: str) -> Document:
    """Return the document of stored results, with the figures that their scenario asks for.

    Args:
        results: The results.
        title: What stands above the tables.

    Returns:
        The tables, the summary and the figures.

    Raises:
        StoreError: Where a figure is asked for that is not there, or whose claims lack a data set.
    """
    try:
        asked = figures_of(results.asked_figures)
    except UnknownKindError as error:
        raise StoreError(f"{results.folder / SCENARIO}: figure: {error}") from None
    claims = [claim for figure in asked for claim in _claimed(figure, results)]
    judged = [claims_table(claims, title=f"{title}: what is said, and what was measured")] if claims else []
    left_out = [
        f"The figure {printable(name)} is left out: it is code of another module, which may do anything. If you trust "
        "whoever wrote it: python -m flowsim report --trust, or flowsim.open_results(folder, trust=True)"
        for name in results.left_out
    ]
    parts = list(_parts(results, title))
    summary: dict[str, Any] = {}
    panels = {figure.name: _in_words(figure, claims) for figure in asked}
    for part in parts:
        summary |= part.summary
        panels |= part.panels

    def draw() -> dict[str, Figure]:
        # Drawn as it was asked for, a sweep needs no other figures.
        wanted = [part for part in parts if not (part.drawn_as_asked and asked)]
        made = {name: figure for part in wanted for name, figure in part.figures().items()}
        return made | {figure.name: _drawn(figure, results) for figure in asked}

    tables = [table for part in parts for table in part.tables]
    complaints = [complaint for part in parts for complaint in part.complaints]
    warnings = [words for part in parts for words in part.warnings]
    return Document(
        results,
        title,
        tables=(*tables, *judged, *complaints, *map(Text, left_out)),
        summary=summary | ({"claims": claims_summary(claims)} if claims else {}),
        draw=draw,
        panels=panels,
        warnings=(*left_out, *warnings, *warnings_of_claims(claims)),
        complete=all(part.complete for part in parts),
    )


def _has_map(figure: Figure) -> bool:
    """Tell whether colours in a figure stand for numbers."""
    return bool(figure.findobj(lambda part: isinstance(part, ScalarMappable) and part.get_array() is not None))


def _claimed(figure: AskedFigure, results: Results) -> Sequence[Claim]:
    with failing(f"the figure {figure.name}, where its claims are checked,"):
        found = figure.claims(results)
        return [claim.at_first_look() for claim in found] if results.is_first_look else found


def _in_words(figure: AskedFigure, claims: Sequence[Claim]) -> str:
    """Return what a figure shows: what its class says of itself, and the claims about it, which stand in the table."""
    said = (inspect.getdoc(type(figure)) or figure.name).splitlines()[0]
    return said + (f" Its {len(claims)} claims, with what was measured, stand in the table above." if claims else "")


def _drawn(figure: AskedFigure, results: Results) -> Figure:
    with failing(f"the figure {figure.name}, where it is drawn,"):
        drawn = figure.draw(results)
        if not isinstance(drawn, Figure):
            raise TypeError(f"draw returns a {type(drawn).__name__}: expected a figure of Matplotlib")
    return drawn


def _parts(results: Results, title: str) -> Iterator[_Part]:
    """Yield what each of the data sets gives: runs from one initialization, statements of the theory, and a sweep."""
    if (found := results.trajectories) is not None:
        stated = edge_statements(found)
        yield _Part(
            tables=tables(found, title, stated),
            summary=trajectories_summary(found, stated),
            figures=partial(trajectories_figures, found),
            panels=pictures(found),
            warnings=tuple(warnings_of_runs(found, stated)),
            complete=ended_as_expected(found, stated),
        )
    if results.theory is None:
        yield _Part(summary={"theory": None})
    else:
        theory = theory_from_dataset(results.theory)
        yield _Part(
            tables=tuple(theory_tables(theory, title)),
            summary={"theory": theory_summary(theory)},
            figures=partial(theory_figures, theory),
            warnings=tuple(warnings_of_theory(theory)),
            complete=not theory.failed,
        )
    if (swept := results.sweep) is not None:
        lacking = tuple(warnings_of_sweep(swept))
        yield _Part(
            tables=sweep_tables(swept, title),
            summary={"sweep": sweep_summary(swept) | {"failures": runs.failures(swept)}},
            figures=lambda: {f"sweep_{name}": figure for name, figure in sweep_figures(swept).items()},
            complaints=tuple(map(Text, lacking)),
            warnings=lacking,
            complete=not lacking,
            drawn_as_asked=True,
        )


def sweep_shown(dataset: xarray.Dataset, title: str) -> tuple[Any, ...]:
    """Return the tables of a sweep, and what it lacks, as they are printed.

    Args:
        dataset: The data set of the sweep.
        title: What stands above them.

    Returns:
        Tables and texts, in their order.
    """
    return (*sweep_tables(dataset, title), *map(Text, warnings_of_sweep(dataset)))


def save(dataset: xarray.Dataset, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a data set of trajectories with its summary and figures into a folder.

    Args:
        dataset: The data set, as `Comparison.to_dataset` returns it.
        folder: The folder, which comes into being with the first file.
        overwrite: Whether other results that it holds are replaced.

    Returns:
        The paths of the files.

    Raises:
        StoreError: Where the folder holds other results, unless `overwrite`, and where it cannot be written.
    """
    refuse_obstacles(folder)
    here = ResultFolder(folder, lambda: _others(folder, bytes(netcdf(dataset)), overwrite))
    with here.locked():
        written = [here.write_dataset(dataset)]
        return written + document(open_results(folder), folder.resolve().name).write(here)


def _others(folder: Path, content: bytes, overwrite: bool) -> list[Path]:
    """Return the files of other results; refuse them without `overwrite`."""
    stored = folder / TRAJECTORIES
    others = [path for path in (folder / name for name in (SCENARIO, SUMMARY, SWEEP, THEORY)) if path.exists()]
    if not stored.exists() or read_bytes(stored) != content:
        others += [stored] if stored.exists() else []
    elif others == [folder / SUMMARY]:
        return []
    if others and not overwrite:
        raise StoreError(f"{folder}: holds other results; write overwrite=True, or give another folder")
    return others


def save_sweep(dataset: xarray.Dataset, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the data set of a sweep from Python with its summary and figures into a folder.

    Args:
        dataset: The data set, as `Sweep.to_dataset` returns it.
        folder: The folder, which comes into being with the first file.
        overwrite: Whether other results that it holds are replaced.

    Returns:
        The paths of the files.

    Raises:
        StoreError: Where the folder holds other results, unless `overwrite`, and where it cannot be written.
    """
    with sweep_folder(folder, dataset.attrs, overwrite=overwrite) as here:
        return write_sweep(dataset, here)


def write_sweep(dataset: xarray.Dataset, here: ResultFolder) -> list[Path]:
    """Write the data set of a sweep from Python with its summary and figures into a folder that is held for it."""
    written = [here.write_dataset(dataset, SWEEP)]
    return written + document(open_results(here.path), here.path.resolve().name).write(here)
