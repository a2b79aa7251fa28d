"""Stiff risks that know no outputs: the default flow beside SciPy with an exact Hessian, and Diffrax's Tsit5."""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from console import begin, table
from scipy.integrate import solve_ivp
from timing import once

import flowsim

jax.config.update("jax_enable_x64", True)

RTOL = 1e-6
CAP = 20.0
REPEATS = 5
MOST_STEPS = 200_000
METHODS = ("LSODA", "BDF", "Radau")

Objective = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Stiff:
    """A risk of one vector, where its flow starts and ends, and the end in closed form where there is one."""

    name: str
    objective: Objective
    start: np.ndarray
    end: float
    exact: np.ndarray | None = None


class TooLongError(Exception):
    """A run has taken more than `CAP` seconds."""


def main() -> None:
    quick = begin(f"stiff_risks: flows of flowsim.Risk at rtol {RTOL:g}, with exact Hessians for SciPy, warm")
    columns = (
        "risk",
        "weights",
        "t",
        "steps",
        "gradients",
        "products",
        "error",
        "ms",
        "method",
        "error",
        "ms",
        "ratio",
    )
    title = f"the default, and the fastest of {', '.join(METHODS)} and Tsit5 that takes less than {CAP:g} s"
    table(title, columns, [row(one) for one in (list(risks())[::4] if quick else risks())])


def row(one: Stiff) -> tuple:
    gradient, hessian = jax.jit(jax.grad(one.objective)), jax.jit(jax.hessian(one.objective))
    jax.block_until_ready((gradient(one.start), hessian(one.start)))
    expected = one.exact if one.exact is not None else scipys(one, gradient, hessian, "Radau", 1e-10)
    found = [(name, *rival(one, gradient, hessian, name, expected)) for name in METHODS]
    found.append(("Tsit5", *tsit5(one, expected)))
    name, error, seconds = min(found, key=lambda entry: entry[2])
    run = flow_of(one)
    flow = run()
    ours = min(once(run) for _ in range(REPEATS))
    reached = "" if flow.time >= one.end else f"under way at {float(flow.time):.2g}, "
    work = (int(flow.steps + flow.rejected_steps), int(flow.gradients), int(flow.products))
    own = (*work, distance(np.asarray(flow.network), expected), 1e3 * ours)
    print(reached + one.name, flow.method, [(n, f"{e:.1e}", f"{1e3 * s:.3g} ms") for n, e, s in found], flush=True)
    return (reached + one.name, one.start.size, one.end, *own, name, error, 1e3 * seconds, seconds / ours)


def flow_of(one: Stiff) -> Callable[[], flowsim.Trajectory]:
    risk, start = flowsim.Risk(one.objective), jnp.asarray(one.start)
    options = {"ts": [], "rtol": RTOL, "stopping": flowsim.Stopping(gradient_norm=None), "max_steps": MOST_STEPS}
    return lambda: flowsim.integrate(start, risk, t1=one.end, **options)


def rival(one: Stiff, gradient: Callable, hessian: Callable, method: str, expected: np.ndarray) -> tuple[float, float]:
    """Return the error and the seconds of a method of SciPy's, infinite where it takes too long."""
    try:
        error = distance(scipys(one, gradient, hessian, method, RTOL), expected)
        return error, min(once(lambda: scipys(one, gradient, hessian, method, RTOL)) for _ in range(2))
    except TooLongError:
        return math.nan, math.inf


def scipys(one: Stiff, gradient: Callable, hessian: Callable, method: str, rtol: float) -> np.ndarray:
    deadline = time.perf_counter() + CAP * (RTOL / rtol) ** 0.25

    def slope(t: float, y: np.ndarray) -> np.ndarray:
        if time.perf_counter() > deadline:
            raise TooLongError
        return -np.asarray(gradient(y))

    options = {"rtol": rtol, "atol": 1e-3 * rtol, "jac": lambda t, y: -np.asarray(hessian(y))}
    return solve_ivp(slope, (0, one.end), one.start, method, **options).y[:, -1]


def tsit5(one: Stiff, expected: np.ndarray) -> tuple[float, float]:
    """Return the error and the seconds of Diffrax's Tsit5, infinite where it takes too many steps."""

    @jax.jit
    def solve(start: jax.Array) -> diffrax.Solution:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: -jax.grad(one.objective)(y)),
            diffrax.Tsit5(),
            0.0,
            one.end,
            None,
            start,
            stepsize_controller=diffrax.PIDController(rtol=RTOL, atol=1e-3 * RTOL),
            adjoint=diffrax.ForwardMode(),
            max_steps=MOST_STEPS,
            throw=False,
        )

    start = jnp.asarray(one.start)
    solution = solve(start)
    if solution.result != diffrax.RESULTS.successful:
        return math.nan, math.inf
    return distance(np.asarray(solution.ys[-1]), expected), min(once(lambda: solve(start)) for _ in range(REPEATS))


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def risks() -> Iterator[Stiff]:
    rng = np.random.default_rng(0)
    for condition in (1e4, 1e8, 1e12):
        yield least_squares(condition, rng)
    rates = np.geomspace(1e-12, 1, 20)
    yield Stiff("½Σλx², 1e12", lambda w: jnp.sum(rates * w**2) / 2, np.ones(20), 1e12, np.exp(-rates * 1e12))
    yield Stiff(
        "x⁴ + (y − 1)²",
        lambda w: w[0] ** 4 + (w[1] - 1) ** 2,
        np.array([1.0, 0.0]),
        1e6,
        np.array([(1 + 8e6) ** -0.5, 1.0]),
    )
    yield Stiff("x⁴ + 10⁴ (y − x)²", lambda w: w[0] ** 4 + 1e4 * (w[1] - w[0]) ** 2, np.array([1.0, 0.0]), 1e6)
    yield Stiff(
        "x²⁰ + 10⁴ (y − 1)²",
        lambda w: w[0] ** 20 + 1e4 * (w[1] - 1) ** 2,
        np.array([1.0, 0.0]),
        1e6,
        np.array([(1 + 360e6) ** (-1 / 18), 1.0]),
    )
    for bend in (1e2, 1e4, 1e6):
        yield Stiff(
            f"Rosenbrock, {bend:.0e}",
            lambda w, bend=bend: (1 - w[0]) ** 2 + bend * (w[1] - w[0] ** 2) ** 2,
            np.array([-1.2, 1.0]),
            20.0,
        )
    yield pinn(rng)
    X = rng.standard_normal((50, 4))
    y = np.sin(X @ np.ones(4))
    softplus, tanh = ([4, 12, 12, 1], jax.nn.softplus), ([4, 12, 12, 1], jnp.tanh)
    predict, start = network(*softplus, rng)
    yield Stiff("softplus", lambda w: jnp.mean((predict(w, X)[:, 0] - y) ** 2), start, 300.0)
    Z = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 8))
    code, start = network([8, 6, 3, 6, 8], jnp.tanh, rng)
    yield Stiff("autoencoder", lambda w: jnp.mean((code(w, Z) - Z) ** 2), start, 3000.0)
    decayed, start = network(*tanh, rng)
    yield Stiff(
        "weight decay", lambda w: jnp.mean((decayed(w, X)[:, 0] - y) ** 2) + 1e-4 * jnp.sum(w**2), start, 3000.0
    )


def least_squares(condition: float, rng: np.random.Generator) -> Stiff:
    """Forty equations for twenty weights, with the flow from zero to where the slowest mode has learned 1 − 1/e."""
    left, right = (np.linalg.qr(rng.standard_normal((rows, 20)))[0] for rows in (40, 20))
    rates = np.geomspace(1, 1 / condition, 20)
    A, optimum = left * np.sqrt(rates) @ right.T, np.ones(20)
    b = A @ optimum
    exact = right @ ((1 - np.exp(-rates * condition)) * (right.T @ optimum))
    name = f"least squares, {condition:.0e}"
    return Stiff(name, lambda w: jnp.sum((A @ w - b) ** 2) / 2, np.zeros(20), condition, exact)


def pinn(rng: np.random.Generator) -> Stiff:
    """u'' = −π² sin πx on the unit interval, zero at its ends, by a tanh network of two layers."""
    places = jnp.linspace(0, 1, 32)
    predict, start = network([1, 8, 8, 1], jnp.tanh, rng)

    def objective(w: jax.Array) -> jax.Array:
        solution = lambda x: predict(w, x[None])[0]  # noqa: E731
        bend = jax.vmap(jax.grad(jax.grad(solution)))(places)
        ends = solution(jnp.array(0.0)) ** 2 + solution(jnp.array(1.0)) ** 2
        return jnp.mean((bend + jnp.pi**2 * jnp.sin(jnp.pi * places)) ** 2) + 10 * ends

    return Stiff("PINN", objective, start, 3.0)


def network(
    widths: Sequence[int], activation: Callable, rng: np.random.Generator
) -> tuple[Callable[[jax.Array, jax.Array], jax.Array], np.ndarray]:
    """Return the function of a perceptron of one vector of weights, with biases, and a start."""
    shapes = [shape for below, above in itertools.pairwise(widths) for shape in ((above, below), (above,))]
    ends = np.cumsum([math.prod(shape) for shape in shapes])

    def predict(w: jax.Array, x: jax.Array) -> jax.Array:
        parts = [part.reshape(shape) for part, shape in zip(jnp.split(w, ends[:-1]), shapes, strict=True)]
        for layer in range(0, len(parts), 2):
            x = x @ parts[layer].T + parts[layer + 1]
            x = activation(x) if layer < len(parts) - 2 else x
        return x

    return predict, 0.4 * rng.standard_normal(ends[-1])


if __name__ == "__main__":
    main()
