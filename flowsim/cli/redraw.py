"""`python -m flowsim report DIR …`: tables, summary and figures once more, from what is stored."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..experiments import ResultFolder, open_results, refuse_obstacles
from .findings import report
from .run import Terminal

WORD = "report"


def redraw(words: Sequence[str]) -> int:
    """Redraw the results in the folders that `words` name, nothing computed, and return the worst exit code."""
    folders = _parser().parse_args(words).folders
    for folder in folders:  # before anything is written, all of them
        open_results(folder)
        refuse_obstacles(folder)
    return max([_redrawn(folder) for folder in folders])


def _redrawn(path: Path) -> int:
    folder = ResultFolder(path)
    with folder.locked():
        return report(folder, path.resolve().name, [], Terminal())


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"python -m flowsim {WORD}",
        description="Make tables, summary and figures once more from results that are stored, without computing.",
        epilog="Exit codes: as of the run that left the results.",
    )
    made.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder of results, as results/residual")
    return made
