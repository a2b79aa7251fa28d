"""How much of a model's distance from descent is the error of its own integration.

    python benchmarks/own_errors.py [--quick] [--save]

The scenarios of `papers/marion_2026/which_model*.yaml` at the second of their learning rates, from the starts of three
seeds: the distance of each model, at its tolerances but without records, from itself at a tenth of them, over its
distance from the centre of descent's oscillation. Runs end after 5000 steps, whose errors are not known then.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from console import begin, table
from edge_cost import FOREVER, flat, weights_of

import flowsim
from flowsim.comparison.models import model_of
from flowsim.comparison.plan import End, RunSpec
from flowsim.scenarios import build, parse_overrides, read_scenario
from flowsim.sweeps.models import centres_of, run_to_end

FOLDER = Path(__file__).parents[1] / "papers" / "marion_2026"
SCENARIOS = ("which_model.yaml", "which_model_gelu.yaml", "which_model_digits.yaml")
SEEDS, FINER, MOST_STEPS = (0, 1, 2), 0.1, 5000
COLUMNS = ("scenario", "η", "seed", "model", "rtol", "distance from the centre", "own error", "of the distance")


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    quick = begin("the models' own errors in which_model")
    rows = [row for name in SCENARIOS[: 1 if quick else None] for row in rows_of(name, SEEDS[: 1 if quick else None])]
    table("which_model*.yaml", COLUMNS, rows)


def rows_of(name: str, seeds: tuple[int, ...]) -> Iterator[tuple]:
    """Yield a row for each seed and model of a scenario."""
    for seed in seeds:
        scenario = read_scenario(FOLDER / name, parse_overrides([f"seed={seed}"]))
        problem, network, _ = build(scenario, FOLDER)
        entry = scenario.sweep.descent[1]
        (eta,) = entry.learning_rates
        descent = flowsim.GradientDescent(eta)
        spec = RunSpec(descent, eta, End(steps=entry.steps))
        centres = centres_of(spec, run_to_end(network, problem, spec, {}))
        centre = flat(jax.tree.map(lambda leaf: leaf[-1], centres.weights))
        for model, entry in scenario.flow.of_descent.items():
            as_run = model_of(entry, descent).checked(np.dtype(float))
            strict = dataclasses.replace(as_run, rtol=FINER * as_run.rtol, atol=FINER * as_run.atol)
            until = {"ts": [], "t1": centres.times[-1], "max_steps": MOST_STEPS, "stopping": FOREVER}
            ends = [flowsim.integrate(network, problem, model=flow, **until) for flow in (as_run, strict)]
            ours, theirs = map(weights_of, ends)
            distance, error = np.linalg.norm(ours - centre), np.linalg.norm(ours - theirs)
            known = all(run.outcome == flowsim.Outcome.TIME_LIMIT for run in ends)
            last = (distance, error, error / distance) if known else [str(run.outcome) for run in ends] + ["–"]
            yield name, eta, seed, model, f"{as_run.rtol:g}", *last
        jax.clear_caches()


if __name__ == "__main__":
    main()
