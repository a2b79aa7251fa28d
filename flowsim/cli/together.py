"""What the results of one call have in common: the worst exit code, and a page that leads to all of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..formatting.terminal import printable
from ..results.store import write_atomically

if TYPE_CHECKING:
    from ..report import Document

INDEX = "index.html"


def conclude(made: "Sequence[Document]", console: Console) -> int:
    """Write a page that leads to several results in one folder into that, and return the exit code of all."""
    parents = {document.results.folder.resolve().parent for document in made}
    if len(made) > 1 and len(parents) == 1:
        _write_index(made, made[0].results.folder.parent / INDEX, console)
    return max(int(not document.complete) for document in made)


def _write_index(made: "Sequence[Document]", path: Path, console: Console) -> None:
    from ..report.page import MARK, Entry, index_page

    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        console.print(
            f"left {printable(str(path))} as it is: it is not of flowsim", soft_wrap=True, highlight=False, markup=False
        )
        return
    entries = (
        Entry(document.results.folder.resolve().name, document.complete, document.warnings, _shown(document))
        for document in made
    )
    text = index_page(list(entries))

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)
    console.print(f"wrote {printable(str(path))}", soft_wrap=True, highlight=False, markup=False)


def _shown(document: "Document") -> str | None:
    """Return which figure stands for the results: one that was asked for, the sharpness, or whichever there is."""
    wanted = [*document.panels, *(name for name in document.figures if name.endswith("sharpness")), *document.figures]
    return next(iter(wanted), None)
