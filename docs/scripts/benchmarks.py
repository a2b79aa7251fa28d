"""Bring benchmarks/README.md into the site; its figures lie in `pictures/benchmarks`."""

from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parents[2] / "benchmarks" / "README.md"


def made() -> Iterator[tuple[str, str]]:
    """Yield the page."""
    yield "results/benchmarks.md", README.read_text(encoding="utf-8").replace("](figures/", "](../pictures/benchmarks/")
