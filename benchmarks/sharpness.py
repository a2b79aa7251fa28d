"""The sharpness against an explicit Hessian, and its cost against SciPy's ARPACK and power iteration."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, every, perceptron, residual
from console import begin, table
from jax.flatten_util import ravel_pytree
from plain import PlainProblem, flat
from scipy.sparse.linalg import LinearOperator, eigsh
from timing import warm_seconds

import flowsim
from flowsim.curvature import hessian_product, top_eigenpair, top_eigenpairs
from flowsim.networks import split

# The residual at which flowsim's Lanczos stops, relative to the eigenvalue.
TOLERANCE = np.finfo(float).eps ** (2 / 3)
DENSE_UP_TO = 2_500
POINTS_ON_PATH = 8
LARGE_TOLERANCE, MOST_POWERS = 1e-6, 1000


def main() -> None:
    quick = begin("sharpness: flowsim against numpy's eigvalsh of jax.hessian of a plain risk, and its time")
    cases = [residual(), perceptron(0.35)] if quick else every()
    columns = ("case", "S at init", "smallest eigenvalue", "S at the end", "dense: init", "dense: path", "dense: end")
    columns += ("Lanczos: init", "Lanczos: path", "Lanczos: end", "recorded on the path")
    table("largest relative difference to eigvalsh", columns, [accuracy_row(case) for case in cases])
    sizes = [(10, 5), (25, 10)] if quick else [(10, 5), (25, 10), (10, 50)]
    columns = ("p", "network", "method", "ms", "time / Lanczos", "products", "difference to Lanczos")
    rows = [row for depth, width in sizes for row in time_rows(depth, width)]
    table("time of one sharpness, warm", columns, rows)
    width = 100 if quick else 1000
    columns = ("method", "sharpness", "relative residual", "products", "s", "peak memory / weights")
    rows = [in_own_process(method, width) for method in ("flowsim", "SciPy eigsh", "power iteration")]
    table(f"residual network with {10 * width**2:.0e} weights in float64, to a residual of 1e-6", columns, rows)


def accuracy_row(case: Case) -> tuple:
    plain = PlainProblem(case)
    hessian = jax.jit(jax.hessian(plain.risk))
    end = flowsim.integrate(case.network, case.problem, sharpness=True, weights=True)
    chosen = np.unique(np.linspace(0, len(end.times) - 1, POINTS_ON_PATH + 2).round().astype(int))
    networks = [network_at(end.weights, index) for index in chosen]
    spectra = [np.linalg.eigvalsh(hessian(jnp.asarray(flat(network)))) for network in networks]
    exact = np.array([spectrum[-1] for spectrum in spectra])
    dense, lanczos = (differences(case, networks, exact, dense=dense) for dense in (True, False))
    recorded = float(np.abs(np.asarray(end.sharpness)[chosen] / exact - 1).max())
    name = f"{case.name} (p = {case.size})"
    return (name, float(exact[0]), float(spectra[0][0]), float(exact[-1]), *dense, *lanczos, recorded)


def network_at(path: flowsim.DeepLinear, index: int) -> flowsim.DeepLinear:
    return eqx.tree_at(lambda network: network.stacks, path, tuple(stack[index] for stack in path.stacks))


def differences(
    case: Case, networks: list[flowsim.DeepLinear], exact: np.ndarray, *, dense: bool
) -> tuple[float, float, float]:
    """Return the relative difference at the first network, the largest in between, and at the last one."""
    found = [float(top_eigenpair(network, case.problem, dense=dense).value) for network in networks]
    gaps = np.abs(np.array(found) / exact - 1)
    return float(gaps[0]), float(gaps[1:-1].max()), float(gaps[-1])


def time_rows(depth: int, width: int) -> list[tuple]:
    """Time at the initialization of a residual network and of a perceptron, whose Hessian is indefinite."""
    sizes = {"depth": depth, "width": width, "samples": 10 * width}
    # The scale at which layers of this width keep the size of a vector, on average.
    cases = residual(**sizes), perceptron(round(width**-0.5, 2), **sizes)
    return [row for case in cases for row in method_rows(case)]


def method_rows(case: Case) -> list[tuple]:
    methods = {"Lanczos": flowsim_pair(case, dense=False), "SciPy eigsh": scipy_pair(case)}
    if case.size <= DENSE_UP_TO:
        methods["dense"] = flowsim_pair(case, dense=True)
    results = {name: method() for name, method in methods.items()}
    seconds = warm_seconds(*methods.values(), repeats=3 if case.size > 1000 else 9)
    value, _ = results["Lanczos"]
    rows = []
    for (name, (found, products)), spent in zip(results.items(), seconds, strict=True):
        first = (case.size, case.name) if name == "Lanczos" else ("", "")
        rows.append((*first, name, 1e3 * spent, spent / seconds[0], products, abs(found / value - 1)))
    return rows


def flowsim_pair(case: Case, *, dense: bool) -> Callable[[], tuple[float, int]]:
    def run() -> tuple[float, int]:
        pair = top_eigenpair(case.network, case.problem, dense=dense)
        assert bool(pair.converged), f"{case.name}: not certified, residual {pair.residual}"
        return float(pair.value), int(pair.products)

    return run


def scipy_pair(case: Case) -> Callable[[], tuple[float, int]]:
    """ARPACK on compiled Hessian–vector products of the same risk, to the same tolerance."""

    vector, unravel = ravel_pytree(case.network.stacks)

    def objective(vector: jax.Array) -> jax.Array:
        network = eqx.tree_at(lambda network: network.stacks, case.network, unravel(vector))
        return case.problem.objective(network)

    product = jax.jit(jax.linearize(jax.grad(objective), vector)[1])
    start = np.random.default_rng(0).standard_normal(case.size)

    def run() -> tuple[float, int]:
        counted = []

        def matvec(vector: np.ndarray) -> np.ndarray:
            counted.append(1)
            return np.asarray(product(vector.ravel()))

        operator = LinearOperator((case.size, case.size), matvec=matvec, dtype=float)
        value = eigsh(operator, k=1, which="LA", tol=TOLERANCE, v0=start, return_eigenvectors=False)[0]
        return float(value), len(counted)

    return run


def in_own_process(method: str, width: int) -> tuple:
    """Return a row of the last table: a peak of memory is that of a process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(large_row, (method, width))


def large_row(method: str, width: int) -> tuple:
    case = residual(width=width, samples=2 * width)
    weights, rest = split(case.network)
    product = jax.jit(lambda w, v: hessian_product(lambda m: case.problem.objective(eqx.combine(m, rest)), w)(v))
    apply = partial(product, weights)
    jax.block_until_ready(apply(weights))
    before, began = peak_bytes(), time.perf_counter()
    value, residue, products = LARGE[method](case, apply, weights)
    seconds = time.perf_counter() - began
    used = (peak_bytes() - before) / (8 * case.size)
    return method, f"{value:.9f}", residue / value, products, seconds, used


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def large_lanczos(case: Case, product: Callable, weights: flowsim.DeepLinear) -> tuple[float, float, int]:
    pair = top_eigenpairs(case.network, case.problem, count=1, rtol=LARGE_TOLERANCE, dense=False)
    assert bool(pair.converged.all())
    return float(pair.values[0]), float(pair.residuals[0]), int(pair.products)


def large_arpack(case: Case, product: Callable, weights: flowsim.DeepLinear) -> tuple[float, float, int]:
    matvec, counted = counted_matvec(product, weights)
    operator = LinearOperator((case.size, case.size), matvec=matvec, dtype=float)
    start = np.random.default_rng(0).standard_normal(case.size)
    values, found = eigsh(operator, k=1, which="LA", tol=LARGE_TOLERANCE, v0=start)
    products = len(counted)
    return float(values[0]), float(np.linalg.norm(matvec(found[:, 0]) - values[0] * found[:, 0])), products


def large_power(case: Case, product: Callable, weights: flowsim.DeepLinear) -> tuple[float, float, int]:
    matvec, counted = counted_matvec(product, weights)
    vector = np.random.default_rng(0).standard_normal(case.size)
    vector /= np.linalg.norm(vector)
    value, residue = 1.0, np.inf
    while residue > LARGE_TOLERANCE * value and len(counted) < MOST_POWERS:
        image = matvec(vector)
        value = float(vector @ image)
        residue = float(np.linalg.norm(image - value * vector))
        vector = image / np.linalg.norm(image)
    return value, residue, len(counted)


def counted_matvec(product: Callable, weights: flowsim.DeepLinear) -> tuple[Callable, list]:
    counted, shape = [], weights.stacks[0].shape

    def matvec(vector: np.ndarray) -> np.ndarray:
        counted.append(1)
        as_weights = eqx.tree_at(lambda w: w.stacks, weights, (jnp.asarray(vector.reshape(shape)),))
        return np.asarray(product(as_weights).stacks[0]).ravel()

    return matvec, counted


LARGE = {"flowsim": large_lanczos, "SciPy eigsh": large_arpack, "power iteration": large_power}


if __name__ == "__main__":
    main()
