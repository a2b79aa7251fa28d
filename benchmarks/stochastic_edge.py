"""Where the noise of minibatches keeps sharpness and batch sharpness, and the gap below 2/η that it predicts.

    python benchmarks/stochastic_edge.py [sgd] [noisy] [...] [--batch 8] [--quick] [--json edge.json] [--save]

For every start, batch and descent: 8 repetitions of 8000 steps. The learning rate is that at which the gradient flow
goes 1.6 times beyond 2/η by the time of the start. All curvatures are times η/2, η that of a step's time, so that 1 is
the edge of gradient descent: means over seeds and 10 records, of steps 400 to 800 (early) and of 4000 to 8000 (late);
the interaction and the gap that is predicted, ηβσ²/(4α) where α > 0, are medians, as they have no means. Gaps are
those at the centre of the oscillation, 1 − ηS/2.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import numpy as np
from console import options, start, table
from edge import CASES, STARTS, begin, spread

import flowsim
from flowsim.probes import BatchSharpness, MeanSquareSharpness, NoiseInteraction, SharpnessGap

REACH, BATCHES, SEEDS, RECORDS = 1.6, (4, 8, 16, 32), range(8), 10
WINDOWS = {"early": (400, 800), "late": (4000, 8000)}
WITH = {"replacement": True}
DESCENTS = {
    "sgd": (partial(flowsim.SGD, **WITH), 1),
    "sgd without": (flowsim.SGD, 1),
    "noisy": (partial(flowsim.NoisyDescent, **WITH), 1),
    "equation": (partial(flowsim.NoisyDescent, substeps=16, **WITH), 16),
    "momentum": (partial(flowsim.SGD, momentum=0.9, **WITH), 1),
}
CURVATURES = ("S", "mean square", "batch sharpness", "ratio", "interaction")
RUN = ("descent", "start", "batch", "η", "diverged", "window", *CURVATURES, "gap", "predicted", "seconds")
SUMMARY = ("descent", "batch", "window", "runs", *CURVATURES, "gap", "predicted")


def one(name: str, number: int, batch: int, reach: float) -> dict:
    """Return what is measured of the repetitions from one start with one batch."""
    make, finer = DESCENTS[name]
    problem, network, edge, _ = begin(CASES["networks"], number, 2 * reach)
    rate = edge * (0.1 if name == "momentum" else 1)
    replacement = name != "sgd without"
    records = [np.linspace(*ends, RECORDS) for ends in WINDOWS.values()]
    began = time.perf_counter()
    run = flowsim.repeat(
        network,
        problem,
        optimizer=make(rate, batch),
        seeds=SEEDS,
        steps=finer * max(map(max, WINDOWS.values())),
        record_steps=finer * np.concatenate(records).astype(int),
        probes=[
            MeanSquareSharpness(batch, replacement=replacement),
            BatchSharpness(batch, replacement=replacement, rtol=0.05),
            NoiseInteraction(batch, replacement=replacement),
            SharpnessGap(batch, replacement=replacement),
        ],
        sharpness=True,
    )
    diverged = run.outcomes == flowsim.Outcome.DIVERGED
    row = {"descent": name, "start": number, "batch": batch, "rate": rate, "diverged": int(np.sum(diverged))}
    kept = jax.tree.map(lambda values: edge / 2 * values[~diverged], run.probes)
    for place, window in enumerate(WINDOWS):
        cut = slice(place * RECORDS, (place + 1) * RECORDS)
        row[window] = {
            "S": average(kept["sharpness"][:, cut]),
            "mean square": average(kept["mean_square_sharpness"][:, cut]),
            "batch sharpness": average(kept["batch_sharpness"]["mean"][:, cut]),
            "ratio": average(kept["batch_sharpness"]["ratio"][:, cut]),
            "interaction": average(kept["noise_interaction"]["value"][:, cut], np.median),
            "gap": average(kept["sharpness_gap"]["measured"][:, cut]),
            "predicted": average(kept["sharpness_gap"]["predicted"][:, cut], np.median),
        }
        if name == "momentum":  # for which the formula is not
            row[window] |= {"gap": float("nan"), "predicted": float("nan")}
    return row | {"seconds": time.perf_counter() - began}


def average(values: np.ndarray, of: Callable[[np.ndarray], float] = np.mean) -> float:
    """Return the mean, or another average, of those values that are numbers; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(of(known)) if known.size else float("nan")


def run_rows(row: dict) -> Iterator[tuple]:
    """Yield what is printed of the repetitions from one start with one batch."""
    begun = row["descent"], row["start"], row["batch"], row["rate"], row["diverged"]
    for window in WINDOWS:
        yield (*begun, window, *row[window].values(), row["seconds"])


def summary_rows(rows: list[dict]) -> Iterator[tuple]:
    """Yield medians and extremes over the starts at which no repetition diverged, of each descent and batch."""
    for name, batch, window in itertools.product(DESCENTS, BATCHES, WINDOWS):
        chosen = [row for row in rows if (row["descent"], row["batch"], row["diverged"]) == (name, batch, 0)]
        if chosen:
            columns = [np.array([row[window][key] for row in chosen]) for key in chosen[0][window]]
            yield name, batch, window, len(chosen), *(spread(values, 0.0, 1.0) for values in columns)


def main() -> None:
    """Run the repetitions asked for, print their tables, and keep the rows."""
    parser = options("stochastic_edge: where noise keeps the sharpness, and where it is predicted to")
    parser.add_argument("descents", nargs="*", help=f"of {', '.join(DESCENTS)}; all of them unless named")
    parser.add_argument("--batch", type=int, choices=BATCHES, help="this one alone")
    parser.add_argument("--json", type=Path, help="where runs are kept")
    jax.config.update("jax_enable_x64", True)
    asked = start(parser)
    rows = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else []
    there = {(row["descent"], row["start"], row["batch"]) for row in rows}
    for name in asked.descents or DESCENTS:
        batches = (asked.batch,) if asked.batch else BATCHES
        for number, batch in itertools.product(range(1 if asked.quick else len(STARTS)), batches):
            if (name, number, batch) not in there:
                rows.append(one(name, number, batch, REACH))
                if asked.json:
                    asked.json.write_text(json.dumps(rows, indent=1))
    table("runs", RUN, [printed for row in rows for printed in run_rows(row)])
    table("all", SUMMARY, list(summary_rows(rows)))


if __name__ == "__main__":
    main()
