"""The public demonstration of the central flow on two cores: four flows beside one descent, each with its error.

    python benchmarks/public_demo.py [--images cifar-10-batches-bin] [--only gradient edge] [--save] [--quick]

Cohen, Damian, Talwalkar, Kolter and Lee (2024) publish a program, `minimal.py`, that runs gradient descent, the
gradient flow and the central flow side by side: a perceptron 3072-256-256-4 with GELU (853 508 weights), ½‖f − y‖² on
1000 images of four classes of CIFAR-10, η = 0.02, 400 steps. Its Euler steps are η/10 and η/4 long, without an error
estimate, and take "less than 20 minutes" on an H100. Here such a network, from another draw of the same initialization,
runs in float32 on the cores that there are.

Without the files of CIFAR-10 the images are made, to the same shape: Gaussian fields whose amplitude falls as one over
the frequency. The parts `BRIGHTNESS`, `COLOUR` and `OF_CLASS` of their variance are one number in an image, one in a
channel, and one field in a class. Each run has a process of its own, and its seconds are all that this takes, imports
and compilation among them. Errors are relative distances of the weights at the end from those of the same flow at a
tenth of the tolerance; the last column is how far they are from the centre (W_399 + 2W_400 + W_401)/4 of descent.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import options, start, table
from large_flow import peak_bytes

import flowsim
from flowsim.networks import split
from flowsim.solvers.field import gradient_field

RATE, STEPS, SAMPLES, CLASSES = 0.02, 400, 1000, 4
BRIGHTNESS, COLOUR, OF_CLASS = 0.5, 0.05, 0.02
# Of red, green and blue in CIFAR-10, in units of the largest value.
MEANS, DEVIATIONS = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
MODELS = {"central": flowsim.CentralFlow, "edge": flowsim.EdgeFlow, "rod": flowsim.RodFlow}
RTOL, FINER = 1e-3, 1e-4
FOREVER = flowsim.Stopping(gradient_norm=None)
COLUMNS = ("run", "ends", "R", "S", "steps", "gradients", "products", "seconds, all in all", "peak, GB")
COLUMNS += ("error", "distance to the centre")


class HalfSquaredError(flowsim.losses.Loss):
    """½‖prediction − target‖², of the public program."""

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __call__(self, prediction: jax.Array, target: jax.Array) -> jax.Array:
        return jnp.sum((prediction - target) ** 2) / 2

    def curvature(self, prediction: jax.Array, target: jax.Array) -> jax.Array:
        return jnp.eye(prediction.size, dtype=prediction.dtype)

    def curvature_root(self, prediction: jax.Array, target: jax.Array) -> jax.Array:
        return jnp.eye(prediction.size, dtype=prediction.dtype)


@dataclass(frozen=True)
class Measured:
    """What a process found: how its run ended, R, S, steps, gradients, products, peak memory, seconds, and weights."""

    row: list
    seconds: float
    weights: np.ndarray

    def against(self, finer: "Measured | None", centre: np.ndarray) -> tuple:
        """Return the row of the table."""
        *run, peak = self.row
        error = "–" if finer is None else f"{norm(self.weights - finer.weights) / norm(finer.weights):.1e}"
        return *run, f"{self.seconds:.0f}", peak, error, norm(self.weights - centre)


def main() -> None:
    parser = options("the public demonstration of the central flow: 853 508 weights, 1000 images, η = 0.02")
    parser.add_argument("--images", type=Path, help="the folder of CIFAR-10's binary version (without: made images)")
    parser.add_argument("--only", nargs="+", choices=["gradient", *MODELS], default=["gradient", *MODELS])
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(run(asked.images, **json.loads(asked.alone))))
        return
    given = start(parser)
    steps = STEPS // 20 if given.quick else STEPS
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measured_runs(partial(in_own_process, given.images, Path(folder), steps=steps), given.only))
    images = "images of CIFAR-10" if given.images else "made images"
    table(f"{steps} steps on {SAMPLES} {images}, η = {RATE}, rtol {RTOL:g}", COLUMNS, rows)


def measured_runs(measure: partial, names: list[str]) -> Iterator[tuple]:
    """Yield the row of descent, that of every flow, and their seconds in all, without the finer runs."""
    descent = measure("descent")
    yield descent.against(None, descent.weights)
    found = {name: measure(name, rtol=RTOL) for name in names}
    for name, one in found.items():
        yield one.against(measure(name, rtol=FINER), descent.weights)
    yield "all flows", *[""] * 6, f"{sum(one.seconds for one in found.values()):.0f}", *[""] * 3


def in_own_process(images: Path | None, folder: Path, name: str, **settings: float) -> Measured:
    """Return what a run finds in a process of its own."""
    kept = folder / "weights.npy"
    command = [sys.executable, __file__, "--alone", json.dumps({"name": name, "kept": str(kept), **settings})]
    began = time.perf_counter()
    done = subprocess.run(
        command + (["--images", str(images)] if images else []), stdout=subprocess.PIPE, text=True, check=True
    )
    found = Measured(json.loads(done.stdout), time.perf_counter() - began, np.load(kept))
    print(f"{name} {settings}: {found.row[1]}, {found.seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def run(images: Path | None, name: str, kept: str, steps: int, rtol: float | None = None) -> list:
    """Return what the table says of one run, whose weights at the end, of descent those of its centre, are `kept`."""
    X, labels = made_images() if images is None else cifar_images(images)
    targets = jax.nn.one_hot(labels, CLASSES, dtype=jnp.float32)
    problem = flowsim.EmpiricalRisk(jnp.asarray(X), targets, HalfSquaredError())
    gelu = partial(jax.nn.gelu, approximate=False)
    network = eqx.nn.MLP(X.shape[1], CLASSES, 256, 2, activation=gelu, key=jax.random.key(0))
    if name == "descent":
        options = {"learning_rate": RATE, "steps": steps - 1, "record_steps": [steps - 1]}
        found = flowsim.descend(network, problem, stopping=FOREVER, **options)
        weights, steps_taken = centre(found.network, problem), f"{steps} steps"
    else:
        model = MODELS[name](RATE, rtol=rtol) if name in MODELS else None
        tolerance = {} if model else {"rtol": rtol}
        found = flowsim.integrate(network, problem, model=model, t1=RATE * steps, ts=[], stopping=FOREVER, **tolerance)
        weights, steps_taken = split(found.network)[0], f"t = {float(found.time):g}"
    np.save(kept, np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weights)]))
    counts = int(found.steps), int(found.gradients), int(found.products)
    ends = f"{found.outcome.name}, {steps_taken}"
    return [name, ends, float(found.final_risk), float(found.final_sharpness), *counts, peak_bytes() / 1e9]


def centre(network: eqx.Module, problem: flowsim.Problem) -> object:
    """Return (W_{k−1} + 2W_k + W_{k+1})/4 of descent, from the network at W_{k−1}."""
    field, before = gradient_field(network, problem)

    def stepped(weights: object) -> object:
        return jax.tree.map(lambda w, g: w - RATE * g, weights, jax.grad(field.objective)(weights))

    here = stepped(before)
    return jax.tree.map(lambda a, b, c: (a + 2 * b + c) / 4, before, here, stepped(here))


def made_images() -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 3072) and the numbers of their classes (n,)."""
    rng = np.random.default_rng(0)
    frequency = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.rfftfreq(32)[None])
    frequency[0, 0] = np.inf

    def fields(count: int) -> np.ndarray:
        drawn = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(count, 32, 32))) / frequency, s=(32, 32))
        return drawn[:, None] / drawn.std()

    labels = np.arange(SAMPLES) % CLASSES
    X = (1 - BRIGHTNESS - COLOUR - OF_CLASS) ** 0.5 * fields(SAMPLES)
    X = X + BRIGHTNESS**0.5 * rng.normal(size=(SAMPLES, 1, 1, 1)) + COLOUR**0.5 * rng.normal(size=(SAMPLES, 3, 1, 1))
    return (X + OF_CLASS**0.5 * fields(CLASSES)[labels]).reshape(SAMPLES, -1).astype(np.float32), labels


def cifar_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 3072) of four classes, whose channels have mean zero and variance one over CIFAR-10."""
    source = flowsim.data.SOURCES["cifar10"](
        path=str(folder.resolve()), classes=tuple(range(CLASSES)), samples=SAMPLES, scaling="none", labels="index"
    )
    X, labels = source.load(np.random.default_rng(0), Path()).training
    mean, deviation = (255 * np.array(values)[:, None, None] for values in (MEANS, DEVIATIONS))
    return ((X - mean) / deviation).reshape(SAMPLES, -1).astype(np.float32), labels


def norm(weights: np.ndarray) -> float:
    return float(np.linalg.norm(weights.astype(float)))


if __name__ == "__main__":
    main()
