"""Tables, summary, figures and page of what is stored: after a run, and for `python -m flowsim report DIR …`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..data import DataError
from ..formatting.terminal import fitted, printable
from ..results import ResultFolder, StoreError, open_results, refuse_obstacles, write_atomically
from ..scenarios import ScenarioError
from .options import Subcommand
from .terminal import Terminal

if TYPE_CHECKING:
    from ..report import Document


def report(folder: ResultFolder, name: str, written: list[Path], console: Console, *, trust: bool = True) -> "Document":
    """Make the document of what is stored in `folder`, write it there, print it, and return it.

    `written` are further files to name at the end. What a scenario asks for that was just run is trusted.
    """
    with console.status(f"{name}: tables, figures and page"):
        from ..report import document  # not above: what only stores needs no Matplotlib

        made = document(open_results(folder.path, trust=trust), name)
        written = [*written, *made.write(folder)]
    for table in made.tables:
        console.print(fitted(table, console.width))
    for path in written:
        _print_line(console, f"wrote {printable(str(path))}")
    return made


def conclude(documents: "Sequence[Document]", console: Console) -> int:
    """Return the exit code of several results, the worst one, and write a page with links to them.

    The page is written where all of them lie in one folder, as index.html there.
    """
    parents = {document.results.folder.resolve().parent for document in documents}
    if len(documents) > 1 and len(parents) == 1:
        _write_index(documents, documents[0].results.folder.parent / "index.html", console)
    return max(int(not document.complete) for document in documents)


def _write_index(documents: "Sequence[Document]", path: Path, console: Console) -> None:
    from ..report.page import MARK, Entry, index_page

    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        _print_line(console, f"left {printable(str(path))} as it is: it is not of flowsim")
        return
    entries = [
        Entry(document.results.folder.resolve().name, document.complete, document.warnings, _main_figure(document))
        for document in documents
    ]

    def write(temporary: Path) -> None:
        temporary.write_text(index_page(entries), encoding="utf-8")

    write_atomically(path, write)
    _print_line(console, f"wrote {printable(str(path))}")


def _main_figure(document: "Document") -> str | None:
    """Return which figure stands for the results: one that was asked for, the sharpness, or whichever there is."""
    wanted = [*document.panels, *(name for name in document.figures if name.endswith("sharpness")), *document.figures]
    return next(iter(wanted), None)


def _print_line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def report_stored(arguments: Sequence[str]) -> int:
    """Report the results in the folders that are named, nothing computed, and return the worst exit code."""
    options = _parser().parse_args(arguments)
    for folder in options.folders:  # before anything is written, all of them
        if folder.is_dir():
            refuse_obstacles(folder)
        open_results(folder)
    return conclude([_report_folder(folder, options.trust) for folder in options.folders], Terminal())


def _report_folder(path: Path, trust: bool) -> "Document":
    folder = ResultFolder(path)
    with folder.locked():
        try:
            return report(folder, path.resolve().name, [], Terminal(), trust=trust)
        except (ScenarioError, DataError):
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise StoreError(f"{path}: holds what flowsim does not write ({reason}); run the scenario again") from error


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim report",
        description="Make tables, summary, figures and page once more from results that are stored, without computing.",
        epilog="Exit codes: as of the run that left the results.",
    )
    made.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder of results, as results/residual")
    made.add_argument(
        "--trust", action="store_true", help="import the modules of figures that are not flowsim's, which runs them"
    )
    return made


REPORT = Subcommand("report DIR ...", "tables, figures and page once more, from stored results", report_stored)
