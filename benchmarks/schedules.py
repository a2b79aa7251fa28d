"""How closely models follow gradient descent whose learning rate changes in time, over starts and kinds of schedule.

    python benchmarks/schedules.py [warm_up] [cosine_decay] [step_decay] [--quick] [--json schedules.json] [--save]

For every schedule and start: descent, the gradient flow, and the models, from one start, at one time. The largest
learning rate η is such that ηS is a number above 2 where the gradient flow is then. A warm-up takes
half of the time from a tenth of that rate, linear in steps; a cosine falls to about half of it; a decay by steps takes
the rate to two thirds of it after half of the time. Distances are from the centre of descent's oscillation.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from console import options, start, table
from edge import CASES, FOREVER, MODELS as OF_GRADIENT_DESCENT, PROBES, STARTS, begin, spread

import flowsim
from flowsim.comparison.centres import Centres
from flowsim.dynamics import StepTimes
from flowsim.networks import split

LAST = 60
REACHES = {"warm_up": (2.6, 3.2), "cosine_decay": (4.2, 5.0), "step_decay": (3.6, 4.4)}
SCHEDULES: dict[str, Callable[[float, float], Any]] = {
    "warm_up": lambda rate, t1: flowsim.WarmUp(rate, time=t1 / 2),
    "cosine_decay": lambda rate, t1: flowsim.CosineDecay(rate, time=2 * t1),
    "step_decay": lambda rate, t1: flowsim.StepDecay(rate, times=(t1 / 2,), decay=2 / 3),
}
MODELS = OF_GRADIENT_DESCENT | {"centre": lambda rate: flowsim.CentreFlow(flowsim.GradientDescent(rate))}
RUN = ("schedule", "start", "ηS", "steps", *(f"{name}: distance" for name in MODELS), "ηS/2: GD, central, edge 2")
SUMMARY = ("schedule", "runs", "model", "closer", "farther", "ended before", "S", "gradients + products per step")


def one(schedule: str, start_number: int, asked: float) -> dict:
    """Return what is measured from one start with a schedule up to one learning rate."""
    problem, network, rate, t1 = begin(CASES["networks"], start_number, asked)
    changing = SCHEDULES[schedule](rate, t1)
    steps = 1 + StepTimes(flowsim.GradientDescent(changing)).until(t1)
    kept = {"weights": True, "stopping": FOREVER}
    records = np.arange(steps - LAST, steps + 1)
    descent = flowsim.descend(network, problem, learning_rate=changing, steps=steps, record_steps=records, **kept)
    row: dict[str, Any] = {"schedule": schedule, "start": start_number, "asked": asked, "rate": rate, "steps": steps}
    row["descent"] = descent.outcome.name
    centres = Centres.of(descent, StepTimes(flowsim.GradientDescent(changing)))
    last = Centres(*(jax.tree.map(lambda leaf: leaf[-1:], part) for part in vars(centres).values()))
    centre = eqx.combine(jax.tree.map(lambda leaf: leaf[0], last.weights), split(network)[1])
    row["edge"] = float(descent.diagnostics["moving_edge"][-2])
    row["GD"] = {"S": float(flowsim.sharpness(centre, problem)), "r": float(last.amplitude[0])}
    when = {"ts": last.times, "t1": float(last.times[0]), "probes": PROBES, **kept}
    for name, model in MODELS.items():
        began = time.perf_counter()
        run = jax.block_until_ready(flowsim.integrate(network, problem, model=model(changing), **when))
        row[name] = {
            "outcome": run.outcome.name,
            "distance": float(last.distances(run)[0]),
            "S": float(flowsim.sharpness(run.network, problem)),
            "r": float(run.diagnostics["oscillation"][-1]),
            "work": [int(run.gradients), int(run.products)],
            "seconds": time.perf_counter() - began,
        }
    return row


def run_row(row: dict) -> tuple:
    """Return what is printed of the runs from one start with one schedule."""
    ratios = ", ".join(f"{row[name]['S'] / row['edge']:.4g}" for name in ("GD", "central", "edge 2"))
    distances = (row[name]["distance"] for name in MODELS)
    return row["schedule"], row["start"], row["asked"], row["steps"], *distances, ratios


def summary_rows(rows: list[dict]) -> Iterator[tuple]:
    """Yield how much closer each model is than the gradient flow, and what it predicts over what is measured."""
    for schedule, group in itertools.groupby(rows, lambda row: row["schedule"]):
        chosen = list(group)
        for name in list(MODELS)[1:]:
            ended = [row for row in chosen if row[name]["outcome"] == "TIME_LIMIT"]
            ratios = np.array([row["GF"]["distance"] / row[name]["distance"] for row in ended])
            known = np.isfinite(ratios)
            work = np.median([sum(row[name]["work"]) / row["steps"] for row in ended]) if ended else np.nan
            yield (
                schedule,
                len(chosen),
                name,
                spread(ratios[known], 0.0, 1.0),
                int(np.sum(ratios[known] < 0.999)),
                len(chosen) - len(ended),
                spread(np.array([row[name]["S"] / row["GD"]["S"] for row in ended]), 0.25, 0.75),
                f"{work:.3g}",
            )


def main() -> None:
    """Run the schedules asked for, print their tables, and keep the rows."""
    parser = options("schedules: how closely models follow a descent whose learning rate changes")
    parser.add_argument("schedules", nargs="*", help=f"of {', '.join(SCHEDULES)}; all of them unless named")
    parser.add_argument("--json", type=Path, help="where runs are kept")
    jax.config.update("jax_enable_x64", True)
    asked = start(parser)
    rows = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else []
    there = {(row["schedule"], row["start"], row["asked"]) for row in rows}
    for name in asked.schedules or SCHEDULES:
        for number, reach in itertools.product(range(1 if asked.quick else len(STARTS)), REACHES[name]):
            if (name, number, reach) not in there:
                if reach == REACHES[name][0]:
                    jax.clear_caches()  # programs of other networks would fill the memory of the compiler
                rows.append(one(name, number, reach))
                if asked.json:
                    asked.json.write_text(json.dumps(rows, indent=1))
    rows.sort(key=lambda row: list(SCHEDULES).index(row["schedule"]))
    table("runs", RUN, map(run_row, rows))
    table("all", SUMMARY, list(summary_rows(rows)))


if __name__ == "__main__":
    main()
