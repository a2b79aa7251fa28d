"""Weight decay as λ → 0: what the flow costs, and how far it is from the slow flow behind it.

    python benchmarks/slow_flow.py [linear] [outputs] [tanh] [gelu] [--quick] [--save]

For every case and start: the gradient flow of the risk to its limit, from there the norm flow, and from the start the
gradient flow of R + (λ/2)‖W‖², with λ = 1e-2 to 1e-6, compared with it at the times λt = 0.25 to 4. Both run at a
relative tolerance of 1e-8, the gradient flow to ‖∇R‖ = 1e-12. The order is the slope of the logarithm of the largest
of these distances over that of λ. The last table goes on to the limits at the standard tolerances: for linear networks
with one output the norm flow's has ‖W‖² = L‖w*‖^(2/L).
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import options, start, table

import flowsim
from flowsim.curvature import vectors
from flowsim.networks import split

DECAYS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
TIMES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
STARTS = 4


def samples(seed: int, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return 20 inputs of five features, and the sine of random combinations of them."""
    draws = np.random.default_rng(seed)
    X = draws.standard_normal((20, 5))
    y = np.sin(X @ draws.standard_normal((5, outputs)))
    return X, y[:, 0] if outputs == 1 else y


def linear(seed: int, outputs: int = 1) -> tuple[flowsim.Problem, Any]:
    """Return a deep linear network on least squares."""
    widths = [5, 5, 5, 5, outputs]
    network = flowsim.DeepLinear.gaussian(widths=widths, scale=0.45, key=jax.random.key(seed))
    return flowsim.LinearRegression(*samples(seed, outputs)), network


def perceptron(seed: int, activation: Callable) -> tuple[flowsim.Problem, Any]:
    """Return a perceptron with more weights than samples."""
    network = eqx.nn.MLP(5, 1, 16, 2, activation=activation, key=jax.random.key(seed))
    return flowsim.EmpiricalRisk(*samples(seed)), network


CASES: dict[str, Callable[[int], tuple[flowsim.Problem, Any]]] = {
    "linear": linear,
    "outputs": lambda seed: linear(seed, outputs=3),
    "tanh": lambda seed: perceptron(seed, jnp.tanh),
    "gelu": lambda seed: perceptron(seed, jax.nn.gelu),
}


def distances(run: flowsim.Trajectory, other: flowsim.Trajectory) -> np.ndarray:
    """Return the distances of two runs at their records but the last."""
    apart = vectors.difference(*(eqx.filter(one.weights, eqx.is_array) for one in (run, other)))
    return np.asarray(jax.vmap(vectors.length)(apart))[: len(TIMES)]


def runs_of(case: str, seed: int, decays: tuple[float, ...]) -> tuple[dict, dict]:
    """Return what is measured along the way from one start, and at the limits."""
    problem, network = CASES[case](seed)
    fine = flowsim.Stopping(gradient_norm=1e-12)
    limit = flowsim.integrate(network, problem, rtol=1e-10, stopping=fine, ts=[])
    when = {"weights": True, "t1": TIMES[-1]}
    slow = flowsim.integrate(limit.network, problem, model=flowsim.NormFlow(rtol=1e-8), ts=TIMES, **when)
    row: dict[str, Any] = {"case": case, "start": seed, "limit": limit.outcome.name, "slow": slow.outcome.name}
    row["slow work"] = int(slow.gradients + slow.products)
    row["along"], row["work"] = {}, {}
    for decay in decays:
        decayed = flowsim.RegularizedRisk(problem, decay)
        when = {"weights": True, "t1": TIMES[-1] / decay}
        run = flowsim.integrate(network, decayed, rtol=1e-8, ts=TIMES / decay, **when)
        assert run.outcome.name == "TIME_LIMIT", run.outcome
        row["along"][decay] = distances(run, slow)
        row["work"][decay] = int(run.gradients + run.products)
    ends: dict[str, Any] = {"case": case, "start": seed}
    for name, where, risk, model in (
        ("norm", limit.network, problem, flowsim.NormFlow()),
        *((decay, network, flowsim.RegularizedRisk(problem, decay), None) for decay in decays),
    ):
        run = flowsim.integrate(where, risk, model=model, ts=[])
        size = float(vectors.length(split(run.network)[0])) ** 2
        ends[name] = {"outcome": run.outcome.name, "size": size, "work": int(run.gradients + run.products)}
    # Linear networks with several outputs have the sum of the singular values to the power 2/L.
    if isinstance(problem, flowsim.LinearRegression):
        singular = np.linalg.svd(np.atleast_2d(problem.optimum), compute_uv=False)
        ends["closed form"] = 4 * np.sum(singular ** (2 / 4))
    return row, ends


def order(row: dict) -> float:
    """Return the slope of the logarithm of the largest distance over that of λ, of the three smallest."""
    decays = sorted(row["along"])[:3]
    largest = [np.max(row["along"][decay]) for decay in decays]
    return float(np.polyfit(np.log(decays), np.log(largest), 1)[0])


def along_rows(rows: list[dict], decays: tuple[float, ...]) -> Iterator[tuple]:
    """Yield the largest distance from the norm flow along the way for every λ, and the work."""
    for row in rows:
        largest = (np.max(row["along"][decay]) for decay in decays)
        work = [row["work"][decay] for decay in decays]
        yield row["case"], row["start"], *largest, f"{order(row):.4f}", *work, f"{max(work) / min(work):.2f}"


def end_rows(ends: list[dict], decays: tuple[float, ...]) -> Iterator[tuple]:
    """Yield the squared norms at the limits."""
    for row in ends:
        off = abs(row["norm"]["size"] / row["closed form"] - 1) if "closed form" in row else "–"
        outcomes = {row[name]["outcome"] for name in ("norm", *decays)}
        above = (row["norm"]["size"] - row[decay]["size"] for decay in decays)
        work = [row[decay]["work"] for decay in decays]
        yield (
            row["case"],
            row["start"],
            ", ".join(sorted(outcomes)),
            f"{row['norm']['size']:.8g}",
            off,
            *above,
            row["norm"]["work"],
            f"{min(work)} to {max(work)}",
        )


def main() -> None:
    """Run the cases asked for and print their tables."""
    parser = options("slow flow: weight decay λ as it vanishes")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all of them unless named")
    jax.config.update("jax_enable_x64", True)
    asked = start(parser)
    rows, ends, decays = [], [], DECAYS
    for case in asked.cases or CASES:
        jax.clear_caches()  # programs of other networks would fill the memory of the compiler
        for seed in range(1 if asked.quick else STARTS):
            row, end = runs_of(case, seed, decays)
            rows.append(row)
            ends.append(end)
    lambdas = [f"{decay:g}" for decay in decays]
    table(
        "largest distance from the norm flow up to λt = 4, and gradients + products",
        ("case", "start", *lambdas, "order", *(f"work {one}" for one in lambdas), "most over least"),
        along_rows(rows, decays),
    )
    table(
        "‖W‖² at the limits: of the norm flow, and by how much smaller it is with λ",
        ("case", "start", "outcomes", "norm flow", "off closed form", *lambdas, "work: norm flow", "with λ"),
        end_rows(ends, decays),
    )


if __name__ == "__main__":
    main()
