"""How closely the edge flow follows gradient descent: distances from the centre of descent's oscillation.

    python benchmarks/edge.py [linear] [gelu] [--seeds 12] [--json edge.json]

For every seed and learning rate: descent, the gradient flow, and edge flows of order one and two, from one start, with
their distances at the end, t = 40 (30 for GELU); what the models cost, and the outcome of each at its own tolerance.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np

import flowsim
from flowsim.experiments import build, parse_overrides, read_scenario
from flowsim.models import Centres

SCENARIO = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
CASES = {
    "linear": {"rates": (0.06, 0.08, 0.1), "t1": 40.0, "sets": []},
    "gelu": {"rates": (0.03, 0.05, 0.07), "t1": 30.0, "sets": ["network.activation=gelu", "network.scale=0.6"]},
}
FOREVER = flowsim.Stopping(gradient_norm=None)


def one(sets: list[str], seed: int, rate: float, t1: float) -> dict:
    """Return the distances of one start at one learning rate."""
    overrides = parse_overrides([f"seed={seed}", *sets])
    problem, network, _ = build(read_scenario(SCENARIO, overrides), SCENARIO.parent)
    steps = round(t1 / rate) + 1
    descent = flowsim.descend(
        network, problem, learning_rate=rate, steps=steps, record_steps=np.arange(steps + 1), weights=True,
        stopping=FOREVER,
    )  # fmt: skip
    row = {"seed": seed, "learning_rate": rate, "steps": int(descent.steps), "descent": descent.outcome.name}
    centres = Centres.of(descent, rate)
    last = Centres(*(jax.tree.map(lambda leaf: leaf[-1:], part) for part in vars(centres).values()))
    swing = centres.amplitude[-60:]
    row["roughness"] = float(np.mean(np.abs(np.diff(swing))) / np.mean(swing))
    row["amplitude"] = float(centres.amplitude[-1])
    when = {"ts": last.times, "t1": float(last.times[0]), "weights": True, "stopping": FOREVER}
    models = {"flow": None, "edge 1": flowsim.EdgeFlow(rate, order=1), "edge 2": flowsim.EdgeFlow(rate)}
    for name, model in models.items():
        run = flowsim.integrate(network, problem, model=model, **when)
        row[name] = float(last.distances(run)[0])
        row[f"{name}: work"] = int(run.gradients + run.products)
    return row


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown, with the medians."""
    lines = ["| seed | η | GF | edge, order 1 | edge, order 2 | closer | roughness |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        numbers = " | ".join(f"{row[name]:.2g}" for name in ("flow", "edge 1", "edge 2"))
        closer = f"{row['flow'] / row['edge 2']:.1f}"
        lines.append(f"| {row['seed']} | {row['learning_rate']} | {numbers} | {closer} | {row['roughness']:.2f} |")
    for order in ("edge 1", "edge 2"):
        ratios = np.array([row["flow"] / row[order] for row in rows])
        lines.append(
            f"{order}: closer by a median of {np.median(ratios):.1f}, {ratios.min():.2f} to {ratios.max():.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the cases asked for, print their tables, and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all of them unless named")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = {}
    for name in asked.cases or CASES:
        case = CASES[name]
        rows = [one(case["sets"], seed, rate, case["t1"]) for rate in case["rates"] for seed in range(asked.seeds)]
        found[name] = rows
        print(f"## {name}\n\n{table(rows)}\n", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
