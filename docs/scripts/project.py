"""Bring CONTRIBUTING.md and CHANGELOG.md into the site, as they stand."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def made() -> Iterator[tuple[str, str]]:
    """Yield both pages."""
    for name in ("CONTRIBUTING", "CHANGELOG"):
        yield f"{name.lower()}.md", (ROOT / f"{name}.md").read_text(encoding="utf-8")
