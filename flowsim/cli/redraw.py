"""`python -m flowsim report DIR …`: tables, summary, figures and page once more, from what is stored."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..data import DataError
from ..results import ResultFolder, StoreError, open_results, refuse_obstacles
from ..scenarios import ScenarioError
from .findings import report
from .run import Terminal
from .together import conclude
from .word import Word

if TYPE_CHECKING:
    from ..report import Document


def redraw(words: Sequence[str]) -> int:
    """Redraw the results in the folders that `words` name, nothing computed, and return the worst exit code."""
    options = _parser().parse_args(words)
    for folder in options.folders:  # before anything is written, all of them
        if folder.is_dir():
            refuse_obstacles(folder)
        open_results(folder)
    return conclude([_redrawn(folder, options.trust) for folder in options.folders], Terminal())


def _redrawn(path: Path, trust: bool) -> "Document":
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


REPORT = Word("report DIR ...", "tables, figures and page once more, from stored results", redraw)
