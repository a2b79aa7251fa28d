"""What a run costs: data, compilation, steps, import."""

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
# Six new stages of Tsit5 and one gradient for the stopping rule, beside the Hessian–vector product of the sharpness
# limit; in operations, that product is worth three gradients.
GRADIENTS_PER_STEP = 6 + 1
OPERATIONS_PER_STEP = GRADIENTS_PER_STEP + 3


def main() -> None:
    quick = begin("cost: gradients and samples, compilation and depth, time for each step, import")
    columns = ("n", "reduction, ms", "gradient, µs", "ratio", "gradient through the data, µs", "ratio")
    table("gradient of a residual network, L = 10, d = 5", columns, sample_rows())
    columns = ("L", "first call, s", "warm call, ms", "compilation, s", "ratio", "lowered program, kB", "ratio")
    columns += ("gradient as a Python loop, lowered, kB", "ratio")
    table("compilation of integrate, residual network, d = 5", columns, compile_rows(1 if quick else 3))
    columns = ("L", "d", "p", "gradient, µs", "product Hv, µs", "model: 7 gradients + 1 product, µs", "step, µs")
    columns += ("step / model", "step / gradient", "with records / without", "call with one step, ms")
    columns += ("GFLOP/s, gradient", "step")
    sizes = [(10, 5), (100, 5), (10, 50)] if quick else [(10, 5), (100, 5), (1000, 5), (10, 50), (10, 100)]
    table("warm steps of integrate", columns, [step_row(depth, width) for depth, width in sizes])
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


def product_seconds(case: Case, *, count: int) -> float:
    """Return the time of one Hessian–vector product, forward over reverse."""
    gradient = jax.grad(reduced_objective(case))

    def step(stacks: tuple) -> tuple:
        _, image = jax.jvp(gradient, (stacks,), (stacks,))
        return jax.tree.map(lambda w, g: w - 1e-9 * g, stacks, image)

    return looped_seconds([case], [step], count=count)[0]


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


def step_row(depth: int, width: int) -> tuple:
    case = residual(depth=depth, width=width, samples=10 * width)
    (gradient,) = gradient_seconds([case], [reduced_objective(case)], count=200)
    product = product_seconds(case, count=200)
    model = GRADIENTS_PER_STEP * gradient + product
    call, step, recorded_step = call_and_step_seconds(case)
    # Two matrix–vector products and an outer product for each layer.
    operations = 5 * case.size
    micro = tuple(1e6 * seconds for seconds in (gradient, product, model, step))
    ratios = (step / model, step / gradient, recorded_step / step)
    speed = (operations / gradient / 1e9, OPERATIONS_PER_STEP * operations / step / 1e9)
    return (depth, width, case.size, *micro, *ratios, 1e3 * call, *speed)


def call_and_step_seconds(case: Case) -> tuple[float, float, float]:
    """Return the time of a call that makes one step, of one more step, and of one more with records now and then."""

    def run(steps: int, ts: list[float] | None) -> flowsim.Trajectory:
        end = flowsim.integrate(case.network, case.problem, rtol=1e-12, max_steps=steps, ts=ts)
        assert end.outcome == flowsim.Outcome.STEP_LIMIT, f"ended after {end.steps}: {end.outcome.name}"
        return end

    never = [1e9]
    kinds = [(1, None), (20, never), (120, never), (20, None), (120, None)]
    calls = [lambda steps=steps, ts=ts: run(steps, ts) for steps, ts in kinds]
    one, few, many, few_recorded, many_recorded = warm_seconds(*calls)
    return one, (many - few) / 100, (many_recorded - few_recorded) / 100


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
