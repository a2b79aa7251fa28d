"""How closely the flow of a descent's centre follows momentum and adaptive descents, over starts and rates.

    python benchmarks/other_descents.py [heavy_ball_0.5] [adam] [...] [--quick] [--json other.json] [--save]

For every descent, start and learning rate: the descent, its stable flow and that of its centre, from where the descent
is smooth, at one time. Learning rates are those at which the gradient flow goes so many times beyond the threshold with
momentum, and numbers with preconditioners. The reach is how far the stable flow goes beyond: its preconditioned
sharpness over the threshold. Each descent takes 400 steps, with small momentum more. Distances are from the centre of
its oscillation.
"""

import itertools
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import numpy as np
from console import options, start, table
from edge import FOREVER, SCENARIOS, STARTS, spread

import flowsim
from flowsim.comparison.centres import Centres
from flowsim.dynamics import StepTimes
from flowsim.scenarios import build, parse_overrides, read_scenario

REACHES, STEPS = (1.1, 1.3, 1.6, 2.0), 400
DESCENTS = {
    "heavy_ball_0.5": (partial(flowsim.HeavyBall, momentum=0.5), None),
    "heavy_ball_0.9": (partial(flowsim.HeavyBall, momentum=0.9), None),
    "nesterov_0.5": (partial(flowsim.Nesterov, momentum=0.5), None),
    "nesterov_0.9": (partial(flowsim.Nesterov, momentum=0.9), None),
    "scalar_rmsprop": (flowsim.ScalarRMSProp, (0.005, 0.01, 0.02, 0.04)),
    "rmsprop": (flowsim.RMSProp, (0.0003, 0.0006, 0.001, 0.002)),
    "rmsprop_0.99": (partial(flowsim.RMSProp, decay=0.99), (0.0003, 0.0006, 0.001, 0.002)),
    "adam": (flowsim.Adam, (0.003, 0.006, 0.01, 0.02)),
    "adam_0.5": (partial(flowsim.Adam, b1=0.5, b2=0.99), (0.001, 0.002, 0.003, 0.005)),
}
MODELS = {"stable": flowsim.StableFlow, "centre": flowsim.CentreFlow}
PROBES = [flowsim.probes.Oscillation(), flowsim.probes.PreconditionedSharpness()]
RUN = ("descent", "start", "η", "steps", "ended as", "reach", "stable", "centre", "closer")
RUN += ("PS/threshold: descent, centre", "√tr Σ: descent, centre", "gradients in a step", "models ended")
SUMMARY = ("descent", "reach", "runs", "closer", "farther", "PS", "√tr Σ", "gradients in a step")


def one(name: str, begin: int, asked: float) -> dict:
    """Return what is measured of a descent from one start at one learning rate."""
    make, rates = DESCENTS[name]
    activation, scale, width, depth, seed, t1 = STARTS[begin]
    sets = [f"seed={seed}", f"network.activation={activation}", f"network.scale={scale}", f"network.width={width}"]
    sets += [f"network.depth={depth}", "network.biases=true", "network.fan_in=true"]
    file = SCENARIOS / "edge_of_stability.yaml"
    problem, network, _ = build(read_scenario(file, parse_overrides(sets)), file.parent)
    rate, steps = asked, STEPS
    if rates is None:
        flow = flowsim.integrate(network, problem, ts=[], t1=t1, stopping=FOREVER)
        rate = asked * float(make(1.0).stability_threshold()) / float(flowsim.sharpness(flow.network, problem))
        steps = max(round(t1 / float(make(rate).time_of_step())), STEPS)
    optimizer = make(rate)
    records = [steps - 1, steps, steps + 1]
    options = {"weights": True, "stopping": FOREVER, "probes": PROBES}
    descent = flowsim.descend(network, problem, optimizer=optimizer, steps=steps + 1, record_steps=records, **options)
    row = {
        "descent": name,
        "start": begin,
        "asked": asked,
        "rate": rate,
        "steps": steps,
        "outcome": descent.outcome.name,
    }
    centres, threshold = Centres.of(descent, StepTimes(optimizer)), float(optimizer.stability_threshold())
    last = Centres(*(jax.tree.map(lambda leaf: leaf[-1:], part) for part in vars(centres).values()))
    row["GD"] = {
        "S": float(np.mean(descent.diagnostics["preconditioned_sharpness"][-2:])) / threshold,
        "r": float(last.amplitude[0]),
    }
    for kind, model in MODELS.items():
        began = time.perf_counter()
        when = {"ts": last.times, "t1": float(last.times[0])}
        run = jax.block_until_ready(flowsim.integrate(network, problem, model=model(optimizer), **when, **options))
        row[kind] = {
            "outcome": run.outcome.name,
            "distance": float(last.distances(run)[0]),
            "S": float(run.diagnostics["preconditioned_sharpness"][-1]) / threshold,
            "r": float(run.diagnostics["oscillation"][-1]),
            "work": (int(run.gradients) + int(run.products)) / steps,
            "seconds": time.perf_counter() - began,
        }
    return row


def closer(row: dict) -> float:
    """Return how many times as close to the descent the centre flow is as the stable flow."""
    return row["stable"]["distance"] / row["centre"]["distance"]


def run_row(row: dict) -> tuple:
    """Return what is printed of the runs from one start at one learning rate."""
    pairs = (f"{row['GD'][key]:.3g}, {row['centre'][key]:.3g}" for key in ("S", "r"))
    ended = " ".join({row[kind]["outcome"] for kind in MODELS})
    begun = row["descent"], row["start"], row["rate"], row["steps"], row["outcome"], row["stable"]["S"]
    return (*begun, *(row[kind]["distance"] for kind in MODELS), closer(row), *pairs, row["centre"]["work"], ended)


def summary_rows(rows: list[dict]) -> Iterator[tuple]:
    """Yield how much closer the centre flow is, descent by descent, below the edge and beyond."""
    for name, group in itertools.groupby(rows, lambda row: row["descent"]):
        of_kind = list(group)
        for below in (True, False):
            chosen = [row for row in of_kind if (row["stable"]["S"] <= 1) == below and np.isfinite(closer(row))]
            if not chosen:
                continue
            ratios = np.array([closer(row) for row in chosen])
            reach = sorted(row["stable"]["S"] for row in chosen)
            predicted = [np.array([row["centre"][key] / row["GD"][key] for row in chosen]) for key in ("S", "r")]
            work = f"{np.median([row['centre']['work'] for row in chosen]):.0f}"
            farther = int(np.sum(ratios < 0.999))
            spreads = [spread(values, 0.25, 0.75) for values in predicted]
            yield (
                name,
                f"{reach[0]:.2g} to {reach[-1]:.2g}",
                len(chosen),
                spread(ratios, 0.0, 1.0),
                farther,
                *spreads,
                work,
            )


def main() -> None:
    """Run the descents asked for, print their tables, and keep the rows."""
    parser = options("other_descents: how closely the flow of a descent's centre follows it")
    parser.add_argument("descents", nargs="*", help=f"of {', '.join(DESCENTS)}; all of them unless named")
    parser.add_argument("--json", type=Path, help="where runs are kept")
    jax.config.update("jax_enable_x64", True)
    asked = start(parser)
    rows = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else []
    there = {(row["descent"], row["start"], row["asked"]) for row in rows}
    for name in asked.descents or DESCENTS:
        rates = DESCENTS[name][1] or REACHES
        for begin, rate in itertools.product(range(1 if asked.quick else len(STARTS)), rates):
            if (name, begin, rate) not in there:
                rows.append(one(name, begin, rate))
                if asked.json:
                    asked.json.write_text(json.dumps(rows, indent=1))
    rows.sort(key=lambda row: list(DESCENTS).index(row["descent"]))
    table("runs", RUN, map(run_row, rows))
    table("all", SUMMARY, list(summary_rows(rows)))


if __name__ == "__main__":
    main()
