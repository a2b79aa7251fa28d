"""Write the page of the theory from the condensed summaries in results/gallery/theory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "docs" / "scripts" / "theory.md"
PLURALS = {"holds": "hold", "fails": "fail"}


def made() -> Iterator[tuple[str, str]]:
    """Yield the page: its words, with a table in the place of each `{name of a scenario}`."""
    words = TEMPLATE.read_text(encoding="utf-8")
    for path in sorted((ROOT / "results" / "gallery" / "theory").glob("*.json")):
        place = f"{{{path.stem}}}"
        if words.count(place) != 1:
            raise ValueError(f"{TEMPLATE} must hold {place} once")
        words = words.replace(place, "\n".join(_lines(json.loads(path.read_text(encoding="utf-8")))))
    yield "results/theory.md", words


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if found["statements"]:
        yield f"{found['arrived']} of {found['flows']} flows converged.\n"
        yield "| statement | what it says | L | claimed smaller | claimed larger | margin | verdict |"
        yield "|---|---|---|---|---|---|---|"
        yield from map(_row, filter(_applies, found["statements"]))
    if found["lemma_3"]:
        cells = found["lemma_3"]
        yield f"{sum(cell['initializations'] for cell in cells)} initializations. The verdicts, over all u and s:\n"
        yield "| d | L | cells | most failures of a cell | holds | assumption not met | not applicable |"
        yield "|---|---|---|---|---|---|---|"
        yield from _lemma_3(cells)


def _applies(row: dict[str, Any]) -> bool:
    return set(row["verdicts"]) != {"not applicable"}


def _row(row: dict[str, Any]) -> str:
    numbers = (f"{row[side]:.4g}" if row[side] is not None else "" for side in ("smaller", "larger", "margin"))
    return f"| {row['name']} | {_cell(row['claim'])} | {row['depth']} | {' | '.join(numbers)} | {_verdicts(row)} |"


def _verdicts(row: dict[str, Any]) -> str:
    found = row["verdicts"]
    said = list(found) if sum(found.values()) == 1 else [f"{n} {PLURALS.get(word, word)}" for word, n in found.items()]
    return ", ".join(said)


def _lemma_3(cells: list[dict[str, Any]]) -> Iterator[str]:
    for width, depth in sorted({(cell["width"], cell["depth"]) for cell in cells}):
        here = [cell for cell in cells if (cell["width"], cell["depth"]) == (width, depth)]
        counts = [
            sum(cell["verdict"] == word for cell in here) for word in ("holds", "assumption not met", "not applicable")
        ]
        most = max(here, key=lambda cell: cell["failures"])
        failed = f"{most['failures']} of {most['initializations']}"
        yield f"| {width} | {depth} | {len(here)} | {failed} | {' | '.join(map(str, counts))} |"


def _cell(words: str) -> str:
    return words.replace("|", r"\|").replace("*", r"\*")
