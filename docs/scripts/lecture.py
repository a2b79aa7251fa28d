"""Show the lecture's notebook as a page, with the outputs that are stored in it."""

from pathlib import Path

import mkdocs_gen_files
import nbformat
from nbconvert import MarkdownExporter

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lecture.ipynb"
NOTE = "\n*This page is `examples/lecture.ipynb`: open it in Jupyter to change the numbers.*\n"

body, resources = MarkdownExporter().from_notebook_node(nbformat.read(NOTEBOOK, as_version=4))
title, _, rest = body.partition("\n")
with mkdocs_gen_files.open("lecture.md", "w") as written:
    written.write(f"{title}\n{NOTE}{rest}")
for name, content in resources["outputs"].items():
    with mkdocs_gen_files.open(name, "wb") as picture:
        picture.write(content)
