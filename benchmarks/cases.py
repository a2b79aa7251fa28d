"""The networks and data that the benchmarks share. Importing this switches JAX to float64."""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

import flowsim
from flowsim.data import gaussian_teacher, read_table, standardize, unit_regressor

jax.config.update("jax_enable_x64", True)

_DIABETES = Path(__file__).parents[1] / "scenarios" / "data" / "diabetes.csv"


@dataclass(frozen=True)
class Case:
    """A network to start from, and the data that it regresses on."""

    name: str
    network: flowsim.DeepLinear | flowsim.Perceptron
    X: np.ndarray
    y: np.ndarray
    problem: flowsim.LinearRegression | flowsim.EmpiricalRisk

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(stack.size for stack in self.network.stacks)


def residual(*, depth: int = 10, width: int = 5, samples: int = 50) -> Case:
    """A residual network with s = 0.5 on data of a Gaussian teacher."""
    X, y = gaussian_teacher(np.random.default_rng(0), samples, width)
    return _case("residual 0.5", _residual_network(depth, width), X, y)


def perceptron(scale: float, *, depth: int = 10, width: int = 5, samples: int = 50, seed: int = 0) -> Case:
    """A deep linear perceptron with entries N(0, scale²) on the same data."""
    X, y = gaussian_teacher(np.random.default_rng(0), samples, width)
    widths = [width] * depth + [1]
    network = flowsim.DeepLinear.gaussian(widths=widths, scale=scale, key=jax.random.key(seed))
    return _case(f"MLP {scale}", network, X, y)


def diabetes(*, depth: int = 10) -> Case:
    """A residual network on real data whose covariance has condition number 470."""
    X, y = read_table(_DIABETES, "progression")
    X = standardize(X)
    return _case("diabetes", _residual_network(depth, X.shape[1]), X, unit_regressor(X, y))


def conditioned(kappa: float, *, depth: int = 10, width: int = 5, samples: int = 50) -> Case:
    """A residual network on noiseless data whose covariance has the eigenvalues 1, …, 1/κ, evenly spaced in log."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((rows, width)))[0] for rows in (samples, width))
    X = samples**0.5 * left * np.logspace(0, -np.log10(kappa) / 2, width) @ right.T
    regressor = rng.standard_normal(width)
    name = f"κ = 1e{np.log10(kappa):.0f}"
    return _case(name, _residual_network(depth, width), X, X @ (regressor / np.linalg.norm(regressor)))


def gelu(scale: float, *, depth: int = 4, width: int = 5, samples: int = 10) -> Case:
    """A perceptron with GELU on the noiseless outputs of another one, which it has the weights to fit exactly."""
    widths = [width] * depth + [1]
    teacher = flowsim.Perceptron.gaussian(widths=widths, scale=0.6, key=jax.random.key(1))
    network = flowsim.Perceptron.gaussian(widths=widths, scale=scale, key=jax.random.key(0))
    X = np.random.default_rng(0).standard_normal((samples, width))
    y = np.asarray(jax.vmap(teacher)(X))
    return Case("GELU", network, X, y, flowsim.EmpiricalRisk(X, y, minimal_risk=0.0))


def every() -> list[Case]:
    """The five cases of the accuracy and stalling benchmarks."""
    return [residual(), perceptron(0.3), perceptron(0.35), perceptron(0.55), diabetes()]


def _case(name: str, network: flowsim.DeepLinear, X: np.ndarray, y: np.ndarray) -> Case:
    return Case(name, network, X, y, flowsim.LinearRegression(X, y))


def _residual_network(depth: int, width: int) -> flowsim.DeepLinear:
    projection = np.random.default_rng(1).standard_normal(width)
    projection /= np.linalg.norm(projection)
    return flowsim.DeepLinear.residual(
        width=width, depth=depth, scale=0.5, projection=projection, key=jax.random.key(0)
    )
