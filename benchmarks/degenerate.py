"""Small starts, and degenerate and half-stable limits: outcomes, orders, and errors over what the tolerance allows.

    python benchmarks/degenerate.py [CASE …] [--quick] [--save]

Flows from small starts run into the middle of a jump. Their weights are compared with a closed form or SciPy's LSODA,
those of models of descent with LSODA on R + (η/4)‖∇R‖², or with the model at a hundredth of its tolerance in float64.
Flows to limits are compared with the limit, and with the time at which the algebra has them where they end. References
start from the rounded numbers of a run. SciPy's are kept in `benchmarks/.references`, which git ignores.
"""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from console import options, start, table
from degenerate_cases import (
    EVERY,
    FLOAT32,
    FLOAT64,
    Case,
    Jump,
    Limit,
    Precision,
    degenerate,
    half_stable,
    of_descent,
    small_starts,
)
from edge_cost import FOREVER, distance, flat, weights_of
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import flowsim
from flowsim import Outcome
from flowsim.networks import split

FOLDER = Path(__file__).parent / ".references"
FINE, PERTURBED, TIGHTER, MOST_STEPS = 1e-11, 1e-7, 1e-2, 5000
# Errors of a whole run over the tolerance of a step; and distances, which an estimate may miss by a tenth.
MOST_ERROR, MOST_DISTANCE = 10, 1.1
# The defaults of the gradient flow and of `Stopping.remaining` in each precision.
RTOL, REMAINING = {FLOAT64: 1e-6, FLOAT32: 1e-4}, {FLOAT64: 1e-6, FLOAT32: 1e-3}
COLUMNS = ("case", "precision", "outcome", "order", "error / (rtol × amplification)", "amplification")
COLUMNS += ("distance / allowed", "steps")
SUMMARY = ("family", "runs", "wrong outcomes", "wrong orders", f"errors above {MOST_ERROR}", "largest error")
SUMMARY += (f"distances above {MOST_DISTANCE}", "largest distance")


@dataclass(frozen=True)
class End:
    """Where a run ended, in float64, and how."""

    weights: np.ndarray
    time: float
    outcome: Outcome
    order: float
    steps: int


def main() -> None:
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only cases whose names contain one of these")
    given = start(parser)
    families = {
        "small starts": small_starts(),
        "models of descent from small starts": of_descent(),
        "degenerate minima": degenerate(),
        "half-stable limits": half_stable(),
    }
    if given.cases:
        families = {
            family: [case for case in cases if any(part in case.name for part in given.cases)]
            for family, cases in families.items()
        }
    if given.quick:
        families = {family: cases[:2] for family, cases in families.items()}
    ends = {}
    for precision in EVERY[: 1 if given.quick else None]:
        # Programs of one setting do not fit the other.
        jax.config.update("jax_enable_x64", precision.x64)
        jax.clear_caches()
        for case in (case for cases in families.values() for case in cases if precision in case.precisions):
            ends[case.name, precision] = end = end_of(case, precision.dtype)
            print(case.name, precision.name, end.outcome, end.steps, sep=", ", flush=True)
    jax.config.update("jax_enable_x64", True)
    jax.clear_caches()

    rows_of = {
        family: [
            row(case, precision, ends[case.name, precision])
            for case in cases
            for precision in case.precisions
            if (case.name, precision) in ends
        ]
        for family, cases in families.items()
    }
    for family, rows in rows_of.items():
        table(family, COLUMNS, rows)
    rows_of["all"] = [row for rows in rows_of.values() for row in rows]
    table("summary", SUMMARY, [summarized(family, rows) for family, rows in rows_of.items()])


def end_of(case: Case, dtype: np.dtype) -> End:
    """Return where a run of a case ends, at its default tolerances."""
    network, problem = case.at(dtype)
    options = {"ts": [], "max_steps": MOST_STEPS}
    if isinstance(case, Jump):
        options |= {"t1": time_of(case), "stopping": FOREVER}
        options |= {} if case.model is None else {"model": case.model()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the weights are float32 while x64 is switched on")
        run = flowsim.integrate(network, problem, **options)
    steps = int(run.steps + run.rejected_steps)
    return End(weights_of(run).astype(float), float(run.time), run.outcome, float(run.order), steps)


def row(case: Case, precision: Precision, end: End) -> tuple:
    """Return the row of a case in a precision."""
    outcome = end.outcome.name if end.outcome == case.outcome else f"WRONG: {end.outcome}, not {case.outcome}"
    errors = errors_in_jump if isinstance(case, Jump) else errors_at_limit
    return case.name, precision.name, outcome, *errors(case, precision.dtype, end), end.steps


def summarized(family: str, rows: list[tuple]) -> tuple:
    """Return the counts of wrong outcomes and of large ratios, and the largest, of the rows of a family."""
    errors, distances = ([row[place] for row in rows if row[place] != "–"] for place in (4, 6))
    wrong = sum("WRONG" in row[2] for row in rows), sum("WRONG" in row[3] for row in rows)
    above = sum(error > MOST_ERROR for error in errors), sum(left > MOST_DISTANCE for left in distances)
    return family, len(rows), *wrong, above[0], max(errors, default="–"), above[1], max(distances, default="–")


def errors_in_jump(case: Jump, dtype: np.dtype, end: End) -> tuple:
    """Return an empty order, the error of the weights over what is allowed, the amplification, and no distance."""
    reference, amplification = reference_of_jump(case, dtype)
    error = distance(end.weights, reference)
    return "–", error / (tolerance(case, dtype) * amplification), amplification, "–"


def errors_at_limit(case: Limit, dtype: np.dtype, end: End) -> tuple:
    """Return the order, the error along the way over what is allowed, its amplification, and the distance left."""
    begin, weights = flat(split(case.at(dtype)[0])[0]).astype(float), end.weights
    # A steady ratio of Newton steps, (k−2)/(k−1), is one to a tenth of 1/(k−1). Two stands for an unknown order, too.
    order = f"{end.order:.3g}"
    if abs(end.order - case.order) > 0.1 * (case.order - 1):
        order = f"unknown ({case.order})" if end.order == 2 else f"WRONG: {order}, not {case.order}"
    limit = limit_of(case, dtype)
    left = float(np.linalg.norm(weights - limit) / np.linalg.norm(begin - limit)) / REMAINING[dtype]
    if case.clock is None:
        return order, "–", "–", left
    # The error in time is one of x, by the speed of x. What rtol allows beside each weight is more beside x, where x is
    # a small part of larger weights.
    x, along = jax.value_and_grad(case.along)(jnp.asarray(weights))
    direction = np.asarray(along / jnp.sum(along**2))
    moved = direction != 0
    amplification = float(1 / np.max(np.abs(direction[moved] * float(x) / weights[moved])))
    error = float(abs((case.clock(x) - end.time) / (x * jax.grad(case.clock)(x))))
    return order, error / (RTOL[dtype] * amplification), amplification, left


def time_of(case: Jump) -> float:
    """Return the time of a case, rounded to float32, so that both precisions end at the same."""
    return float(np.float32(case.t1))


def tolerance(case: Jump, dtype: np.dtype) -> float:
    """Return the relative tolerance of a run at its defaults."""
    return RTOL[dtype] if case.model is None else float(case.model().checked(dtype).rtol)


def reference_of_jump(case: Jump, dtype: np.dtype) -> tuple[np.ndarray, float]:
    """Return the weights, and the factor by which they amplify a relative error of the start, one at least."""
    t1 = time_of(case)
    network, problem = case.at(dtype, FLOAT64)
    begin = flat(split(network)[0])
    if case.exact is not None:
        return case.exact(begin, t1), 1.0
    if case.correction is None:
        # Not kept, as it changes with the model.
        model = case.model(rtol=TIGHTER * tolerance(case, dtype))
        options = {"t1": t1, "ts": [], "max_steps": 20 * MOST_STEPS, "stopping": FOREVER}
        run = flowsim.integrate(network, problem, model=model, **options)
        if run.outcome != Outcome.TIME_LIMIT:
            raise RuntimeError(f"{case.name}: the reference ended as {run.outcome}")
        return weights_of(run), 1.0
    reference = by_scipy(case, dtype, t1)
    signs = np.random.default_rng(0).choice([-1, 1], begin.size)
    moved = by_scipy(case, dtype, t1, begin * (1 + PERTURBED * signs))
    return reference, max(1.0, distance(moved, reference) / PERTURBED)


def limit_of(case: Limit, dtype: np.dtype) -> np.ndarray:
    """Return the limit of a flow, by SciPy where it is no closed form."""
    return by_scipy(case, dtype, case.limit) if isinstance(case.limit, float) else case.limit


def by_scipy(case: Case, dtype: np.dtype, t1: float, begin: np.ndarray | None = None) -> np.ndarray:
    """Return the weights at the time `t1` by LSODA, with an absolute tolerance below any weight's, or what is kept.

    That is of the flow of a case from its start, or from another one.
    """
    network, problem = case.at(dtype, FLOAT64)
    weights, rest = split(network)
    begin = flat(weights) if begin is None else begin
    unravel = ravel_pytree(weights)[1]
    correction = case.correction if isinstance(case, Jump) else 0.0

    def objective(vector: jax.Array) -> jax.Array:
        return problem.objective(eqx.combine(unravel(vector), rest))

    def corrected(vector: jax.Array) -> jax.Array:
        return objective(vector) + correction * jnp.sum(jax.grad(objective)(vector) ** 2)

    gradient = jax.jit(jax.grad(corrected if correction else objective))
    digest = hashlib.sha256(f"{jax.make_jaxpr(gradient)(begin)} {t1} {FINE}".encode())
    for numbers in (begin, *jax.tree.leaves(eqx.filter(problem, eqx.is_array_like))):
        digest.update(np.asarray(numbers).tobytes())
    file = FOLDER / f"degenerate-{digest.hexdigest()[:16]}.npy"
    if file.exists():
        return np.load(file)
    tolerances = {"rtol": FINE, "atol": 1e-2 * FINE * np.abs(begin[begin != 0]).min()}
    solution = solve_ivp(lambda t, w: -np.asarray(gradient(w)), (0, t1), begin, "LSODA", **tolerances)
    if not solution.success:
        raise RuntimeError(f"{case.name}: SciPy gave up: {solution.message}")
    FOLDER.mkdir(exist_ok=True)
    np.save(file, solution.y[:, -1])
    return solution.y[:, -1]


if __name__ == "__main__":
    main()
