"""What the models of descent cost: adaptive steps against Euler's, and against descent itself.

    python benchmarks/edge_cost.py [--quick] [--large] [--networks]

`scenarios/edge_of_stability.yaml` at η = 0.1. Errors are relative distances of the weights at the end from the same
flow at rtol 1e-9. Work is in gradients and in products with the Hessian; a contraction of the third derivative counts
as three products. Euler's steps of the central flow are those of its public implementation (Cohen et al. 2024): of
length η/4, with eigenvectors found from where they were by products alone, and a complementarity problem at the end of
each step. They run in one compiled loop, and adaptive flows without records. `--large` takes a network of 102 895
weights in float32, each run in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import options, start, table
from large_flow import peak_bytes

import flowsim
from flowsim.curvature import vectors
from flowsim.curvature.davidson import ritz_space
from flowsim.curvature.third_derivative import contraction
from flowsim.edge.complementarity import complementary_covariance, in_basis, symmetric_basis
from flowsim.networks import split
from flowsim.scenarios import build, read_scenario
from flowsim.solvers.field import gradient_field

SCENARIO = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
ETA, HELD, REFERENCE = 0.1, 2, 1e-9
FOREVER = flowsim.Stopping(gradient_norm=None)
Run = Callable[[], tuple[np.ndarray, int]]
MODELS = {"central": flowsim.CentralFlow, "edge": flowsim.EdgeFlow}
COLUMNS = ("flow", "to t", "method", "steps", "gradients", "products", "error", "seconds, warm")
NETWORKS = ("flow", "weights", "S", "steps", "gradients", "products", "first call, s", "warm, s", "warm, of descent's")
LARGE = ("flow", "η", "t", "ends", "S", "steps", "gradients", "products", "seconds, with compilation", "peak, GB")


def main() -> None:
    parser = options("the cost of models of descent")
    parser.add_argument("--large", action="store_true", help="only digits with 102 895 weights in float32")
    parser.add_argument("--networks", action="store_true", help="only tanh networks, with first calls")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", not given.large)
    if given.alone:
        print(json.dumps(tanh_network(*given.alone.split()) if given.networks else large(given.alone)))
        return
    start(parser)
    if given.networks:
        table("tanh networks, η = 0.1, t = 120", NETWORKS, tanh_networks())
        return
    if given.large:
        names = ("gradient", "descent", "edge", "central")
        table("102 895 weights in float32", LARGE, (in_own_process("--large", name) for name in names))
        return
    problem, network, _ = build(read_scenario(SCENARIO), SCENARIO.parent)
    rows = []
    for t1 in (40.0,) if given.quick else (40.0, 400.0):
        rows += against_euler(network, problem, t1, given.quick)
        rows.append(by_descent(network, problem, t1))
    table("edge_of_stability.yaml, η = 0.1", COLUMNS, rows)


def against_euler(network: eqx.Module, problem: flowsim.Problem, t1: float, quick: bool) -> list[tuple]:
    """Return rows for both models, adaptive at three tolerances, and by Euler's method."""
    rows = []
    for name, model in MODELS.items():
        reference = weights_of(adaptive(network, problem, model(ETA, rtol=REFERENCE), t1))
        for rtol in (1e-2, 1e-3, 1e-4):
            run, seconds = timed(lambda m: adaptive(network, problem, m, t1), model(ETA, rtol=rtol))
            counts = int(run.steps), int(run.gradients), int(run.products)
            rows.append((name, t1, f"rtol {rtol:g}", *counts, distance(weights_of(run), reference), seconds))
        euler, gradients_per_step, finest = EULER[name]
        for parts in (4, 8) if quick else (4, 8, finest):
            (found, products), seconds = timed(lambda flow: flow(), euler(network, problem, t1, ETA / parts))
            steps = round(t1 / ETA) * parts
            counts = steps, steps * gradients_per_step, products
            rows.append((name, t1, f"Euler, η/{parts}", *counts, distance(found, reference), seconds))
    return rows


def timed(run: Callable, argument: object) -> tuple:
    """Return what the second of two runs finds, and its seconds."""
    jax.block_until_ready(run(argument))
    began = time.perf_counter()
    found = jax.block_until_ready(run(argument))
    return found, time.perf_counter() - began


def by_descent(network: eqx.Module, problem: flowsim.Problem, t1: float) -> tuple:
    """Return the row of descent itself."""
    steps = round(t1 / ETA)

    def run(rate: float) -> flowsim.Trajectory:
        return flowsim.descend(
            network, problem, learning_rate=rate, steps=steps, record_steps=[steps], stopping=FOREVER
        )

    _, seconds = timed(run, ETA)
    return "descent", t1, "", steps, steps, 0, "–", seconds


def adaptive(
    network: eqx.Module, problem: flowsim.Problem, model: flowsim.DescentModel, t1: float
) -> flowsim.Trajectory:
    """Return a run without records."""
    return flowsim.integrate(network, problem, model=model, t1=t1, ts=[], stopping=FOREVER)


def weights_of(run: flowsim.Trajectory) -> np.ndarray:
    return flat(split(run.network)[0])


def flat(weights: object) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weights)])


def distance(found: np.ndarray, reference: np.ndarray) -> float | str:
    if not np.isfinite(found).all():
        return "diverges"
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def euler_edge(network: eqx.Module, problem: flowsim.Problem, t1: float, length: float) -> Run:
    """Return a run of the edge flow of order two in Euler steps, which returns the centre and its products."""
    field, weights = gradient_field(network, problem)
    model = flowsim.EdgeFlow(ETA).checked(jnp.dtype(float))
    start = jax.jit(lambda weights: model.start(field, weights))(weights)
    over, steps = model.vector_field(field.along(start.flattened_by)), round(t1 / length)

    @jax.jit
    def run(point: object) -> object:
        def step(_: int, point: object) -> object:
            return jax.tree.map(lambda y, f: y + length * f, point, over(None, point, None))

        return jax.lax.fori_loop(0, steps, step, point).centre

    return lambda: (flat(run(start.point)), 3 * steps)


def euler_central(network: eqx.Module, problem: flowsim.Problem, t1: float, length: float) -> Run:
    """Return a run of the central flow in Euler steps with two eigenvalues, which returns weights and products."""
    field, weights = gradient_field(network, problem)
    basis = symmetric_basis(HELD)
    places = [tuple(np.argwhere(matrix)[0]) for matrix in basis]
    units = np.array([1.0 if i == j else np.sqrt(2) for i, j in places])

    def step(_: int, state: tuple) -> tuple:
        w, rows, spent = state
        gradient, product = jax.linearize(jax.grad(field.objective), w)
        options = {"begun": HELD, "wanted": HELD, "rtol": 1e-4}
        pairs = ritz_space(product, rows, lambda r, _: jax.tree.map(jnp.negative, r), **options).pairs(1e-4)
        u = [vectors.row(pairs.vectors, i) for i in range(HELD)]
        third = [contraction(field.objective, w, u[i], u[j])[1] for i, j in places]
        tangents = jax.tree.map(lambda *rows: jnp.stack([a * row for a, row in zip(units, rows, strict=True)]), *third)
        gram, rate = vectors.gram(tangents, tangents) / 2, -vectors.inner_products(tangents, gradient)
        drive = jnp.tensordot(rate, jnp.asarray(basis), 1) + jnp.diag(pairs.values - 2 / ETA) / length
        covariance = complementary_covariance(gram, drive, jnp.array(HELD))
        pushed = vectors.combination(in_basis(covariance) / 2, tangents)
        moved = jax.tree.map(lambda y, g, t: y - length * (g + t), w, gradient, pushed)
        return moved, pairs.vectors, spent + pairs.products + 3 * len(units)

    @jax.jit
    def run(weights: object) -> tuple:
        rows = jax.vmap(lambda seed: vectors.scattered_like(weights, seed))(jnp.arange(HELD))
        w, _, spent = jax.lax.fori_loop(0, round(t1 / length), step, (weights, rows, jnp.array(0)))
        return w, spent

    def ended() -> tuple[np.ndarray, int]:
        found, products = run(weights)
        return flat(found), int(products)

    return ended


# The run, gradients in a step, and the finest step as a part of η.
EULER = {"central": (euler_central, 1, 16), "edge": (euler_edge, 3, 32)}


def in_own_process(kind: str, name: str) -> tuple:
    command = [sys.executable, __file__, kind, "--alone", name]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def tanh_networks() -> Iterator[tuple]:
    """Yield what runs of two networks took, each beside descent's own seconds."""
    for inputs, width in ((5, 14), (8, 40)):
        runs = [in_own_process("--networks", f"{name} {inputs} {width}") for name in ("descent", "edge", "central")]
        for run in runs:
            yield *run, run[-1] / runs[0][-1]


def tanh_network(name: str, inputs: str, width: str, rate: float = 0.1, steps: int = 1200, samples: int = 60) -> tuple:
    """Return what a run of a tanh network with one output took: steps, work, and seconds, the first time and warm."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(samples, int(inputs)))
    targets = np.sin(2 * points[:, 0]) * points[:, 1] + points[:, 2] ** 2 / 2 - np.abs(points[:, 3]) / 2
    problem = flowsim.EmpiricalRisk(jnp.asarray(points), jnp.asarray(targets))
    network = eqx.nn.MLP(int(inputs), "scalar", int(width), 2, activation=jnp.tanh, key=jax.random.key(0))

    def run() -> flowsim.Trajectory:
        if name == "descent":
            options = {"learning_rate": rate, "steps": steps, "record_steps": [steps]}
            return flowsim.descend(network, problem, stopping=FOREVER, **options)
        return adaptive(network, problem, MODELS[name](rate), rate * steps)

    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        found = jax.block_until_ready(run())
        seconds.append(time.perf_counter() - began)
    sharpness, weights = f"{found.final_sharpness:.4f}", sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))
    counts = int(found.steps), int(found.gradients), int(found.products)
    return name, weights, sharpness, *counts, seconds[0], min(seconds[1:])


def large(name: str, rate: float = 0.05, t1: float = 20.0) -> tuple:
    """Return what a run of a tanh network on digits took, without a matrix of the size of its weights."""
    source = flowsim.data.SOURCES["digits"](samples=300)
    digits = source.load(np.random.default_rng(0), Path()).flattened().training
    images, targets = jnp.asarray(digits[0], jnp.float32), jax.nn.one_hot(digits[1], 10, dtype=jnp.float32)
    problem = flowsim.EmpiricalRisk(images, targets, flowsim.losses.SquaredError())
    network = eqx.nn.MLP(64, 10, 285, 2, activation=jnp.tanh, key=jax.random.key(0))
    began = time.perf_counter()
    if name == "descent":
        steps = round(t1 / rate)
        run = flowsim.descend(network, problem, learning_rate=rate, steps=steps, record_steps=[steps], stopping=FOREVER)
    else:
        model = MODELS[name](rate) if name in MODELS else None
        run = flowsim.integrate(network, problem, model=model, t1=t1, ts=[], stopping=FOREVER)
    jax.block_until_ready(run)
    seconds = time.perf_counter() - began
    counts = (int(run.steps), int(run.gradients), int(run.products))
    ends = f"{run.outcome.name}, R = {run.final_risk:.4g}"
    sharpness = f"{run.final_sharpness:.4g}"
    return name, rate, f"{float(run.time):g}", ends, sharpness, *counts, f"{seconds:.1f}", f"{peak_bytes() / 1e9:.2f}"


if __name__ == "__main__":
    main()
