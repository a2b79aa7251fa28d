"""Bring benchmarks/README.md into the site; its figures lie in `pictures/benchmarks`."""

from pathlib import Path

import mkdocs_gen_files

README = Path(__file__).parents[2] / "benchmarks" / "README.md"

with mkdocs_gen_files.open("results/benchmarks.md", "w") as written:
    written.write(README.read_text(encoding="utf-8").replace("](figures/", "](../pictures/benchmarks/"))
