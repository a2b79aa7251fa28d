"""Bring the stored figures into the site: `pictures/gallery/*.png`, `pictures/paper/figure*.png`."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "gallery": "results/gallery/*.png",
    "paper": "results/paper/*/figures/figure*.png",
    "benchmarks": "benchmarks/figures/*.png",
}


def made() -> Iterator[tuple[str, bytes]]:
    """Yield the pictures."""
    for folder, pattern in FOLDERS.items():
        for picture in sorted(ROOT.glob(pattern)):
            yield f"pictures/{folder}/{picture.name}", picture.read_bytes()
