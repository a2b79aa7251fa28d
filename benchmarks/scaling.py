"""How the cost of a flow grows with the condition number of the data and with the number of weights."""

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from adaptive import scipy
from cases import Case, conditioned, residual
from console import table
from courses import Course, NoResultError, ending, faster_gradient, scipy_solve, stopping_of
from plain import flat, relative_error
from rivals import LARGEST_LSODA, flowsim_run
from timing import warm_seconds

ACCURACY = 1e-5
_RTOLS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
_CAP = 10.0
# A run of so many seconds is timed once.
_LONG = 1.0


@dataclass(frozen=True)
class Cost:
    """What the fastest run of a method with error ≤ 1e-5 took at one place `x` of a sweep; no counts for SciPy."""

    method: str
    x: float
    rtol: float
    error: float
    seconds: float
    gradients: int | None = None
    products: int | None = None


def sweeps(*, quick: bool) -> dict[str, list[Cost]]:
    """Measure and print cost against κ, width and depth."""
    kappas = [10.0**k for k in ((2, 4) if quick else range(2, 9))]
    cases = {
        "kappa": [(kappa, conditioned(kappa)) for kappa in kappas],
        "width": [(d, residual(width=d, samples=10 * d)) for d in ((5,) if quick else (5, 10, 20, 50, 100))],
        "depth": [(L, residual(depth=L)) for L in ((5, 10) if quick else (5, 10, 30, 100, 300, 1000))],
    }
    measured = {}
    for name, swept in cases.items():
        measured[name] = [cost for x, case in swept for cost in costs(x, case)]
        rows = [_row(cost, measured[name]) for cost in measured[name]]
        columns = (name, "method", "rtol", "error", "ms", "ratio to the first", "gradients", "products")
        table(f"cost against {name}, error of the final weights ≤ {ACCURACY:.0e}", columns, rows)
    return measured


def costs(x: float, case: Case) -> list[Cost]:
    """Return what each method took on one case, against LSODA at rtol 1e-12 or, for p > 1000, flowsim at 1e-11."""
    stopping = stopping_of(case)
    end, limit = ending(case, stopping)
    if case.size <= 1000:
        limit = scipy_solve(case, 1.5 * end, method="LSODA", rtol=1e-12, gradient=faster_gradient(case))
    course = Course(f"{x:g}", case, stopping, end, limit, "", 0.0)
    found = [_own_cost(course, x, chebyshev) for chebyshev in (False, True)]
    return [cost for cost in (*found, _lsoda_cost(course, x)) if cost is not None]


def _own_cost(course: Course, x: float, chebyshev: bool) -> Cost | None:
    name = "flowsim, RungeKuttaChebyshev" if chebyshev else "flowsim, default"
    flowsim_run(course, _RTOLS[0], chebyshev=chebyshev)  # compiles
    best = None
    for rtol in _RTOLS:
        began = time.perf_counter()
        end = flowsim_run(course, rtol, chebyshev=chebyshev)
        error, seconds = relative_error(flat(end.network), course.limit), time.perf_counter() - began
        if error > ACCURACY:
            continue
        if seconds < _LONG:
            run = functools.partial(flowsim_run, course, rtol, chebyshev=chebyshev)
            (seconds,) = warm_seconds(run, repeats=5, seconds=0.1)
        if best is not None and best.seconds < seconds:
            break
        best = Cost(name, x, rtol, error, seconds, int(end.gradients), int(end.products))
    return best


def _lsoda_cost(course: Course, x: float) -> Cost | None:
    for rtol in (1e-3, 1e-4, 1e-5, 1e-6) if course.case.size <= LARGEST_LSODA else ():
        run = scipy("LSODA")(course, rtol, _CAP)
        try:
            error = relative_error(run(), course.limit)
            if error <= ACCURACY:
                return Cost("SciPy LSODA", x, rtol, error, warm_seconds(run, repeats=1, seconds=0.0)[0])
        except NoResultError:
            return None
    return None


def _row(cost: Cost, all_costs: Sequence[Cost]) -> tuple:
    first = next(other for other in all_costs if other.method == cost.method)
    counts = ["" if count is None else count for count in (cost.gradients, cost.products)]
    return (cost.x, cost.method, cost.rtol, cost.error, 1e3 * cost.seconds, cost.seconds / first.seconds, *counts)
