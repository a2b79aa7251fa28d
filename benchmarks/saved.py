"""The tables of a benchmark, kept as JSON in `benchmarks/results/` and written in Markdown."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


class Saved:
    """What one benchmark measured: its command, the machine, and its tables, one after the other."""

    def __init__(self, name: str, command: str, machine: str):
        self._file = RESULTS / f"{name}.json"
        self._kept = {"command": command, "machine": machine, "tables": []}

    def add(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Keep one more table, or a longer one of the same title, in the file."""
        earlier = [table for table in self._kept["tables"] if table["title"] != title]
        self._kept["tables"] = [*earlier, {"title": title, "columns": list(columns), "rows": rows}]
        self._file.parent.mkdir(exist_ok=True)
        text = json.dumps(self._kept, indent=1, ensure_ascii=False, default=lambda number: number.item())
        self._file.write_text(text + "\n", encoding="utf-8")


def read(name: str) -> dict:
    """Return what the benchmark of that name kept. Raises `FileNotFoundError` where nothing is kept."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown; numbers with two or three digits."""
    cells = [list(columns), *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e4 or not math.isfinite(value):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
