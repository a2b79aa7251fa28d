"""Condense the theory in folders of results to what its page shows, for git: results/gallery/theory/*.json.

    python -m flowsim scenarios/theory_small_scale.yaml ... --out results
    python docs/scripts/condense_theory.py results/theory_small_scale ...

A summary has every statement on every flow, megabytes of them; here each has a row for a depth, where it is tightest.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[2] / "results" / "gallery" / "theory"


def condensed(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the flows, a row for every statement and depth, and Lemma 3's cells."""
    found = summary["theory"]
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for flow in found["flows"]:
        for statement in flow["statements"]:
            groups.setdefault((statement["name"], flow["depth"]), []).append(statement)
    for statement in found["convergence"]:
        groups.setdefault((statement["name"], statement["depth"]), []).append(statement)
    rows = [{"depth": depth, **_row(group)} for (_, depth), group in groups.items()]
    arrived = sum(flow["outcome"] == "CONVERGED" for flow in found["flows"])
    return {"flows": len(found["flows"]), "arrived": arrived, "statements": rows, "lemma_3": found["lemma_3"]}


def _row(group: list[dict[str, Any]]) -> dict[str, Any]:
    judged = [one for one in group if one["margin"] is not None]
    tightest = min(judged, key=lambda one: one["margin"]) if judged else max(group, key=lambda one: one["smaller"] or 0)
    unmet = [f"{one['name']}: {one['found']}" for one in tightest["assumptions"] if one["met"] is False]
    shown = {key: tightest[key] for key in ("name", "claim", "smaller", "larger", "margin", "note")}
    return {**shown, "verdicts": Counter(one["verdict"] for one in group), "unmet": unmet}


if __name__ == "__main__":
    KEPT.mkdir(parents=True, exist_ok=True)
    for folder in map(Path, sys.argv[1:]):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        text = json.dumps(condensed(summary), indent=1, ensure_ascii=False)
        (KEPT / f"{folder.name}.json").write_text(text + "\n", encoding="utf-8")
