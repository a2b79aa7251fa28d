"""A scenario becomes a problem, a network and a comparison."""

import platform
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..comparison import Comparison, compare
from ..dynamics import Stopping, solvers
from ..networks import DeepLinear, Perceptron, cast
from ..problems import EmpiricalRisk, LinearRegression, Problem
from ..problems.data import gaussian_teacher_with_test, standardize, unit_regressor
from ..problems.table import read_table
from .contradictions import shape_refusals
from .document import ScenarioError
from .scenario import Scenario
from .settings import FileData, ResidualNetwork


def run(
    scenario: Scenario,
    problem: Problem,
    network: eqx.Module,
    *,
    progress: Callable[[str], None] = lambda stage: None,
) -> Comparison:
    """Run `scenario` on what `build` made of it; `progress` hears what is being done."""
    return compare(
        network,
        problem,
        scenario.descent.learning_rates,
        steps=scenario.descent.steps,
        progress=progress,
        **flow_options(scenario),
    )


def flow_options(scenario: Scenario) -> dict[str, Any]:
    """Return the arguments of `integrate` that `scenario` sets."""
    flow = scenario.flow
    return {
        "solver": None if flow.solver == "auto" else _solver(flow.solver),
        "rtol": flow.rtol,
        "atol": flow.atol,
        "t1": flow.t1,
        "max_steps": flow.max_steps,
        "stopping": _stopping(scenario),
    }


def _solver(name: str) -> diffrax.AbstractAdaptiveSolver:
    return getattr(solvers if hasattr(solvers, name) else diffrax, name)()


def build(scenario: Scenario, folder: Path) -> tuple[Problem, eqx.Module]:
    """Return the problem and the network of `scenario`, whose data file, if any, is found from `folder`.

    Needs 64-bit JAX (`jax_enable_x64`), also for precision float32, so that both precisions start from the same
    numbers. Raises `DataError` for data that cannot be used, and `ScenarioError` where they do not fit the network.
    """
    data = read_data(scenario, folder)
    return build_problem(scenario, *data.training), build_network(scenario, data.features, data.outputs)


@dataclass(frozen=True)
class Data:
    """The samples (X, y) to train on, and those that training does not see, if there are any."""

    training: tuple[np.ndarray, np.ndarray]
    held_out: tuple[np.ndarray, np.ndarray] | None

    @property
    def features(self) -> int:
        """The number of features d."""
        return self.training[0].shape[1]

    @property
    def outputs(self) -> int:
        """The number of labels of one sample."""
        return 1 if self.training[1].ndim == 1 else self.training[1].shape[1]


def read_data(scenario: Scenario, folder: Path) -> Data:
    """Draw or read the data of `scenario`. Raises as `build` does."""
    data = scenario.data
    if isinstance(data, FileData):
        found = Data(_file_data(data, folder), None)
    else:
        generator = np.random.default_rng([scenario.seed, _number("data")])
        sizes = (data.samples, data.features)
        options = {"noise": data.noise, "outputs": data.outputs, "condition": data.condition}
        drawn = gaussian_teacher_with_test(generator, *sizes, test_samples=data.test_samples, **options)
        found = Data(drawn[:2], drawn[2:] if data.test_samples else None)
    for refusal in shape_refusals(scenario.network, found.features, found.outputs):
        raise ScenarioError(refusal.message())
    return found


def build_problem(scenario: Scenario, X: np.ndarray, y: np.ndarray) -> Problem:
    """Return the risk of the network of `scenario` on these samples."""
    spec = scenario.network
    return LinearRegression(X, y) if spec.linear else EmpiricalRisk(X, y)


def build_network(scenario: Scenario, features: int, outputs: int, key: jax.Array | None = None) -> eqx.Module:
    """Return the network of `scenario` with weights drawn from `key`, by default that of its seed."""
    key = _key(scenario.seed, "network") if key is None else key
    return cast(_network(scenario, features, outputs, key), jnp.dtype(scenario.precision))


def environment() -> dict[str, Any]:
    """Return what a result depends on besides its scenario: versions and device."""
    packages = ("flowsim", "jax", "jaxlib", "diffrax", "equinox", "numpy")
    device = default_device()
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "platform": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform}: {device.device_kind}",
    }


def default_device() -> Any:
    """Return the device on which this process computes."""
    return next(iter(jnp.empty(0).devices()))


def _file_data(data: FileData, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = read_table(folder / data.path, data.target_names, data.feature_names)
    if data.standardize:
        # The networks have no constant term: with centred features, centring y takes its place.
        X, y = standardize(X), y - y.mean(axis=0)
    return X, unit_regressor(X, y) if data.unit_regressor else y


def _network(scenario: Scenario, features: int, outputs: int, key: jax.Array) -> DeepLinear | Perceptron:
    spec = scenario.network
    if isinstance(spec, ResidualNetwork):
        direction = jax.random.normal(_key(scenario.seed, "projection"), (features,))
        projection = direction / jnp.linalg.norm(direction) if outputs == 1 else None
        return DeepLinear.residual(width=features, depth=spec.depth, scale=spec.scale, projection=projection, key=key)
    widths = [features] + [spec.width or features] * (spec.depth - 1) + [outputs]
    if spec.activation == "linear":
        network = DeepLinear.gaussian(widths=widths, scale=spec.scale, key=key)
        return network if spec.zero_layer is None else network.with_zero_layer(spec.zero_layer)
    return Perceptron.gaussian(widths=widths, scale=spec.scale, activation=spec.activation, key=key)


def _stopping(scenario: Scenario) -> Stopping | None:
    flow = scenario.flow
    if flow.gradient_norm is None and flow.excess_risk is None and flow.risk is None:
        return None
    standard = Stopping.standard(jnp.dtype(scenario.precision)).gradient_norm
    return Stopping(flow.gradient_norm or standard, flow.excess_risk, flow.risk)


def _key(seed: int, name: str) -> jax.Array:
    """Return the key of one random object, which depends on the seed and the name of the object alone."""
    return jax.random.fold_in(jax.random.key(seed), _number(name))


def _number(name: str) -> int:
    return zlib.crc32(name.encode())
