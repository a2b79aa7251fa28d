"""Bring CONTRIBUTING.md and CHANGELOG.md into the site, as they stand."""

from pathlib import Path

import mkdocs_gen_files

ROOT = Path(__file__).parents[2]

for name in ("CONTRIBUTING", "CHANGELOG"):
    with mkdocs_gen_files.open(f"{name.lower()}.md", "w") as copy:
        copy.write((ROOT / f"{name}.md").read_text(encoding="utf-8"))
