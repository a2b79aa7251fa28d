"""The plain ways along a stretch of gradient flow: Diffrax, SciPy, RK4 in steps 1/S, all on the same compiled gradient.

Every run returns the final weights as one vector, and how many gradients they took.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from network_cases import NetworkCase
from network_path import FlowPath, runge_kutta_step
from scipy.integrate import solve_ivp

Found = tuple[np.ndarray, int]
TOLERANCES = tuple(10.0**-k for k in range(3, 9))
Start = Callable[[NetworkCase, FlowPath, int], Callable[[float], Found]]
# LSODA estimates p × p numbers by p gradients and factorizes them.
LARGEST_LSODA = 2_000


class NoResultError(Exception):
    """A rival that gives no weights to compare; the message is the entry of the table."""


@dataclass(frozen=True)
class Rival:
    """A plain method: `start(case, path, most)` compiles it, once for all tolerances, and returns the run.

    A run that takes more than `most` gradients is given up. Where it is not `adaptive`, the tolerance is h · S.
    """

    name: str
    start: Start
    explicit: bool = True
    largest: float = math.inf
    tolerances: tuple[float, ...] = TOLERANCES


def stock(solver: diffrax.AbstractERK) -> Start:
    """Return a method of Diffrax, its whole solve compiled, with atol = rtol/100."""

    def start(case: NetworkCase, path: FlowPath, most: int) -> Callable[[float], Found]:
        gradient, data, begin = jax.grad(case.risk()), case.data(case.dtype), jnp.asarray(case.start)

        @jax.jit
        def solve(weights: jax.Array, data: tuple, rtol: jax.Array, end: jax.Array) -> tuple:
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, args: -gradient(y, args)),
                solver,
                t0=jnp.zeros_like(end),
                t1=end,
                dt0=None,
                y0=weights,
                args=data,
                stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
                adjoint=diffrax.ForwardMode(),
                max_steps=max(1, most // len(solver.tableau.b_sol)),
                throw=False,
            )
            return solution.ys[-1], solution.stats["num_steps"], solution.result == diffrax.RESULTS.successful

        compiled = solve.lower(begin, data, begin[0], begin[0]).compile()

        def run(rtol: float) -> Found:
            numbers = (jnp.asarray(number, case.dtype) for number in (rtol, case.t))
            weights, steps, reached = compiled(begin, data, *numbers)
            if not bool(reached):
                raise NoResultError(
                    f"> {most} gradients" if int(steps) * len(solver.tableau.b_sol) > 0.9 * most else "failed"
                )
            return np.asarray(weights), evaluations(solver, int(steps))

        return run

    return start


def evaluations(solver: diffrax.AbstractERK, steps: int) -> int:
    """Return how many gradients so many attempted steps take, with two for the first step's length and its slope."""
    reused = bool(solver.tableau.fsal)
    return steps * (len(solver.tableau.b_sol) - reused) + reused + 2


def scipy(method: str) -> Start:
    """Return a method of SciPy, with atol = rtol/100; every call of the gradient counts, those for a Jacobian too."""

    def start(case: NetworkCase, path: FlowPath, most: int) -> Callable[[float], Found]:
        data, begin = case.data(case.dtype), case.start
        gradient = jax.jit(jax.grad(case.risk())).lower(jnp.asarray(begin), data).compile()

        def run(rtol: float) -> Found:
            calls = 0

            def slope(t: float, weights: np.ndarray) -> np.ndarray:
                nonlocal calls
                calls += 1
                if calls > most:
                    raise NoResultError(f"> {most} gradients")
                return -np.asarray(gradient(jnp.asarray(weights, case.dtype), data))

            span, tolerances = (0.0, case.t), {"rtol": rtol, "atol": 1e-2 * rtol}
            solution = solve_ivp(slope, span, begin.astype(float), method=method, t_eval=[case.t], **tolerances)
            if not solution.success:
                raise NoResultError("failed")
            return solution.y[:, -1], calls

        return run

    return start


def runge_kutta(case: NetworkCase, path: FlowPath, most: int) -> Callable[[float], Found]:
    """Return RK4 with h = share/S(t), S interpolated between the path's points and free of charge."""
    gradient, data, begin = jax.grad(case.risk()), case.data(case.dtype), jnp.asarray(case.start)
    times, sharpness = (jnp.asarray(values, case.dtype) for values in (path.times, path.sharpness))

    @jax.jit
    def solve(weights: jax.Array, data: tuple, share: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(state: tuple) -> tuple:
            t, weights, count = state
            longest = share / jnp.maximum(jnp.interp(t, times, sharpness), 1e-3)
            h = jnp.minimum(longest, times[-1] - t)
            t = jnp.where(longest >= times[-1] - t, times[-1], t + h)
            return t, runge_kutta_step(lambda w: -gradient(w, data), weights, h), count + 1

        _, weights, steps = jax.lax.while_loop(lambda s: s[0] < times[-1], step, (times[0], weights, jnp.array(0)))
        return weights, steps

    compiled = solve.lower(begin, data, times[0]).compile()

    def run(share: float) -> Found:
        if 4 * path.stability_time / share > most:
            raise NoResultError(f"> {most} gradients")
        weights, steps = compiled(begin, data, jnp.asarray(share, case.dtype))
        return np.asarray(weights), 4 * int(steps)

    return run


RIVALS = (
    Rival("Diffrax Tsit5", stock(diffrax.Tsit5())),
    Rival("Diffrax Dopri8", stock(diffrax.Dopri8())),
    Rival("SciPy RK45", scipy("RK45")),
    Rival("SciPy DOP853", scipy("DOP853")),
    Rival("SciPy LSODA", scipy("LSODA"), explicit=False, largest=LARGEST_LSODA),
    Rival("RK4, h = 1/S", runge_kutta, explicit=False, tolerances=(1.0,)),
)
