"""Tables, summary, figures and page of stored results: after a run, and for `python -m flowsim report DIR …`."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..formatting.terminal import fitted, printable, utf8
from ..kinds import reason_of
from ..kinds.registry import look_in
from ..results import ResultFolder, StoreError, refuse_missing, refuse_obstacles, write_atomically
from ..runtime.errors import UserError, discard
from ..runtime.paths import user_path
from ..runtime.signals import ending_at_once
from .options import Subcommand

if TYPE_CHECKING:
    from ..report import Document


SIDE_BY_SIDE = "side_by_side"
"""The folder of the page of runs side by side, beside theirs."""


class Terminal(Console):
    """A console that falls silent once its output is closed.

    The results are files, and tables only tell of them: `python -m flowsim a.yaml b.yaml | head -1` computes and writes
    all that it was asked for, and its exit code says how that went.
    """

    def __init__(self) -> None:
        # What is printed comes from folders and files: nothing in it is an instruction.
        super().__init__(markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on, what is still to be flushed included."""
        self.quiet = True
        discard(sys.stdout)


def report(folder: ResultFolder, name: str, written: list[Path], console: Console, *, trust: bool = True) -> "Document":
    """Make the document of what is stored in `folder`, write it there, print it, and return it.

    `written` are further files to name at the end. What a scenario asks for that was just run is trusted.
    """
    with console.status(f"{name}: tables, figures and page"):
        from ..report import document  # not above: what only stores needs no Matplotlib
        from ..results import open_results

        made = document(open_results(folder.path, trust=trust), name)
        written = [*written, *made.write(folder)]
    for table in made.tables:
        console.print(fitted(table, console.width, [console.encoding]))
    for path in written:
        _print_line(console, f"wrote {printable(str(path))}")
    return made


def conclude(documents: "Sequence[Document]", console: Console, together: Path | None = None) -> int:
    """Return the exit code of several results, the worst one, and write a page with links to them.

    The page is written where all of them lie in one folder, as index.html there. `together` is the folder of the page
    that puts them side by side, if there is one: it is linked from the index where it lies beside the others.
    """
    worst = max(int(not document.complete) for document in documents)
    parent = _common_parent([document.results.folder for document in documents])
    if len(documents) == 1 or parent is None:
        return worst
    from ..report.page import MARK, Entry, heading, index_page
    from ..report.side_by_side import is_side_by_side

    path = parent / "index.html"
    if os.path.lexists(path) and not _begins_with(path, MARK):
        _print_line(console, f"left {printable(str(path))} as it is: it is not of flowsim")
        return worst
    entries = []
    for document in documents:
        # The figure that stands for the results: one of the scenario's, the sharpness, or whichever there is.
        sharpness = sorted((name for name in document.figures if name.endswith("sharpness")), key="sharpness".__ne__)
        asked = document.panels if document.results.asked_figures else ()
        figure = next(iter([*asked, *sharpness, *document.figures]), None)
        name = utf8(document.results.folder.resolve().name).decode()
        entries.append(Entry(name, document.complete, document.warnings, figure, heading(document.results)))
    kept = parent / SIDE_BY_SIDE  # of an earlier call
    together = kept if together is None and is_side_by_side(kept) else together
    beside = together.name if together is not None and together.resolve().parent == parent.resolve() else None
    write_atomically(path, lambda temporary: temporary.write_bytes(utf8(index_page(entries, beside))))
    _print_line(console, f"wrote {printable(str(path))}")
    return worst


def _begins_with(path: Path, mark: str, *, head: int = 2**12) -> bool:
    """Tell whether a mark is in the first bytes of a file, `False` for a pipe or a device, which may have no end."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return mark.encode() in file.read(head)


def _common_parent(folders: Sequence[Path]) -> Path | None:
    """Return the folder in which all of them lie, `None` where there is none."""
    return folders[0].parent if len({folder.resolve().parent for folder in folders}) == 1 else None


def _print_line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def report_stored(arguments: Sequence[str]) -> int:
    """Report the results in the folders that are named, nothing computed, and return the worst exit code.

    The runs of two folders or more are put side by side besides.
    """
    options = _parser().parse_args(arguments)
    for folder in dict.fromkeys(options.folders):  # before anything is written, all of them
        refuse_missing(folder)
        refuse_obstacles(folder)
    with ending_at_once():
        from ..report.side_by_side import is_side_by_side, refuse_foreign, refuse_repeated
        from ..results import open_results  # not above: it brings JAX

    refuse_repeated(options.folders)
    # As in results/*/, where an earlier call left one: it is made anew of the others.
    folders = [folder for folder in options.folders if not is_side_by_side(folder)] or options.folders
    with_runs = [folder for folder in folders if open_results(folder).trajectories is not None]
    if options.out is not None:
        if len(with_runs) < 2:
            raise StoreError(f"--out: is for the page of two folders or more with runs; found {len(with_runs)} of them")
        refuse_foreign(options.out)
    if options.trust:
        look_in(Path.cwd())
    console = Terminal()
    for folder in (folder for folder in options.folders if folder not in folders):
        _print_line(console, f"left out {printable(str(folder))}: it is a page of runs side by side")
    documents = [_report_folder(folder, options.trust) for folder in folders]
    if len(with_runs) < 2:
        if len(folders) > 1:
            _print_line(console, f"nothing is put side by side: of {len(folders)} folders {len(with_runs)} hold runs")
        return conclude(documents, console)
    return conclude(documents, console, _put_side_by_side(folders, options.out, console))


def _put_side_by_side(folders: Sequence[Path], out: Path | None, console: Console) -> Path | None:
    """Print what the runs in folders are side by side, write the page, and return its folder, `None` without one."""
    from ..report.side_by_side import refuse_foreign, side_by_side

    parent = _common_parent(folders)
    with _reported("the runs side by side"):
        made = side_by_side(*folders)
        for table in made.tables():
            console.print(fitted(table, console.width, [console.encoding]))
    if out is None and parent is not None:
        out = parent / SIDE_BY_SIDE
        try:
            if out.is_symlink():
                raise StoreError(f"{out}: is a link, and the page belongs here; remove it, or use --out")
            refuse_foreign(out)
        except StoreError as error:  # nobody asked for it
            _print_line(console, f"no page of the runs side by side: {printable(str(error))}")
            return None
    if out is None:
        _print_line(console, "no page of the runs side by side: the folders lie in several; say where with --out DIR")
        return None
    with _reported("the runs side by side"):
        for path in made.save(out):
            _print_line(console, f"wrote {printable(str(path))}")
    return out


def _report_folder(path: Path, trust: bool) -> "Document":
    folder = ResultFolder(path)
    with folder.locked(), _reported(str(path)):
        return report(folder, path.resolve().name, [], Terminal(), trust=trust)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Raise `StoreError` for what values raise that the checks of `open_results` let pass."""
    try:
        yield
    except UserError:
        raise
    except (ArithmeticError, LookupError, ValueError, RecursionError) as error:  # or an error of flowsim
        remedy = "run the scenario again; if this message stays, it is an error in flowsim: please report it"
        raise StoreError(f"{what}: cannot be reported ({reason_of(error)}); {remedy}") from error


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim report",
        description="Make tables, summary, figures and page once more from results that are stored, without computing. "
        "The runs of two folders or more are put side by side besides.",
        epilog="Exit codes: as of the run that left the results.",
    )
    made.add_argument(
        "folders", nargs="+", type=user_path, metavar="DIR", help="a folder of results, as results/residual"
    )
    made.add_argument(
        "--out",
        type=user_path,
        metavar="DIR",
        help="folder for the page of the runs side by side (default: side_by_side, in the folder that holds all DIR)",
    )
    made.add_argument(
        "--trust", action="store_true", help="import the modules of figures that are not flowsim's, which runs them"
    )
    return made


REPORT = Subcommand("report DIR ...", "tables, figures and page once more, from stored results", report_stored)
