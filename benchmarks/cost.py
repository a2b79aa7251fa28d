"""What a run costs: data, compilation, arithmetic, import."""

import statistics
import subprocess
import sys
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, residual
from console import begin, table
from plain import PlainProblem
from timing import once, warm_seconds

import flowsim

DEPENDENCIES = "jax, diffrax, equinox, jaxtyping, numpy"


def main() -> None:
    quick = begin("cost: gradients and samples, compilation and depth, time for each step, import")
    columns = ("n", "reduction, ms", "gradient, µs", "ratio", "gradient through the data, µs", "ratio")
    table("gradient of a residual network, L = 10, d = 5", columns, sample_rows())
    columns = ("L", "first call, s", "warm call, ms", "compilation, s", "ratio", "lowered program, kB", "ratio")
    columns += ("gradient as a Python loop, lowered, kB", "ratio")
    table("compilation of integrate, residual network, d = 5", columns, compile_rows(1 if quick else 3))
    columns = (
        "L",
        "d",
        "p",
        "gradient, µs",
        "gradients",
        "products",
        "their sum · a gradient, ms",
        "run, ms",
        "run / sum",
    )
    columns += ("with records, ms", "with records / without", "call with one step, ms")
    sizes = [(10, 5), (100, 5), (10, 50)] if quick else [(10, 5), (100, 5), (1000, 5), (10, 50), (10, 100)]
    table("warm runs of integrate to the limit", columns, [run_row(depth, width) for depth, width in sizes])
    columns = ("statement", "median, s", "added by flowsim, s", "ratio")
    table("import in fresh processes", columns, import_rows(3 if quick else 11))


def sample_rows() -> list[tuple]:
    cases = [residual(samples=samples) for samples in (50, 1_000_000)]
    reduction = warm_seconds(*(lambda c=c: flowsim.LinearRegression(c.X, c.y) for c in cases), repeats=5)
    reduced = gradient_seconds(cases, [reduced_objective(case) for case in cases], count=2000)
    unreduced = gradient_seconds(cases, [unreduced_objective(case) for case in cases], count=20)
    rows = zip(cases, reduction, reduced, unreduced, strict=True)
    return [(len(c.X), 1e3 * r, 1e6 * g, g / reduced[0], 1e6 * u, u / unreduced[0]) for c, r, g, u in rows]


def reduced_objective(case: Case) -> Callable:
    return lambda stacks: case.problem.objective(with_stacks(case, stacks))


def unreduced_objective(case: Case) -> Callable:
    X, y = jnp.asarray(case.X), jnp.asarray(case.y)
    return lambda stacks: jnp.mean((y - X @ with_stacks(case, stacks).regressor()) ** 2)


def with_stacks(case: Case, stacks: tuple) -> flowsim.DeepLinear:
    return eqx.tree_at(lambda network: network.stacks, case.network, stacks)


def gradient_seconds(cases: list[Case], objectives: list, *, count: int) -> list[float]:
    """Return the time of one gradient of each objective."""

    def steps(objective: Callable) -> Callable:
        return lambda stacks: jax.tree.map(lambda w, g: w - 1e-9 * g, stacks, jax.grad(objective)(stacks))

    return looped_seconds(cases, [steps(objective) for objective in objectives], count=count)


def looped_seconds(cases: list[Case], steps: list[Callable], *, count: int) -> list[float]:
    """Return the time of one step of each, from `count` in a compiled loop: no dispatch is in it."""

    def loop(step: Callable) -> Callable:
        return jax.jit(lambda stacks: jax.lax.fori_loop(0, count, lambda _, state: step(state), stacks))

    loops = [loop(step) for step in steps]
    calls = [lambda f=f, c=c: f(c.network.stacks) for f, c in zip(loops, cases, strict=True)]
    return [seconds / count for seconds in warm_seconds(*calls)]


def compile_rows(repeats: int) -> list[tuple]:
    rows, first = [], None
    for depth in (10, 100, 1000):
        case = residual(depth=depth)
        cold = min(cold_seconds(case) for _ in range(repeats))
        (warm,) = warm_seconds(lambda case=case: flowsim.integrate(case.network, case.problem))
        run = jax.jit(lambda s, case=case: flowsim.integrate(with_stacks(case, s), case.problem).network.stacks)
        lowered = len(run.lower(case.network.stacks).as_text()) / 1e3
        plain = PlainProblem(case)
        unrolled = len(jax.jit(jax.grad(plain.risk)).lower(jnp.asarray(plain.start)).as_text()) / 1e3
        sizes = np.array([cold - warm, lowered, unrolled])
        first = sizes if first is None else first
        ratios = (sizes / first).tolist()
        rows.append((depth, cold, 1e3 * warm, cold - warm, ratios[0], lowered, ratios[1], unrolled, ratios[2]))
    return rows


def cold_seconds(case: Case) -> float:
    """Return the time of a first call, with nothing compiled before."""
    jax.clear_caches()
    return once(lambda: flowsim.integrate(case.network, case.problem))


def run_row(depth: int, width: int) -> tuple:
    """Compare a run with its gradients and products, each at the price of a gradient."""
    case = residual(depth=depth, width=width, samples=10 * width)
    (gradient,) = gradient_seconds([case], [reduced_objective(case)], count=200)

    def run(**options: object) -> flowsim.Trajectory:
        return flowsim.integrate(case.network, case.problem, **options)

    end = run(ts=[])
    counts = int(end.gradients), int(end.products)
    model = sum(counts) * gradient
    seconds, recorded, one = warm_seconds(lambda: run(ts=[]), run, lambda: run(ts=[], max_steps=1))
    ratios = (1e3 * recorded, recorded / seconds, 1e3 * one)
    return (depth, width, case.size, 1e6 * gradient, *counts, 1e3 * model, 1e3 * seconds, seconds / model, *ratios)


def import_rows(repeats: int) -> list[tuple]:
    rounds = [(import_seconds(DEPENDENCIES), import_seconds("flowsim")) for _ in range(repeats)]
    dependencies, own = (statistics.median(times) for times in zip(*rounds, strict=True))
    return [
        (f"import {DEPENDENCIES}", dependencies, "", 1.0),
        ("import flowsim", own, own - dependencies, own / dependencies),
    ]


def import_seconds(names: str) -> float:
    code = f"import time; began = time.perf_counter(); import {names}; print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
