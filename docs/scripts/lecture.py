"""Show the lecture's notebook as a page, with the outputs that are stored in it, and make the page that it embeds."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lecture.ipynb"
NOTE = (
    "\n*This page is `examples/lecture.ipynb`, [to download](gallery/files/examples/lecture.ipynb){ download }: "
    "open it in Jupyter to change the numbers.*\n"
)
SLIDER, TAG = "two_weights.html", "page"
"""The page that the notebook writes and embeds, and the tag of the cells that make it."""


def made() -> Iterator[tuple[str, str | bytes]]:
    """Yield the page, its pictures, and the page with the slider, which is computed in seconds."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    yield from shown(notebook)
    yield SLIDER, _slider(notebook)


def shown(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, str | bytes]]:
    """Yield the page and its pictures."""
    body, resources = MarkdownExporter().from_notebook_node(notebook, {"output_files_dir": "pictures/lecture"})
    title, _, rest = body.partition("\n")
    yield "lecture.md", f"{title}\n{NOTE}{rest}"
    yield from resources["outputs"].items()


def _slider(notebook: nbformat.NotebookNode) -> str:
    """Return what the cells with the tag write, run in a process of their own, as they configure JAX."""
    cells = [cell.source for cell in notebook.cells if TAG in cell.metadata.get("tags", ())]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", "\n".join(cells)], cwd=folder, check=True)
        return (Path(folder) / SLIDER).read_text(encoding="utf-8")
