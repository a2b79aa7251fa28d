"""How closely models of descent follow it: distances, sharpness, oscillation and mean risk, over seeds and rates.

    python benchmarks/edge.py [linear] [gelu] [digits] [networks] [--quick] [--json edge.json] [--save]

For every seed and learning rate: descent, the gradient flow, central and edge flows of order one and two and the rod
flow, from one start, at one time. Distances are from the centre of descent's oscillation. Sharpness S, amplitude
√tr Σ and the mean excess risk over the oscillation are those at the centre, of descent as measured; the risk
itself where no infimum is known. The roughness is by how much an amplitude differs from the next, in the mean: descent
of period two has nearly none. With `--json` each run is kept as soon as it is there, and is not made a second time.
"""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from console import options, start, table

import flowsim
from flowsim.comparison.centres import Centres
from flowsim.dynamics import StepTimes
from flowsim.networks import split
from flowsim.scenarios import build, parse_overrides, read_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
CASES = {
    "linear": {"scenario": "edge_of_stability.yaml", "rates": (0.06, 0.08, 0.1), "t1": 40.0, "seeds": 12, "sets": []},
    "gelu": {
        "scenario": "edge_of_stability.yaml",
        "rates": (0.03, 0.05, 0.07),
        "t1": 30.0,
        "seeds": 8,
        "sets": ["network.activation=gelu", "network.scale=0.6"],
    },
    "digits": {
        "scenario": "digits.yaml",
        "rates": (0.06, 0.08, 0.1),
        "t1": 100.0,
        "seeds": 4,
        "sets": ["precision=float64", "network.scale=0.5"],
    },
    "networks": {"scenario": "edge_of_stability.yaml", "rates": (2.2, 2.6, 3.2, 4.0), "seeds": 7, "sets": []},
}
# Of the networks each start has its size and its time, and "rates" are the ηS to which the gradient flow goes until
# then: activation, scale, width, depth, seed, t.
STARTS = (
    ("tanh", 1.0, 10, 3, 0, 80.0),
    ("tanh", 1.0, 10, 3, 1, 80.0),
    ("tanh", 1.0, 30, 3, 0, 80.0),
    ("tanh", 1.0, 30, 4, 1, 40.0),
    ("gelu", 1.4, 10, 3, 0, 80.0),
    ("gelu", 1.4, 40, 3, 0, 40.0),
    ("gelu", 1.4, 40, 3, 1, 40.0),
)
MODELS = {
    "GF": lambda rate: None,
    "central": lambda rate: flowsim.CentralFlow(rate, most=6),
    "central 2": lambda rate: flowsim.CentralFlow(rate, most=6, order=2),
    "edge 1": lambda rate: flowsim.EdgeFlow(rate, order=1),
    "edge 2": flowsim.EdgeFlow,
    "rod": flowsim.RodFlow,
}
# By how far the gradient flow goes beyond the edge: not at all, as far as models hold (below), and farther.
REACHES = (0.0, 2.0, 4.5, np.inf)
LAST, ROUNDING = 60, 1e-9
FOREVER = flowsim.Stopping(gradient_norm=None)
RUN = ("seed", "η", "roughness", *(f"{name}: distance" for name in MODELS), "GF / edge 2")
RUN += ("S: GD, central, edge 2", "√tr Σ: GD, central, edge 2", "mean risk: GD, central, edge 2, GF")
SUMMARY = ("case", "ηS", "runs", "model", "closer", "farther", "ended before", "S", "√tr Σ", "mean risk")
SUMMARY += ("gradients + products",)
PROBES = [flowsim.probes.Oscillation(), flowsim.probes.MeanRisk()]


def begin(case: dict, start: int, rate: float) -> tuple:
    """Return problem, network, learning rate and time of a run, from a case's start and its rate of that name."""
    sets, t1 = [f"seed={start}", *case["sets"]], case.get("t1")
    if t1 is None:
        activation, scale, width, depth, seed, t1 = STARTS[start]
        sets = [f"seed={seed}", f"network.activation={activation}", f"network.scale={scale}", f"network.width={width}"]
        sets += [f"network.depth={depth}", "network.biases=true", "network.fan_in=true"]
    file = SCENARIOS / case["scenario"]
    problem, network, _ = build(read_scenario(file, parse_overrides(sets)), file.parent)
    if "t1" not in case:
        flow = flowsim.integrate(network, problem, ts=[], t1=t1, stopping=FOREVER)
        rate = rate / float(flowsim.sharpness(flow.network, problem))
    return problem, network, rate, t1


def one(case: dict, seed: int, asked: float) -> dict:
    """Return what is measured from one start at one learning rate."""
    problem, network, rate, t1 = begin(case, seed, asked)
    infimum = float(problem.infimum)
    steps = round(t1 / rate) + 1
    records = np.arange(steps - LAST, steps + 1)
    descent = flowsim.descend(
        network, problem, learning_rate=rate, steps=steps, record_steps=records, weights=True, stopping=FOREVER
    )
    row = {"seed": seed, "asked": asked, "learning_rate": rate, "steps": int(descent.steps)}
    row["descent"] = descent.outcome.name
    centres = Centres.of(descent, StepTimes(flowsim.GradientDescent(rate)))
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


def run_row(row: dict) -> tuple:
    """Return what is printed of the runs from one start at one learning rate."""
    distances = [row[name]["distance"] for name in MODELS]
    seen = ("GD", "central", "edge 2")
    pairs = [", ".join(f"{row[name][key]:.{digits}g}" for name in seen) for key, digits in (("S", 4), ("r", 2))]
    risks = ", ".join(f"{row[name]['risk']:.2g}" for name in (*seen, "GF"))
    start = row["seed"], row["learning_rate"], row["roughness"]
    return (*start, *distances, row["GF"]["distance"] / row["edge 2"]["distance"], *pairs, risks)


def summary_rows(case: str, rows: list[dict]) -> Iterator[tuple]:
    """Yield how much closer each model is, and what it predicts over what is measured, by how far the flow goes."""
    for low, high in itertools.pairwise(REACHES):
        chosen = [row for row in rows if low < row["GF"]["S"] * row["learning_rate"] <= high]
        for name in list(MODELS)[1:] if chosen else ():
            group = (case, reach(chosen), len(chosen)) if name == "central" else ("", "", "")
            yield (*group, name, *spreads(chosen, name))


def reach(rows: list[dict]) -> str:
    """Return from where to where ηS of the gradient flow goes at the end."""
    ends = sorted(row["GF"]["S"] * row["learning_rate"] for row in rows)
    return f"{ends[0]:.2g} to {ends[-1]:.2g}"


def spreads(rows: list[dict], name: str) -> tuple:
    """Return how close a model is to descent, how often farther or ended before, and what it predicts."""
    closer = np.array([row["GF"]["distance"] / row[name]["distance"] for row in rows])
    farther, ended = int(np.sum(closer < 0.999)), int(np.isnan(closer).sum())  # below the edge central is the flow
    ratios = [
        np.array([row[name][key] / row["GD"][key] for row in rows if row["GD"]["r"] > ROUNDING])
        for key in ("S", "r", "risk")
    ]
    gradients, products = np.median([row[name]["work"] for row in rows], axis=0)
    predicted = [spread(ratio, 0.25, 0.75) for ratio in ratios]
    return spread(closer, 0.0, 1.0), farther, ended, *predicted, f"{gradients:.0f} + {products:.0f}"


def spread(values: np.ndarray, low: float, high: float) -> str:
    """Return the median, and in brackets two quantiles; a dash where there are no values."""
    if not np.isfinite(values).any():
        return "–"
    least, middle, most = np.nanquantile(values, [low, 0.5, high])
    return f"{middle:.3g} ({least:.3g} to {most:.3g})"


def main() -> None:
    """Run the cases asked for, print their tables, and keep the rows."""
    parser = options("edge: how closely models of descent follow it")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all of them unless named")
    parser.add_argument("--json", type=Path, help="where runs are kept")
    jax.config.update("jax_enable_x64", True)
    asked = start(parser)
    kept = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    for name in asked.cases or (["linear"] if asked.quick else CASES):
        rows = kept.setdefault(name, [])
        for rate, seed in missing(rows, CASES[name]["rates"], 1 if asked.quick else CASES[name]["seeds"]):
            rows.append(one(CASES[name], seed, rate))
            if asked.json:
                asked.json.write_text(json.dumps(kept, indent=1))
        rows.sort(key=lambda row: (row["learning_rate"], row["seed"]))
        table(name, RUN, map(run_row, rows))
    table("all", SUMMARY, [row for name, rows in kept.items() for row in summary_rows(name, rows)])


def missing(rows: list[dict], rates: tuple[float, ...], seeds: int) -> list[tuple[float, int]]:
    """Return the learning rates and seeds that no row is of, all rates of a seed before the next."""
    there = {(row["asked"], row["seed"]) for row in rows}
    return [(rate, seed) for seed in range(seeds) for rate in rates if (rate, seed) not in there]


if __name__ == "__main__":
    main()
