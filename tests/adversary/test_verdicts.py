"""Every CONVERGED beside a dense Hessian and SciPy's integration of the same flow."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import flowsim
from flowsim import EmpiricalRisk, LinearRegression, Outcome, Problem
from flowsim.networks import DeepLinear, Perceptron, split


def squared(prediction, target):
    return jnp.sum((prediction - target) ** 2)


def logistic(prediction, target):
    return jnp.sum(jnp.logaddexp(0, -prediction * jnp.sign(target)))


def log_cosh(prediction, target):
    return jnp.sum(jnp.logaddexp(prediction - target, target - prediction))


@dataclasses.dataclass(frozen=True)
class Structure:
    """What compiles once: all that is drawn besides are numbers."""

    widths: tuple[int, ...]
    samples: int
    activation: Callable | None = None
    loss: Callable | None = None

    def network(self, seed: int, scale: float) -> eqx.Module:
        key = jax.random.key(seed)
        if self.activation is None:
            return DeepLinear.gaussian(widths=self.widths, scale=scale, key=key)
        return Perceptron.gaussian(widths=self.widths, scale=scale, activation=self.activation, key=key)

    def problem(self, seed: int, *, condition: float, rank: int, units: tuple[float, float], noise: float) -> Problem:
        rng = np.random.default_rng(seed)
        features, outputs = self.widths[0], self.widths[-1]
        X = rng.standard_normal((self.samples, features)) * np.geomspace(1, condition**-0.5, features)
        X[:, rank:] = X[:, :1]
        w = rng.standard_normal((features, outputs))
        y = X @ w / np.linalg.norm(w) + noise * rng.standard_normal((self.samples, outputs))
        X, y = units[0] * X, units[1] * (y[:, 0] if outputs == 1 else y)
        return LinearRegression(X, y) if self.loss is None else EmpiricalRisk(X, y, self.loss)


STRUCTURES = {
    "two linear layers": Structure((3, 4, 1), samples=20),
    "three linear layers": Structure((3, 4, 4, 1), samples=20),
    "fewer samples than features": Structure((3, 4, 1), samples=2),
    "bottleneck": Structure((3, 1, 3), samples=20),
    "two outputs": Structure((3, 3, 2), samples=20),
    "logistic line": Structure((3, 1), samples=20, loss=logistic),
    "tanh": Structure((3, 4, 1), samples=20, activation=jnp.tanh, loss=squared),
    "gelu": Structure((3, 4, 1), samples=20, activation=jax.nn.gelu, loss=squared),
    "logistic tanh": Structure((3, 4, 1), samples=20, activation=jnp.tanh, loss=logistic),
    "log cosh gelu": Structure((3, 4, 1), samples=20, activation=jax.nn.gelu, loss=log_cosh),
}


@eqx.filter_jit
def gradient(flat, network, problem):
    weights, rest = split(network)
    return jax.grad(lambda v: problem.objective(eqx.combine(ravel_pytree(weights)[1](v), rest)))(flat)


@eqx.filter_jit
def hessian(flat, network, problem):
    return jax.jacfwd(gradient)(flat, network, problem)


def flattened(network):
    return np.asarray(ravel_pytree(split(network)[0])[0])


def limit_by_scipy(network, problem, time):
    """The flow long after `time`, by LSODA."""
    start = flattened(network)
    found = solve_ivp(
        lambda _, v: -np.asarray(gradient(v, network, problem)),
        (0, 30 * time),
        start,
        method="LSODA",
        jac=lambda _, v: -np.asarray(hessian(v, network, problem)),
        rtol=1e-9,
        atol=1e-11 * np.linalg.norm(start),
    )
    assert found.success
    return found.y[:, -1]


def check_verdict(network, problem):
    """Check what a flow with default settings says of its end, and return its outcome."""
    flow = flowsim.integrate(network, problem, ts=[], max_steps=1000)
    if flow.outcome is Outcome.CONVERGED:
        end = flattened(flow.network)
        values = np.linalg.eigvalsh(hessian(end, network, problem))
        # A verdict allows 1.2e-7 on the floor of the valley; what the steps leave of the way down to it tilts more.
        assert values[0] >= -1e-6 * np.abs(values).max()
        there = limit_by_scipy(network, problem, float(flow.time))
        assert np.linalg.norm(there - end) <= 1e-4 * np.linalg.norm(end)
    return flow.outcome


def drawn(structure, seed):
    """A network and a problem of a structure, in any units that a linear one can take."""
    rng = np.random.default_rng(1000 + seed)
    linear = structure.activation is None and structure.loss is None
    problem = structure.problem(
        seed,
        condition=10 ** rng.uniform(0, 8 if linear else 3),
        rank=int(rng.integers(2, 4)),
        units=(10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-3, 3)) if linear else (1.0, 10 ** rng.uniform(-1, 1)),
        noise=float(rng.choice([0, 0.1, 1])),
    )
    return structure.network(seed, float(rng.choice([0.2, 0.5, 1]))), problem


@pytest.mark.slow
def test_fifty_verdicts():
    outcomes = {name: [check_verdict(*drawn(kind, seed)) for seed in range(5)] for name, kind in STRUCTURES.items()}
    settled = [outcome for found in outcomes.values() for outcome in found if outcome is not Outcome.STEP_LIMIT]
    assert set(settled) <= {Outcome.CONVERGED, Outcome.NO_MINIMIZER, Outcome.STATIONARY}
    for name in list(STRUCTURES)[:5]:
        assert set(outcomes[name]) == {Outcome.CONVERGED}, name
    assert settled.count(Outcome.CONVERGED) > 25


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(list(STRUCTURES)),
    seed=st.integers(0, 10**6),
    scale=st.floats(0.1, 1.2),
    condition=st.floats(0, 3).map(lambda power: 10**power),
    rank=st.integers(1, 3),
    noise=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_every_converged_is_certified(name, seed, scale, condition, rank, noise):
    structure = STRUCTURES[name]
    problem = structure.problem(seed, condition=condition, rank=rank, units=(1.0, 1.0), noise=noise)
    check_verdict(structure.network(seed, scale), problem)


@pytest.mark.slow
def test_verdicts_of_linear_networks():
    for seed in range(8):
        assert check_verdict(*drawn(STRUCTURES["two linear layers"], seed)) is Outcome.CONVERGED


@pytest.mark.slow
def test_a_hessian_follows_stiff_directions_that_turn():
    """One that is frozen over a step ends a thousand tolerances away, and no difference of columns shows it."""
    network, problem = drawn(STRUCTURES["bottleneck"], 1)
    apart = []
    for still in (1.0, np.inf):
        solver = flowsim.solvers.HessianExtrapolation(still=still)
        flow = flowsim.integrate(network, problem, ts=[], solver=solver)
        there, end = limit_by_scipy(network, problem, float(flow.time)), flattened(flow.network)
        apart.append(np.linalg.norm(there - end) / np.linalg.norm(end))
    assert apart[0] < 5e-5
    assert apart[1] > 2e-4
