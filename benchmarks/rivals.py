"""Every way to the limit of a gradient flow that the comparison knows, each as a function from a course to a run.

A run returns the final weights as one vector. The peers are handed the end time, which a user of theirs does not know:
they stop there, with no event and no gradient spent on one. Diffrax, and SciPy's LSODA, are also asked to find the end.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import diffrax
import exponential_euler
import jax.numpy as jnp
import numpy as np
from adaptive import scipy, stock
from courses import Course, NoResultError, Run, flat_stacks
from fixed_step import descent, runge_kutta

import flowsim
from flowsim.solvers import RungeKuttaChebyshev

# Where a method holds p × p numbers and factorizes them, a single step of a larger network takes minutes.
LARGEST_DENSE, LARGEST_LSODA = 2_000, 12_000
_TIGHT = (1e-3, 1e-5, 1e-7, 1e-9)


@dataclass(frozen=True)
class Rival:
    """A method: `start(course, setting, cap)` compiles, and returns the run to measure, of `cap` seconds at most."""

    name: str
    what: str
    settings: tuple[float, ...]
    start: Callable[[Course, float, float], Run]
    largest: int = 10**9
    own: bool = False


def flowsim_run(course: Course, rtol: float, *, chebyshev: bool = False, **options: object) -> flowsim.Trajectory:
    """Return a run of flowsim to the end of a course."""
    # Its own stopping rule, as anybody's: only the peers know when to stop.
    solver = RungeKuttaChebyshev(jnp.asarray(rtol), jnp.asarray(1e-3 * rtol)) if chebyshev else None
    case = course.case
    return flowsim.integrate(
        case.network, case.problem, solver=solver, rtol=rtol, stopping=course.stopping, **{"ts": [], **options}
    )


def own(**options: object) -> Callable[[Course, float, float], Run]:
    def start(course: Course, rtol: float, cap: float) -> Run:
        def run() -> np.ndarray:
            return flat_stacks(flowsim_run(course, rtol, **options).network.stacks)

        run()
        return run

    return start


def stable_solvers(course: Course, longest: float, cap: float) -> Run:
    """Exponential Euler with steps of at most `longest`, all data in one batch, one thread."""
    if not exponential_euler.INSTALLED:
        raise NoResultError("not installed")

    def run() -> np.ndarray:
        weights = exponential_euler.final_weights(course.case, course.end, longest, deadline=time.perf_counter() + cap)
        if weights is None:
            raise NoResultError(f"> {cap:g} s")
        return weights

    return run


RIVALS: dict[str, Rival] = {
    "default": Rival("flowsim, default", "rtol", tuple(10.0**-k for k in range(2, 11)), own(), own=True),
    "records": Rival("flowsim, default, with its records", "rtol", (1e-6,), own(ts=None)),
    "chebyshev": Rival("flowsim, RungeKuttaChebyshev", "rtol", (1e-3, 1e-4, 1e-5, 1e-6, 1e-7), own(chebyshev=True)),
    "tsit5": Rival("Diffrax Tsit5", "rtol", _TIGHT[::-1], stock(diffrax.Tsit5(), event=True)),
    "dopri8": Rival("Diffrax Dopri8", "rtol", _TIGHT[::-1], stock(diffrax.Dopri8(), event=True)),
    "tsit5-told": Rival("Diffrax Tsit5, end told", "rtol", _TIGHT, stock(diffrax.Tsit5(), event=False)),
    "dopri8-told": Rival("Diffrax Dopri8, end told", "rtol", _TIGHT, stock(diffrax.Dopri8(), event=False)),
    "kvaerno5": Rival(
        "Diffrax Kvaerno5", "rtol", (1e-2, *_TIGHT[:3]), stock(diffrax.Kvaerno5(), event=True), largest=LARGEST_DENSE
    ),
    "lsoda": Rival("SciPy LSODA", "rtol", _TIGHT, scipy("LSODA"), largest=LARGEST_LSODA),
    "lsoda-event": Rival("SciPy LSODA, event", "rtol", _TIGHT, scipy("LSODA", event=True), largest=LARGEST_LSODA),
    "bdf": Rival("SciPy BDF", "rtol", _TIGHT[:3], scipy("BDF"), largest=LARGEST_DENSE),
    "dop853": Rival("SciPy DOP853", "rtol", _TIGHT, scipy("DOP853")),
    "stable-solvers": Rival("stable-solvers", "step ≤", (math.inf, 1e-2, 1e-3), stable_solvers),
    "rk4": Rival("RK4, fixed step", "h · sharpness =", (2.0, 1.0, 0.5), runge_kutta),
    "descent": Rival("gradient descent", "η =", (0.005, 0.001), descent),
}
