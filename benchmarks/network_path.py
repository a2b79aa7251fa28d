"""The exact end of a stretch of gradient flow, and the sharpness on the way, by SciPy on a plain gradient in float64.

Both are kept in `benchmarks/.references`, which git ignores, under what they follow from.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from network_cases import NetworkCase
from scipy.integrate import solve_ivp
from scipy.sparse.linalg import LinearOperator, eigsh

_FOLDER = Path(__file__).parent / ".references"
_FINE, _FINE_FOR_SINGLE = 1e-11, 1e-9
# Where the gradient jumps: half as many move the end of `relu` by 1e-6 or less.
_FIXED_STEPS = 80_000
# Of a large network fewer points are kept, with all of their weights, until their sharpness is known.
_POINTS, _POINTS_IF_LARGE, _LARGE = 25, 7, 50_000


@dataclass(frozen=True)
class FlowPath:
    """Where a stretch of flow ends, and the sharpness at some times from its start to its end."""

    end: np.ndarray
    times: np.ndarray
    sharpness: np.ndarray

    @property
    def stability_time(self) -> float:
        """∫ S dt: the number of steps 1/S, in which explicit methods need some two gradients or more."""
        return float(np.trapezoid(np.maximum(self.sharpness, 0), self.times))

    @property
    def largest(self) -> float:
        """The largest sharpness on the way."""
        return float(self.sharpness.max())


def path_of(case: NetworkCase) -> FlowPath:
    """Return the path of a case, computed if it is not there yet."""
    file = _FOLDER / f"{case.name}-{_fingerprint(case)}.npz"
    if file.exists():
        with np.load(file) as kept:
            return FlowPath(kept["end"], kept["times"], kept["sharpness"])
    found = _computed(case)
    _FOLDER.mkdir(exist_ok=True)
    np.savez(file, end=found.end, times=found.times, sharpness=found.sharpness)
    return found


def _fingerprint(case: NetworkCase) -> str:
    """Return what tells cases apart: their weights, data, end, and the program of their gradient."""
    program = jax.make_jaxpr(jax.grad(case.risk()))(case.start, case.data(case.dtype))
    parts = (case.start.tobytes(), case.X.tobytes(), case.y.tobytes(), f"{case.t} {_tolerance(case)}", str(program))
    return hashlib.sha256(b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()[
        :16
    ]


def _tolerance(case: NetworkCase) -> float:
    return _FINE if case.dtype == np.float64 else _FINE_FOR_SINGLE


def _computed(case: NetworkCase) -> FlowPath:
    points = _POINTS if case.start.size < _LARGE else _POINTS_IF_LARGE
    times = case.t * np.linspace(0, 1, points) ** 2
    along = _by_fixed_steps(case, times) if case.jumps else _by_scipy(case, times)
    return FlowPath(along[-1], times, _sharpness_along(case, along))


def _by_scipy(case: NetworkCase, times: np.ndarray) -> np.ndarray:
    """Return the weights at some times."""
    gradient, data = jax.jit(jax.grad(case.risk())), case.data(np.dtype(np.float64))

    def slope(t: float, weights: np.ndarray) -> np.ndarray:
        return -np.asarray(gradient(weights, data))

    rtol = _tolerance(case)
    tolerances = {"rtol": rtol, "atol": 1e-2 * rtol}
    solution = solve_ivp(slope, (0.0, case.t), case.start.astype(float), "DOP853", times, **tolerances)
    if not solution.success:
        raise RuntimeError(f"{case.name}: SciPy gave up: {solution.message}")
    return solution.y.T


def _by_fixed_steps(case: NetworkCase, times: np.ndarray) -> np.ndarray:
    """Return the weights at some times by RK4: where a gradient jumps, DOP853 at such a tolerance does not arrive."""
    gradient, data = jax.grad(case.risk()), case.data(np.dtype(np.float64))

    @jax.jit
    def further(weights: jax.Array, h: jax.Array, steps: int) -> jax.Array:
        return jax.lax.fori_loop(0, steps, lambda _, w: runge_kutta_step(lambda v: -gradient(v, data), w, h), weights)

    weights, along = jnp.asarray(case.start, float), [case.start.astype(float)]
    for length in np.diff(times):
        steps = int(np.ceil(_FIXED_STEPS * length / case.t))
        weights = further(weights, length / steps, steps)
        along.append(np.asarray(weights))
    return np.stack(along)


def runge_kutta_step(slope: Callable, weights: jax.Array, h: jax.Array) -> jax.Array:
    """Return the weights after a step of the classical Runge–Kutta method."""
    first = slope(weights)
    second = slope(weights + h / 2 * first)
    third = slope(weights + h / 2 * second)
    fourth = slope(weights + h * third)
    return weights + h / 6 * (first + 2 * second + 2 * third + fourth)


def _sharpness_along(case: NetworkCase, along: np.ndarray) -> np.ndarray:
    """Return the largest eigenvalue of the Hessian at each point, to 1e-3, by SciPy's Lanczos."""
    risk, data, size = case.risk(), case.data(np.dtype(np.float64)), case.start.size

    @jax.jit
    def product(weights: jax.Array, vector: jax.Array) -> jax.Array:
        return jax.jvp(lambda w: jax.grad(risk)(w, data), (weights,), (vector,))[1]

    random = np.random.default_rng(0).standard_normal(size) / size**0.5
    found, begin = [], random
    for weights in along:
        operator = LinearOperator((size, size), lambda v, w=weights: np.asarray(product(w, v.ravel())), dtype=float)
        values, vectors = eigsh(operator, k=1, which="LA", v0=begin, ncv=min(size - 1, 12), tol=1e-3)
        found.append(float(values[0]))
        begin = vectors[:, 0] + 0.1 * random
    return np.array(found)
