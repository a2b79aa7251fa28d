"""`python -m flowsim report DIR …`: tables, summary, figures and page once more, from what is stored."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..experiments import ResultFolder, open_results, refuse_obstacles
from .findings import report
from .run import Terminal
from .together import conclude
from .word import Word

if TYPE_CHECKING:
    from ..report import Document


def redraw(words: Sequence[str]) -> int:
    """Redraw the results in the folders that `words` name, nothing computed, and return the worst exit code."""
    folders = _parser().parse_args(words).folders
    for folder in folders:  # before anything is written, all of them
        open_results(folder)
        refuse_obstacles(folder)
    return conclude([_redrawn(folder) for folder in folders], Terminal())


def _redrawn(path: Path) -> "Document":
    folder = ResultFolder(path)
    with folder.locked():
        return report(folder, path.resolve().name, [], Terminal())


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m flowsim report",
        description="Make tables, summary, figures and page once more from results that are stored, without computing.",
        epilog="Exit codes: as of the run that left the results.",
    )
    made.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder of results, as results/residual")
    return made


REPORT = Word("report DIR ...", "tables, figures and page once more, from stored results", redraw)
