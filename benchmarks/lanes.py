"""Many gradient descents at once against how such experiments are usually run: one after the other, step by step.

The usual way is our own plain version: a Python loop around one compiled step that differentiates every sample on its
own, and 20 power iterations for the sharpness at every fifth step. It runs in float32, as published.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, gelu, perceptron
from console import begin, table
from timing import once

import flowsim
from flowsim.batch import descend_batch
from flowsim.networks import cast, split

_RATE = 1e-4  # small, so that no lane ends before its last step
_POWER_ITERATIONS, _SHARPNESS_EVERY = 20, 5


@dataclass(frozen=True)
class Figure:
    """One of the paper's experiments: a network to vary, its data, and how many descents run."""

    name: str
    case: Case
    lanes: int

    def networks(self, dtype: type) -> eqx.Module:
        """Return the network in as many lanes, each a little different, in precision `dtype`."""
        factors = np.linspace(0.9, 1.1, self.lanes)
        weights, rest = split(cast(self.case.network, jnp.dtype(dtype)))
        spread = jax.tree.map(lambda leaf: jnp.stack([leaf * factor for factor in factors]).astype(dtype), weights)
        return eqx.combine(spread, rest)


def main() -> None:
    """Print microseconds for one step of one descent, and how many times as long the usual way takes."""
    quick = begin("Gradient descents in lanes against a Python loop over steps")
    columns = ["figure", "usual", "usual, sharpness", "ours float64", "ours float32"]
    ratios = ["usual/64", "usual/32", "sharpness/64", "sharpness/32"]
    rows = [_row(figure, quick=quick) for figure in _figures()]
    table("µs for each step of each lane; the usual way is timed once per figure", [*columns, *ratios], rows)
    rows = [_row_of_loops(figure, quick=quick) for figure in _figures()]
    columns = ["figure", "descend_batch", "vmap of descend", "ratio"]
    table("µs for each step of each lane, in float64: the loop of a batch, and that of one run, mapped", columns, rows)


def _figures() -> Iterator[Figure]:
    yield Figure("1: MLP, L = 10, d = 5, n = 50", perceptron(0.35), 200)
    yield Figure("6: MLP, L = 5, d = 20, n = 15", perceptron(0.2, depth=5, width=20, samples=15), 180)
    yield Figure("7: GELU, L = 10, d = 5, n = 50", gelu(0.5, depth=10, samples=50), 480)


def _row(figure: Figure, *, quick: bool) -> list[object]:
    rounds, plain_steps, steps = (3, 100, 320) if quick else (7, 500, 1600)
    plain, measured = Plain(figure.case), []
    ours = [_ours(figure, dtype, steps) for dtype in (np.float64, np.float32)]
    usual = [lambda: plain.run(plain_steps, sharpness=False), lambda: plain.run(plain_steps, sharpness=True)]
    scales = [plain_steps] * 2 + [steps * figure.lanes] * 2
    for function in (*usual, *ours):
        function()
    for _ in range(rounds):
        measured.append([once(function) for function in (*usual, *ours)])
    without, sharp, double, single = 1e6 * np.min(measured, axis=0) / scales
    times = [float(time) for time in (without, sharp, double, single)]
    return [
        figure.name,
        *times,
        *(float(t) for t in (without / double, without / single, sharp / double, sharp / single)),
    ]


def _row_of_loops(figure: Figure, *, quick: bool) -> list[object]:
    rounds, steps = (3, 320) if quick else (7, 1600)
    networks, problem = figure.networks(np.float64), figure.case.problem

    def one_run(network: eqx.Module) -> eqx.Module:
        return flowsim.descend(network, problem, learning_rate=_RATE, steps=steps, record_steps=[steps]).network

    mapped = eqx.filter_jit(eqx.filter_vmap(one_run))
    both = [_ours(figure, np.float64, steps), lambda: mapped(networks)]
    for function in both:
        function()
    times = 1e6 * np.min([[once(function) for function in both] for _ in range(rounds)], axis=0)
    batch, loop = (float(time) / (steps * figure.lanes) for time in times)
    return [figure.name, batch, loop, loop / batch]


def _ours(figure: Figure, dtype: type, steps: int) -> Callable[[], eqx.Module]:
    networks, rates = figure.networks(dtype), np.full(figure.lanes, _RATE)
    return lambda: descend_batch(networks, figure.case.problem, learning_rates=rates, steps=steps)


class Plain:
    """The same risk and steps written once more, without flowsim: a list of matrices and automatic differentiation."""

    def __init__(self, case: Case):
        self.weights = [jnp.asarray(weight, jnp.float32) for weight in case.network.weights]
        self.X, self.y = jnp.asarray(case.X, jnp.float32), jnp.asarray(case.y, jnp.float32)
        nonlinear = isinstance(case.network, flowsim.Perceptron)
        self.activation = jax.nn.gelu if nonlinear else lambda z: z
        self.step = jax.jit(self._step)
        self.sharpness = jax.jit(self._sharpness)

    def run(self, steps: int, *, sharpness: bool) -> list[jnp.ndarray]:
        """Return the weights after so many steps."""
        weights, risks, largest = self.weights, [], []
        for step in range(steps):
            if sharpness and step % _SHARPNESS_EVERY == 0:
                largest.append(self.sharpness(weights).item())
            weights, risk = self.step(weights)
            risks.append(risk.item())
        return weights

    def _risk(self, weights: list[jnp.ndarray]) -> jnp.ndarray:
        def output(x: jnp.ndarray) -> jnp.ndarray:
            for weight in weights[:-1]:
                x = self.activation(weight @ x)
            return (weights[-1] @ x)[0]

        return jnp.mean((jax.vmap(output)(self.X) - self.y) ** 2)

    def _step(self, weights: list[jnp.ndarray]) -> tuple[list[jnp.ndarray], jnp.ndarray]:
        risk, gradient = jax.value_and_grad(self._risk)(weights)
        return [weight - _RATE * slope for weight, slope in zip(weights, gradient, strict=True)], risk

    def _sharpness(self, weights: list[jnp.ndarray]) -> jnp.ndarray:
        def iterate(_: int, vector: list[jnp.ndarray]) -> list[jnp.ndarray]:
            product = jax.jvp(jax.grad(self._risk), (weights,), (vector,))[1]
            length = jnp.sqrt(sum(jnp.sum(part**2) for part in product))
            return [part / length for part in product]

        vector = jax.lax.fori_loop(0, _POWER_ITERATIONS, iterate, [jnp.ones_like(weight) for weight in weights])
        product = jax.jvp(jax.grad(self._risk), (weights,), (vector,))[1]
        return sum(jnp.sum(part * whole) for part, whole in zip(product, vector, strict=True))


if __name__ == "__main__":
    main()
