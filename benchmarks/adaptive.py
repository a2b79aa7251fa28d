"""Stock integrators that adapt their steps: SciPy's on the faster gradient, Diffrax's compiled ahead of time."""

import functools
import math
import time
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from courses import Course, NoResultError, Run, Stacks, converged, faster_gradient, flat_stacks, gradient, scipy_solve
from fixed_step import descent_step, pace
from plain import flat
from scipy.integrate import solve_ivp


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
            event=diffrax.Event(lambda t, y, args, **_: converged(course, y)) if event else None,
            adjoint=diffrax.ForwardMode(),
            max_steps=limit,
            throw=False,
        )

    compiled = solve.lower(course.case.network.stacks, jnp.asarray(0.1), jnp.asarray(course.end)).compile()
    return lambda *arguments: jax.block_until_ready(compiled(*arguments))


def _step_limit(course: Course, solver: diffrax.AbstractSolver, cap: float) -> int:
    """Return about as many steps as take `cap` seconds, by the time of a gradient and, if implicit, of a solve."""
    slope = pace(course, descent_step, 0.0)
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        return max(100, int(cap / (4 * slope * course.case.size)))
    return int(cap / (len(solver.tableau.b_sol) * slope + 10e-6))
