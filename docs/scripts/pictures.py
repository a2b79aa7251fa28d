"""Bring the stored figures into the site: `pictures/gallery/*.png`, `pictures/paper/figure*.png`."""

from pathlib import Path

import mkdocs_gen_files

ROOT = Path(__file__).parents[2]

for picture in sorted(ROOT.glob("results/gallery/*.png")):
    with mkdocs_gen_files.open(f"pictures/gallery/{picture.name}", "wb") as copy:
        copy.write(picture.read_bytes())
for picture in sorted(ROOT.glob("results/paper/*/figures/figure*.png")):
    with mkdocs_gen_files.open(f"pictures/paper/{picture.name}", "wb") as copy:
        copy.write(picture.read_bytes())
for picture in sorted(ROOT.glob("benchmarks/figures/*.png")):
    with mkdocs_gen_files.open(f"pictures/benchmarks/{picture.name}", "wb") as copy:
        copy.write(picture.read_bytes())
