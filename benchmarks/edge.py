"""How closely models of descent follow it: distances, sharpness, oscillation and mean risk, over seeds and rates.

    python benchmarks/edge.py [linear] [gelu] [digits] [--seeds 12] [--json edge.json] [--show]

For every seed and learning rate: descent, the gradient flow, the central flow and edge flows of order one and two,
from one start, at one time. Distances are from the centre of descent's oscillation (`flowsim.models`). Sharpness S,
amplitude √tr Σ and the mean excess risk over the oscillation are those at the centre, of descent as measured; the risk
itself where no infimum is known. The roughness is by how much an amplitude differs from the next, in the mean: descent
of period two has nearly none. With `--json` each run is kept as soon as it is there, and is not made a second time.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import flowsim
from flowsim.experiments import build, parse_overrides, read_scenario
from flowsim.models import Centres
from flowsim.networks import split

SCENARIOS = Path(__file__).parents[1] / "scenarios"
CASES = {
    "linear": {"scenario": "edge_of_stability.yaml", "rates": (0.06, 0.08, 0.1), "t1": 40.0, "sets": []},
    "gelu": {
        "scenario": "edge_of_stability.yaml",
        "rates": (0.03, 0.05, 0.07),
        "t1": 30.0,
        "sets": ["network.activation=gelu", "network.scale=0.6"],
    },
    "digits": {
        "scenario": "digits.yaml",
        "rates": (0.06, 0.08, 0.1),
        "t1": 100.0,
        "sets": ["precision=float64", "network.scale=0.5"],
    },
}
MODELS = {
    "GF": lambda rate: None,
    "central": lambda rate: flowsim.CentralFlow(rate, most=6),
    "edge 1": lambda rate: flowsim.EdgeFlow(rate, order=1),
    "edge 2": flowsim.EdgeFlow,
}
# By how far the gradient flow goes beyond the edge: not at all, as far as models hold (below), and farther.
REACHES = (0.0, 2.0, 4.5, np.inf)
LAST, ROUNDING = 60, 1e-9
FOREVER = flowsim.Stopping(gradient_norm=None)
PROBES = [flowsim.probes.Oscillation(), flowsim.probes.MeanRisk()]


def one(case: dict, seed: int, rate: float) -> dict:
    """Return what is measured from one start at one learning rate."""
    file = SCENARIOS / case["scenario"]
    problem, network, _ = build(read_scenario(file, parse_overrides([f"seed={seed}", *case["sets"]])), file.parent)
    infimum = float(problem.infimum)
    steps = round(case["t1"] / rate) + 1
    records = np.arange(steps - LAST, steps + 1)
    descent = flowsim.descend(
        network, problem, learning_rate=rate, steps=steps, record_steps=records, weights=True, stopping=FOREVER
    )
    row = {"seed": seed, "learning_rate": rate, "steps": int(descent.steps), "descent": descent.outcome.name}
    centres = Centres.of(descent, rate)
    last = Centres(*(jax.tree.map(lambda leaf: leaf[-1:], part) for part in vars(centres).values()))
    centre = eqx.combine(jax.tree.map(lambda leaf: leaf[0], last.weights), split(network)[1])
    row["roughness"] = float(np.mean(np.abs(np.diff(centres.amplitude))) / np.mean(centres.amplitude))
    risk = float(last.mean_risk[0]) - (infimum if np.isfinite(infimum) else 0)
    row["GD"] = {"S": float(flowsim.sharpness(centre, problem)), "r": float(last.amplitude[0]), "risk": risk}
    when = {"ts": last.times, "t1": float(last.times[0]), "weights": True, "stopping": FOREVER, "probes": PROBES}
    for name, model in MODELS.items():
        began = time.perf_counter()
        run = jax.block_until_ready(flowsim.integrate(network, problem, model=model(rate), **when))
        mean = float(run.diagnostics["mean_risk"][-1]) if name != "GF" else float(run.risk[-1])
        row[name] = {
            "outcome": run.outcome.name,
            "distance": float(last.distances(run)[0]),
            "S": float(flowsim.sharpness(run.network, problem)),
            "r": float(run.diagnostics["oscillation"][-1]),
            "risk": mean - (infimum if np.isfinite(infimum) else 0),
            "work": [int(run.gradients), int(run.products)],
            "seconds": time.perf_counter() - began,
        }
    return row


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown."""
    names = ["seed", "η", "rough", *(f"{name}: distance" for name in MODELS), "GF / edge 2"]
    names += ["S GD, central, edge 2", "√tr Σ GD, central, edge 2", "mean risk GD, central, edge 2, GF"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        distances = [row[name]["distance"] for name in MODELS]
        cells = [row["seed"], row["learning_rate"], f"{row['roughness']:.2f}", *(f"{d:.2g}" for d in distances)]
        cells.append(f"{distances[0] / distances[-1]:.1f}")
        seen = ("GD", "central", "edge 2")
        cells += [", ".join(f"{row[name][key]:.{digits}g}" for name in seen) for key, digits in (("S", 4), ("r", 2))]
        cells.append(", ".join(f"{row[name]['risk']:.2g}" for name in (*seen, "GF")))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(rows: list[dict]) -> str:
    """Return medians and ranges of how much closer each model is, and of what it predicts over what is measured."""
    lines = []
    for low, high in itertools.pairwise(REACHES):
        chosen = [row for row in rows if low < row["GF"]["S"] * row["learning_rate"] <= high]
        lines.append(f"ηS of the gradient flow at the end in ({low:g}, {high:g}]: {len(chosen)} of {len(rows)} runs")
        lines += [line for name in list(MODELS)[1:] if chosen for line in spreads(chosen, name)]
    return "\n".join(lines)


def spreads(rows: list[dict], name: str) -> list[str]:
    """Return how close a model is to descent, and what it predicts over what is measured."""
    closer = np.array([row["GF"]["distance"] / row[name]["distance"] for row in rows])
    farther = np.sum(closer < 0.999)  # below the edge the central flow is the gradient flow
    ended = np.isnan(closer).sum()
    lines = [f"* {name}: closer than GF by {spread(closer)}, farther in {farther}, ended before in {ended}"]
    for key in ("S", "r", "risk"):
        ratio = [row[name][key] / row["GD"][key] for row in rows if row["GD"]["r"] > ROUNDING]
        lines += [f"  * {key}, predicted / measured: {spread(np.array(ratio))}"] if ratio else []
    return [*lines, f"  * gradients, products: {np.median([row[name]['work'] for row in rows], axis=0)}"]


def spread(values: np.ndarray) -> str:
    """Return median, quartiles and range."""
    low, quarter, middle, three, high = np.nanquantile(values, [0, 0.25, 0.5, 0.75, 1])
    return f"{middle:.3g} ({low:.3g}, {quarter:.3g}, {three:.3g}, {high:.3g})"


def main() -> None:
    """Run the cases asked for, print their tables, and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all of them unless named")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--json", type=Path, help="where runs are kept")
    parser.add_argument("--show", action="store_true", help="print the tables of kept runs alone")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    kept = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    for name in asked.cases or CASES:
        rows = kept.setdefault(name, [])
        for rate, seed in () if asked.show else missing(rows, CASES[name]["rates"], asked.seeds):
            rows.append(one(CASES[name], seed, rate))
            if asked.json:
                asked.json.write_text(json.dumps(kept, indent=1))
        rows.sort(key=lambda row: (row["learning_rate"], row["seed"]))
        print(f"## {name}\n\n{table(rows)}\n\n{summary(rows)}\n", flush=True)


def missing(rows: list[dict], rates: tuple[float, ...], seeds: int) -> list[tuple[float, int]]:
    """Return the learning rates and seeds that no row is of, all rates of a seed before the next."""
    there = {(row["learning_rate"], row["seed"]) for row in rows}
    return [(rate, seed) for seed in range(seeds) for rate in rates if (rate, seed) not in there]


if __name__ == "__main__":
    main()
