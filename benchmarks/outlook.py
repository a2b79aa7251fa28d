"""How good the forecasts of `python -m flowsim check` are: predicted and measured seconds and peak memory.

    python benchmarks/outlook.py [--quick] [--save] [SCENARIO ...]

Each scenario is forecast in a process of its own, and then run in another, with no compiled programs kept from earlier
runs, all of the command line included. A larger network of 56 560 weights is among them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
from console import options, start, table

SCENARIOS = Path(__file__).parents[1] / "scenarios"
LARGER = """
precision: float32
data: {kind: digits, samples: 1000, test_samples: 200}
network: {kind: mlp, depth: 4, width: 150, activation: tanh, biases: true, fan_in: true, scale: 1.0}
flow: {t1: 20}
descent: {learning_rates: [0.05, 0.1]}
"""
SHORT = ["residual", "small_scale", "diabetes"]
NAMES = [*SHORT, "digits", "edge_of_stability", "theory_residual", "paper/figure4"]
COLUMNS = ("scenario", "predicted, s", "measured, s", "ratio", "memory predicted, GB", "measured, GB", "load")


def main() -> None:
    parser = options("forecasts beside runs")
    parser.add_argument("scenarios", nargs="*", help="names in scenarios/, or larger (default: some of each kind)")
    parser.add_argument("--alone", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        print(json.dumps(forecast(given.alone)))
        return
    jax.config.update("jax_enable_x64", True)  # as the command line does
    start(parser)
    names = given.scenarios or (SHORT if given.quick else [*NAMES, "larger"])
    table("Forecast and run, sweeps with --quick", COLUMNS, [row(name, measured(name)) for name in names])


def measured(name: str) -> dict[str, float]:
    """Return the numbers of one scenario: what was predicted, and what it came to."""
    with tempfile.TemporaryDirectory() as folder:
        path = SCENARIOS / f"{name}.yaml"
        if name == "larger":
            path = Path(folder) / "larger.yaml"
            path.write_text(LARGER)
        words = [str(path), "--quick", "--out", folder]
        environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        command = [sys.executable, __file__, "--alone", *words]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        began = time.perf_counter()
        running = subprocess.Popen(
            [sys.executable, "-m", "flowsim", *words], env=environment, stdout=subprocess.DEVNULL
        )
        _, _, used = os.wait4(running.pid, 0)
        seconds = time.perf_counter() - began
    load = os.getloadavg()[0]
    return {**json.loads(said), "seconds": seconds, "bytes": 1024.0 * used.ru_maxrss, "load": load}


def forecast(words: list[str]) -> dict[str, float]:
    """Return what `check` would say of one scenario with these options."""
    from flowsim.cli.check import options_of, predicted
    from flowsim.cli.jobs import read_jobs

    jax.config.update("jax_enable_x64", True)
    asked = options_of(words)
    (job,) = read_jobs(asked)
    found = predicted(job, asked)
    return {"predicted_seconds": found.seconds, "predicted_bytes": found.bytes}


def row(name: str, found: dict[str, float]) -> tuple:
    seconds = found["predicted_seconds"], found["seconds"], found["predicted_seconds"] / found["seconds"]
    return (name, *seconds, found["predicted_bytes"] / 1e9, found["bytes"] / 1e9, found["load"])


if __name__ == "__main__":
    main()
