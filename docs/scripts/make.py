"""Write the pages and pictures that are made from code, results and notebooks into docs/, where git ignores them.

`mkdocs build` and `mkdocs serve` do so when they start. By hand, where one of those has changed since:

python docs/scripts/make.py
"""

from pathlib import Path
from typing import Any

import command_line
import gallery
import lecture
import paper
import pictures
import project
import scenario_keys
import theory

import benchmarks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAKERS = (pictures, scenario_keys, command_line, paper, theory, benchmarks, lecture, gallery, project)
ALL_MADE = ("gallery", "pictures")  # folders of docs/ that hold nothing else


def make() -> None:
    """Write what has changed, and remove what is no more from the folders in which everything is made."""
    try:
        contents = {name: content for maker in MAKERS for name, content in maker.made()}
    except ValueError as error:  # what a file lacks, in words
        raise SystemExit(str(error)) from error
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    pages = [name for name in contents if name.endswith(".md") and name.partition("/")[0] not in ALL_MADE]
    if wrong := [name for name in pages if f"/docs/{name}" not in ignored]:
        raise SystemExit(f"{', '.join(wrong)}: made, so git is to ignore it; write /docs/{wrong[0]} into .gitignore")
    for name, content in contents.items():
        written = content if isinstance(content, bytes) else content.encode()
        path = DOCS / name
        if not path.is_file() or path.read_bytes() != written:  # `mkdocs serve` builds anew for what is written
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(written)
    for path in [path for folder in ALL_MADE for path in (DOCS / folder).rglob("*") if path.is_file()]:
        if path.relative_to(DOCS).as_posix() not in contents:
            path.unlink()


def on_startup(**options: Any) -> None:
    """Make them for MkDocs, once before it reads docs/."""
    make()


if __name__ == "__main__":
    make()
