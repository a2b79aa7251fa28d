"""Write the page of the paper's figures and claims from the summaries in results/paper."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "docs" / "scripts" / "paper.md"
VERDICTS = {True: "holds", False: "**fails**", None: "not measured"}


def made() -> Iterator[tuple[str, str]]:
    """Yield the page: its words, and for each figure the picture, its runs and its claims."""
    words = TEMPLATE.read_text(encoding="utf-8")
    folders = sorted((ROOT / "results" / "paper").glob("figure*"))
    summaries = {folder.name: json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder in folders}
    words = words.replace("{overview}", _overview(summaries))
    yield "results/paper.md", words + "".join(_figure(name, summary) for name, summary in summaries.items())


def _overview(summaries: dict[str, Any]) -> str:
    lines = ["| figure | runs | flows that converged or reached the risk asked for | claims |", "|---|---|---|---|"]
    for name, summary in summaries.items():
        rows = summary["sweep"]["rows"]
        flows = [row for row in rows if row["method"] == "GF"]
        ended = sum(round((row["converged"] + row["as_asked"]) * row["runs"]) for row in flows)
        lines.append(
            f"| [{name.removeprefix('figure')}](#{name.replace('figure', 'figure-')}) "
            f"| {sum(row['runs'] for row in rows)} | {ended} of {sum(row['runs'] for row in flows)} "
            f"| {_counts(summary['claims'])} |"
        )
    return "\n".join(lines)


def _counts(claims: list[dict[str, Any]]) -> str:
    counts = Counter(VERDICTS[claim["holds"]].strip("*") for claim in claims)
    return ", ".join(f"{counts[word]} {word.replace('holds', 'hold').replace('fails', 'fail')}" for word in counts)


def _figure(name: str, summary: dict[str, Any]) -> str:
    number = name.removeprefix("figure")
    lines = [f"\n## Figure {number}\n", f"![Figure {number}](../pictures/paper/{name}.png)\n"]
    lines += ["| what the figure is said to show | measured | verdict |", "|---|---|---|"]
    for claim in summary["claims"]:
        said = f"{claim['claim']}<br>*{claim['expected']}*"
        lines.append(f"| {_cell(said)} | {_cell(claim['measured'])} | {VERDICTS[claim['holds']]} |")
    return "\n".join(lines) + "\n"


def _cell(words: str) -> str:
    return words.replace("|", r"\|").replace("w*", r"w\*")
