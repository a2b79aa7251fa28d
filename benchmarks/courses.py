"""The flows on which flowsim and its peers are compared: where each stops, when, and what its limit is."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, conditioned, diabetes, gelu, perceptron, residual
from jax.flatten_util import ravel_pytree
from plain import PlainProblem, flat, relative_error
from scipy.integrate import solve_ivp
from timing import once

import flowsim

GRADIENT_NORM = 1e-9
# Of λ, the smallest eigenvalue of the covariance: the excess risk is then that of an error of 1e-6 in the slowest mode.
EXCESS_RISK = 1e-12
_FINE = 1e-11

Stacks = tuple[jax.Array, ...]
Run = Callable[[], np.ndarray]


class NoResultError(Exception):
    """A peer that gives no weights to compare; the message is the entry of the table."""


@dataclass(frozen=True, eq=False)
class Course:
    """A flow, its stopping rule, the time at which that holds (to 3 %), and its limit by a method of SciPy.

    `agreement` is the relative distance of that limit to flowsim's at rtol 1e-11.
    """

    name: str
    case: Case
    stopping: flowsim.Stopping
    end: float
    limit: np.ndarray
    reference: str
    agreement: float

    def error(self, weights: np.ndarray) -> float:
        """Return the relative error of final weights."""
        return relative_error(weights, self.limit)

    def excess_risk(self) -> Callable[[np.ndarray], float]:
        """Return the excess risk of a linear network as a function of its weights, in NumPy."""
        plain, root, optimum = (
            PlainProblem(self.case),
            *map(np.asarray, (self.case.problem.root, self.case.problem.optimum)),
        )
        return lambda weights: float(np.sum((root @ (plain.regressor(weights) - optimum)) ** 2))

    def sharpness(self, weights: np.ndarray) -> float:
        """Return the sharpness at these weights."""
        _, unravel = ravel_pytree(self.case.network.stacks)
        return float(flowsim.sharpness(with_stacks(self.case, unravel(jnp.asarray(weights))), self.case.problem))


COURSES: dict[str, Callable[[], tuple[Case, str]]] = {
    "mlp-0.3": lambda: (perceptron(0.3), "DOP853"),
    "mlp-0.6": lambda: (perceptron(0.6), "LSODA"),
    "residual": lambda: (residual(), "DOP853"),
    "diabetes": lambda: (diabetes(), "DOP853"),
    "kappa-1e2": lambda: (conditioned(1e2), "DOP853"),
    "kappa-1e4": lambda: (conditioned(1e4), "LSODA"),
    "kappa-1e6": lambda: (conditioned(1e6), "LSODA"),
    "depth-100": lambda: (residual(depth=100, width=10, samples=100), "DOP853"),
    "depth-1000": lambda: (residual(depth=1000), "DOP853"),
    "gelu": lambda: (gelu(0.8), "DOP853"),
}


def course(name: str) -> Course:
    """Return a course of `COURSES`, its limit computed."""
    case, method = COURSES[name]()
    stopping = stopping_of(case)
    end, fine = ending(case, stopping)
    limit = scipy_solve(case, 1.5 * end, method=method, rtol=1e-12, gradient=faster_gradient(case))
    return Course(name, case, stopping, end, limit, f"{method} at rtol 1e-12", relative_error(fine, limit))


def stopping_of(case: Case) -> flowsim.Stopping:
    """Return ‖∇R‖ ≤ 1e-9, or for the prescribed spectra an excess risk ≤ 1e-12 λ."""
    if not case.name.startswith("κ"):
        return flowsim.Stopping(gradient_norm=GRADIENT_NORM)
    smallest = float(case.problem.smallest_eigenvalue)
    return flowsim.Stopping(gradient_norm=None, excess_risk=EXCESS_RISK * smallest)


def ending(case: Case, stopping: flowsim.Stopping) -> tuple[float, np.ndarray]:
    """Return the time at which the flow meets its stopping rule, and its final weights, by flowsim at rtol 1e-11."""
    run = flowsim.integrate(case.network, case.problem, ts=[], rtol=_FINE, stopping=stopping)
    ts = np.geomspace(1e-3 * float(run.time), float(run.time), 300)
    path = flowsim.integrate(case.network, case.problem, ts=ts, rtol=_FINE, stopping=stopping)
    return float(path.times[-1]), flat(run.network)


def with_stacks(case: Case, stacks: Stacks) -> eqx.Module:
    """Return the network with other weights."""
    return eqx.tree_at(lambda network: network.stacks, case.network, stacks)


def gradient(case: Case) -> Callable[[Stacks], Stacks]:
    """Return ∇R in JAX, as anybody would write it."""
    return jax.grad(lambda stacks: case.problem.objective(with_stacks(case, stacks)))


def flat_stacks(stacks: Stacks) -> np.ndarray:
    """Return weights in stacks as one vector."""
    return np.concatenate([np.ravel(stack) for stack in stacks])


def converged(course: Course, stacks: Stacks) -> jax.Array:
    """Tell whether the stopping rule holds."""
    bound = course.stopping.gradient_norm
    if bound is None:
        return course.case.problem.excess_risk(with_stacks(course.case, stacks)) <= course.stopping.excess_risk
    return jnp.sqrt(sum(jnp.sum(g**2) for g in gradient(course.case)(stacks))) <= bound


def faster_gradient(case: Case) -> Callable[[np.ndarray], np.ndarray]:
    """Return the faster of a compiled JAX gradient and, for a linear network, one written in NumPy."""
    start, unravel = ravel_pytree(case.network.stacks)
    compiled = jax.jit(lambda weights: ravel_pytree(gradient(case)(unravel(weights)))[0])
    rivals = [lambda weights: np.asarray(compiled(weights))]
    if isinstance(case.network, flowsim.DeepLinear):
        rivals.append(PlainProblem(case).gradient)
    start = np.asarray(start)
    return min(rivals, key=lambda rival: min(once(lambda: rival(start)) for _ in range(20)))


def scipy_solve(case: Case, end: float, *, method: str, rtol: float, gradient: Callable) -> np.ndarray:
    """Return the weights at time `end` by `scipy.integrate.solve_ivp`."""

    def field(time: float, weights: np.ndarray) -> np.ndarray:
        # A first step that SciPy tries, and rejects, may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            return -gradient(weights)

    tolerances = {"rtol": rtol, "atol": 1e-2 * rtol}
    solution = solve_ivp(field, (0.0, end), flat(case.network), method=method, t_eval=[end], **tolerances)
    if not solution.success:
        raise RuntimeError(f"SciPy gave up: {solution.message}")
    return solution.y[:, -1]
