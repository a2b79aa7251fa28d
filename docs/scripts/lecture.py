"""Show the lecture's notebook as a page, with the outputs that are stored in it."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lecture.ipynb"
NOTE = (
    "\n*This page is `examples/lecture.ipynb`, [to download](gallery/files/examples/lecture.ipynb){ download }: "
    "open it in Jupyter to change the numbers.*\n"
)


def made() -> Iterator[tuple[str, str | bytes]]:
    """Yield the page and its pictures."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    body, resources = MarkdownExporter().from_notebook_node(notebook, {"output_files_dir": "pictures/lecture"})
    title, _, rest = body.partition("\n")
    yield "lecture.md", f"{title}\n{NOTE}{rest}"
    yield from resources["outputs"].items()
