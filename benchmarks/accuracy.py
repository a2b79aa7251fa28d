"""How exact are the final weights of the flow, and how well is its conservation law kept?"""

import time
from itertools import pairwise

import numpy as np
from cases import Case, every, perceptron, residual
from console import begin, table
from plain import PlainProblem, flat, relative_error
from timing import warm_seconds

import flowsim

TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10)
# Close enough to the limit for the distance left not to hide the error of the path.
CLOSE = flowsim.Stopping(gradient_norm=1e-12)
GRADIENT_DESCENT_TIME = 2.0
LEARNING_RATES = tuple(2.0**-k for k in range(10, 15))


def main() -> None:
    quick = begin("accuracy: final weights of integrate against SciPy's DOP853 on a NumPy gradient, and drift")
    cases = [residual(), perceptron(0.3)] if quick else every()
    columns = (
        "case",
        "rtol",
        "error",
        "error/rtol",
        "error, default stop",
        "drift",
        "steps",
        "rejected",
        "ms",
    )
    columns += ("SciPy's time / time", "outcome")
    rows = [row for case in cases for row in integration_rows(case)]
    table("integrate to ‖∇R‖ ≤ 1e-12 (default stop: 1e-8); errors relative, in the final weights", columns, rows)
    columns = ("case", *(f"η = 2^{np.log2(rate):.0f}" for rate in LEARNING_RATES), "slope")
    title = f"drift of gradient descent up to time {GRADIENT_DESCENT_TIME:g} (expected slope: 1)"
    table(title, columns, [descent_row(case) for case in cases])


def integration_rows(case: Case) -> list[tuple]:
    """One row for SciPy, whose error is its distance to itself at rtol 1e-13, and one for each rtol."""
    plain = PlainProblem(case)
    limit = plain.limit(rtol=1e-13)
    began = time.perf_counter()
    own_error = relative_error(plain.limit(rtol=1e-12), limit)
    seconds = time.perf_counter() - began
    name = f"{case.name} (p = {case.size})"
    reference = (name, "SciPy 1e-12", own_error, own_error / 1e-12, "", "", "", "", 1e3 * seconds, 1.0, "")
    return [reference, *(integration_row(case, rtol, limit, seconds) for rtol in TOLERANCES)]


def integration_row(case: Case, rtol: float, limit: np.ndarray, reference_seconds: float) -> tuple:
    def run(stopping: flowsim.Stopping | None = CLOSE, weights: bool = False) -> flowsim.Trajectory:
        return flowsim.integrate(case.network, case.problem, rtol=rtol, stopping=stopping, weights=weights)

    end = run()
    error = relative_error(flat(end.network), limit)
    loose_error = relative_error(flat(run(stopping=None).network), limit)
    (seconds,) = warm_seconds(run)
    counts = (int(end.steps), int(end.rejected_steps))
    ratio = reference_seconds / seconds
    drift = largest_drift(run(weights=True).weights)
    return (
        "",
        rtol,
        error,
        error / rtol,
        loose_error,
        drift,
        *counts,
        1e3 * seconds,
        ratio,
        end.outcome.name,
    )


def descent_row(case: Case) -> tuple:
    drifts = []
    for rate in LEARNING_RATES:
        steps = round(GRADIENT_DESCENT_TIME / rate)
        run = flowsim.descend(case.network, case.problem, learning_rate=rate, steps=steps, weights=True)
        drifts.append(largest_drift(run.weights))
    slope = np.polyfit(np.log(LEARNING_RATES), np.log(drifts), 1)[0]
    return (case.name, *drifts, float(slope))


def largest_drift(path: flowsim.DeepLinear) -> float:
    """Return max over time and k < L of ‖(W_{k+1}ᵀW_{k+1} − W_kW_kᵀ)(t) − (the same at 0)‖_F."""
    weights = [stack[:, layer] for stack in map(np.asarray, path.stacks) for layer in range(stack.shape[1])]
    balances = [above.mT @ above - below @ below.mT for below, above in pairwise(weights)]
    return max(float(np.linalg.norm(b - b[:1], axis=(1, 2)).max()) for b in balances)


if __name__ == "__main__":
    main()
