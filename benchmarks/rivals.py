"""Every way to the limit of a gradient flow that the comparison knows, each as a function from a course to a run.

A run returns the final weights as one vector. The peers are handed the end time, which a user of theirs does not know:
they stop there, with no event and no gradient spent on one. Diffrax, and SciPy's LSODA, are also asked to find the end.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import diffrax
import equinox as eqx
import exponential_euler
import jax
import jax.numpy as jnp
import numpy as np
from courses import Course, Stacks, arrived, faster_gradient, gradient, scipy_solve
from plain import flat
from scipy.integrate import solve_ivp
from timing import once

import flowsim
from flowsim.dynamics.solvers import RungeKuttaChebyshev

Run = Callable[[], np.ndarray]
# Where a method holds p × p numbers and factorizes them, a single step of a larger network takes minutes.
LARGEST_DENSE, LARGEST_LSODA = 2_000, 12_000
_TIGHT = (1e-3, 1e-5, 1e-7, 1e-9)


class NoResultError(Exception):
    """A peer that gives no weights to compare; the message is the entry of the table."""


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


def scipy(method: str, *, event: bool = False) -> Callable[[Course, float, float], Run]:
    def start(course: Course, rtol: float, cap: float) -> Run:
        plain = _gradient_of(course)

        def run() -> np.ndarray:
            watched = _watched(plain, time.perf_counter() + cap, cap)
            if event:
                return _to_event(course, method, rtol, watched)
            return scipy_solve(course.case, course.end, method=method, rtol=rtol, gradient=watched)

        return run

    return start


def stock(solver: diffrax.AbstractSolver, *, event: bool) -> Callable[[Course, float, float], Run]:
    wanted = diffrax.RESULTS.event_occurred if event else diffrax.RESULTS.successful

    def start(course: Course, rtol: float, cap: float) -> Run:
        solve, stacks = _compiled_stock(course, solver, event, cap), course.case.network.stacks

        def run() -> np.ndarray:
            solution = solve(stacks, jnp.asarray(rtol), jnp.asarray(math.inf if event else course.end))
            if solution.result == diffrax.RESULTS.max_steps_reached:
                raise NoResultError(f"> {cap:g} s")
            if solution.result != wanted:
                raise NoResultError("failed")
            return flat_stacks([leaf[-1] for leaf in solution.ys])

        return run

    return start


def runge_kutta(course: Course, multiple: float, cap: float) -> Run:
    """The classical method of order 4 with steps of `multiple` over the sharpness, at the start or the limit."""
    sharpest = max(abs(course.sharpness(weights)) for weights in (flat(course.case.network), course.limit))
    count = math.ceil(course.end * sharpest / multiple)
    return _repeated(course, _runge_kutta_step, course.end / count, count, cap)


def descent(course: Course, rate: float, cap: float) -> Run:
    """Gradient descent for as many steps of `rate` as reach the end time."""
    return _repeated(course, _descent_step, rate, max(1, round(course.end / rate)), cap)


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


def flat_stacks(stacks: Stacks) -> np.ndarray:
    return np.concatenate([np.ravel(stack) for stack in stacks])


_gradient_of = functools.lru_cache(lambda course: faster_gradient(course.case))


def _to_event(course: Course, method: str, rtol: float, plain: Callable) -> np.ndarray:
    """Return the weights where the stopping rule first holds, by an event of `solve_ivp`."""
    excess = course.excess_risk() if course.stopping.gradient_norm is None else None

    def left(t: float, weights: np.ndarray) -> float:
        if excess is not None:
            return excess(weights) - course.stopping.excess_risk
        return float(np.linalg.norm(plain(weights))) - course.stopping.gradient_norm

    left.terminal = True
    tolerances = {"rtol": rtol, "atol": 1e-2 * rtol}
    span = (0.0, 1e3 * course.end)
    solution = solve_ivp(lambda t, w: -plain(w), span, flat(course.case.network), method, events=left, **tolerances)
    if solution.status != 1:
        raise NoResultError("never" if solution.status == 0 else "failed")
    return solution.y[:, -1]


def _watched(plain: Callable, deadline: float, cap: float) -> Callable:
    def watched(weights: np.ndarray) -> np.ndarray:
        if time.perf_counter() > deadline:
            raise NoResultError(f"> {cap:g} s")
        return plain(weights)

    return watched


def _runge_kutta_step(slope: Callable[[Stacks], Stacks], y: Stacks, h: jax.Array) -> Stacks:
    def ahead(share: float, k: Stacks) -> Stacks:
        return slope(jax.tree.map(lambda leaf, g: leaf - share * h * g, y, k))

    first = slope(y)
    second = ahead(0.5, first)
    third = ahead(0.5, second)
    stages = (first, second, third, ahead(1.0, third))
    return jax.tree.map(lambda leaf, a, b, c, d: leaf - h / 6 * (a + 2 * b + 2 * c + d), y, *stages)


def _descent_step(slope: Callable[[Stacks], Stacks], y: Stacks, h: jax.Array) -> Stacks:
    return jax.tree.map(lambda leaf, g: leaf - h * g, y, slope(y))


@functools.lru_cache
def _loop(course: Course, step: Callable) -> Callable:
    slope = gradient(course.case)
    return jax.jit(lambda y, h, count: jax.lax.fori_loop(0, count, lambda _, y: step(slope, y, h), y))


def _pace(course: Course, step: Callable, h: float, count: int = 100) -> float:
    """Return the seconds that one step takes in a compiled loop."""
    return min(once(lambda: _loop(course, step)(course.case.network.stacks, h, count)) for _ in range(4)) / count


def _repeated(course: Course, step: Callable, h: float, count: int, cap: float) -> Run:
    """Return a run of `count` steps, if by the time of the first few it stays below the cap."""
    if _pace(course, step, h) * count > cap:
        raise NoResultError(f"> {cap:g} s")
    return lambda: flat_stacks(_loop(course, step)(course.case.network.stacks, h, count))


@functools.lru_cache
def _compiled_stock(course: Course, solver: diffrax.AbstractSolver, event: bool, cap: float) -> Callable:
    """Compile a solve as Diffrax's documentation writes it, with atol = rtol/100."""
    slope, limit = gradient(course.case), _step_limit(course, solver, cap)

    @eqx.filter_jit
    def solve(stacks: Stacks, rtol: jax.Array, end: jax.Array) -> diffrax.Solution:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: jax.tree.map(jnp.negative, slope(y))),
            solver,
            t0=0.0,
            t1=end,
            dt0=None,
            y0=stacks,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
            event=diffrax.Event(lambda t, y, args, **_: arrived(course, y)) if event else None,
            adjoint=diffrax.ForwardMode(),
            max_steps=limit,
            throw=False,
        )

    compiled = solve.lower(course.case.network.stacks, jnp.asarray(0.1), jnp.asarray(course.end)).compile()
    return lambda *arguments: jax.block_until_ready(compiled(*arguments))


def _step_limit(course: Course, solver: diffrax.AbstractSolver, cap: float) -> int:
    """Return about as many steps as take `cap` seconds, by the time of a gradient and, if implicit, of a solve."""
    pace = _pace(course, _descent_step, 0.0)
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        return max(100, int(cap / (4 * pace * course.case.size)))
    return int(cap / (len(solver.tableau.b_sol) * pace + 10e-6))


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
    "lsoda-event": Rival("SciPy LSODA, event", "rtol", _TIGHT[::-1], scipy("LSODA", event=True), largest=LARGEST_LSODA),
    "bdf": Rival("SciPy BDF", "rtol", _TIGHT[:3], scipy("BDF"), largest=LARGEST_DENSE),
    "dop853": Rival("SciPy DOP853", "rtol", _TIGHT, scipy("DOP853")),
    "stable-solvers": Rival("stable-solvers", "step ≤", (math.inf, 1e-2, 1e-3), stable_solvers),
    "rk4": Rival("RK4, fixed step", "h · sharpness =", (2.0, 1.0, 0.5), runge_kutta),
    "descent": Rival("gradient descent", "η =", (0.005, 0.001), descent),
}
