"""A stretch of flow of networks with 10⁶ weights on 5000 images in float32, without and with ten records of sharpness.

Each run has a process of its own: seconds include the compilation, and memory is the peak of the process.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import options, start, table
from large_flow import peak_bytes

import flowsim
from flowsim.networks import split
from flowsim.runtime.memory import in_bytes

SHAPE, CLASSES = (3, 16, 16), 10
# Of an eigenvalue; the last record has flowsim's default.
RTOL = 1e-3
COLUMNS = ("network", "p", "records", "t", "pass over the samples", "samples at once", "S at the start and the end")
COLUMNS += ("risk at the start and the end", "method", "steps", "rejected", "gradients", "products")
COLUMNS += ("seconds, with compilation", "peak of the process, GB", "of it before the run, GB")


def main() -> None:
    parser = arguments()
    if parser.parse_args().alone:
        print(json.dumps(row(parser.parse_args())))
        return
    given = start(parser)
    rows = []
    for kind in given.networks:
        for records in given.records:
            rows.append(in_own_process(kind, records, given))
            table(f"to t = {given.t:g}", COLUMNS, rows)


def arguments() -> argparse.ArgumentParser:
    parser = options("large networks: 10⁶ weights on n images in float32, at the default tolerances")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--records", nargs="+", type=int, default=[0, 10], help="numbers of records of the sharpness")
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--chunk", type=int, help="samples at once; chosen by flowsim unless told")
    parser.add_argument("--t", type=float, default=0.5, help="end of the stretch")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser


def in_own_process(kind: str, records: int, given: argparse.Namespace) -> tuple:
    samples = 500 if given.quick else given.samples
    command = [sys.executable, __file__, "--alone", "--networks", kind, "--records", str(records), "--t", str(given.t)]
    command += ["--samples", str(samples), *(["--chunk", str(given.chunk)] if given.chunk else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def row(given: argparse.Namespace) -> tuple:
    """Return what a run of one network is and took."""
    (kind,), (records,) = given.networks, given.records
    network, problem = NETWORKS[kind](), images(given.samples, given.chunk)
    before, began = peak_bytes(), time.perf_counter()
    ts = np.linspace(0, given.t, records) if records else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        end = jax.block_until_ready(flowsim.integrate(network, problem, t1=given.t, ts=ts, weights=records > 0))
    flow_seconds = time.perf_counter() - began
    if records:
        end = flowsim.SharpnessAlong(records=records, rtol=RTOL).added_to(end)
    seconds = f"{time.perf_counter() - began:.1f}, {flow_seconds:.1f} of them the flow"
    ends = "–" if end.sharpness is None else f"{float(end.sharpness[0]):.4g}, {end.final_sharpness:.4g}"
    risks = f"{float(problem(network)):.4g}, {end.final_risk:.4g}"
    size = sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))
    memory = in_bytes(problem.pass_bytes(network)), problem.samples_at_once(network) or "all"
    counts = (int(count) for count in (end.steps, end.rejected_steps, end.gradients, end.products))
    known = (kind, size, records or "the end", float(end.time), *memory, ends, risks, end.method, *counts)
    return (*known, seconds, f"{peak_bytes() / 1e9:.2f}", f"{before / 1e9:.2f}")


def images(samples: int, chunk: int | None) -> flowsim.EmpiricalRisk:
    """Return images of ten classes, each a mean image and noise, by cross-entropy."""
    rng = np.random.default_rng(0)
    classes = rng.integers(CLASSES, size=samples)
    X = 0.5 * rng.standard_normal((CLASSES, *SHAPE))[classes] + rng.standard_normal((samples, *SHAPE))
    return flowsim.EmpiricalRisk(X, classes, flowsim.losses.CrossEntropy(), chunk_size=chunk)


class Flattened(eqx.Module):
    """A perceptron that takes images."""

    perceptron: flowsim.Perceptron

    def __call__(self, image: jax.Array) -> jax.Array:
        return self.perceptron(jnp.ravel(image))


def perceptron() -> Flattened:
    widths = [int(np.prod(SHAPE)), 680, 680, CLASSES]
    drawn = {"scale": 1.0, "fan_in": True, "biases": True, "activation": "tanh", "key": jax.random.key(0)}
    return Flattened(flowsim.Perceptron.gaussian(widths=widths, **drawn))


def convolutional() -> flowsim.Convolutional:
    return flowsim.Convolutional.gaussian(SHAPE, (32, 64), CLASSES, pooling=2, dense=(940,), key=jax.random.key(0))


NETWORKS = {"perceptron": perceptron, "convolution": convolutional}

if __name__ == "__main__":
    main()
