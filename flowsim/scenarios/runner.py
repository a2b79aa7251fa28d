"""A scenario becomes a problem, a network and a comparison."""

import platform
import sysconfig
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..columns import MEASURES
from ..comparison import Comparison, FlowLimits, SharpnessAlong, compare
from ..comparison.plan import ForkError
from ..data.sources import Data, check_data
from ..dynamics import stopping_for
from ..formatting import ProgressCallback
from ..kinds import reason_of, seeds
from ..networks import cast
from ..networks.recipes import shape_errors
from ..probes import HELD_OUT, PROBES, BatchProbe, Probe
from ..problems import EmpiricalRisk, LinearRegression, Minibatches, Problem, RegularizedRisk
from ..runtime.errors import UserError
from ..runtime.paths import user_path
from ..solvers.field import checked_parts
from .document import ScenarioError
from .keys import own_kinds
from .scenario import Scenario

# Folders in which the code of a user is not.
_INSTALLED = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Say in one message where `what` fails, unless it says so itself. Raises `ScenarioError`."""
    try:
        yield
    except (UserError, ForkError, OSError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except (Exception, SystemExit) as error:  # a user's code may call sys.exit, and 0 would mean that all went well
        frames = traceback.extract_tb(error.__traceback__)
        frame = ([frame for frame in frames if not frame.filename.startswith(_INSTALLED)] or frames)[-1]
        raise ScenarioError(f"{what} fails: {reason_of(error)} ({frame.filename}:{frame.lineno})") from error


def run(
    scenario: Scenario,
    problem: Problem,
    network: eqx.Module,
    probes: Sequence[Probe],
    *,
    progress: bool | ProgressCallback = False,
) -> Comparison:
    """Run a scenario on what `build` made of it.

    Args:
        scenario: What to run, as `read_scenario` reads it.
        problem: Its risk.
        network: Its network before the first step.
        probes: What it records.
        progress: That of `compare`; by default nothing is shown.

    Returns:
        The flow and the descents of the scenario, as `compare` returns them.

    Raises:
        ScenarioError: Where a run fails of which a probe, or a kind of a user's own, is part.

    Examples:
        >>> from pathlib import Path
        >>> import flowsim
        >>> path = Path("scenarios/residual.yaml")
        >>> scenario = flowsim.scenarios.read_scenario(path)
        >>> both = flowsim.scenarios.run(scenario, *flowsim.scenarios.build(scenario, path.parent))
        >>> print(both.flow.outcome)
        CONVERGED
    """
    own = [
        *own_kinds(scenario, scenario.descent.kinds()),
        *(entry.kind for entry in scenario.record),
    ]
    flow, own = scenario.flow, list(dict.fromkeys(own))
    with warnings.catch_warnings(), _forking(), failing(f"a run with {', '.join(own)}") if own else nullcontext():
        warnings.filterwarnings("ignore", message="the weights are")  # the scenario's precision says it
        return compare(
            network,
            problem,
            [scenario.descent.at(rate) for rate in scenario.descent.learning_rates],
            steps=scenario.descent.steps,
            sharpness=sharpness_along(scenario),
            models=tuple(flow.of_descent.values()),
            limits=None if flow.limits is None else FlowLimits(flow.limits),
            forks=scenario.descent.made_forks(),
            probes=probes,
            progress=progress,
            **flow.options(),
        )


def sharpness_along(scenario: Scenario) -> SharpnessAlong:
    """Return how the sharpness is followed along the runs of `scenario`."""
    return SharpnessAlong() if scenario.sharpness is None else scenario.sharpness.make()


@contextmanager
def _forking() -> Iterator[None]:
    """Raise `ScenarioError` in place of what a comparison says of forks that cannot be."""
    try:
        yield
    except ForkError as error:
        raise ScenarioError(f"descent.forks: {error}") from None


def build(scenario: Scenario, folder: Path) -> tuple[Problem, eqx.Module, tuple[Probe, ...]]:
    """Return the problem, the network and the probes of a scenario.

    Needs 64-bit JAX (`jax_enable_x64`), also for precision float32, so that both precisions start from the same
    numbers.

    Args:
        scenario: The scenario.
        folder: Where its data file, if any, is found from.

    Returns:
        The risk, the network at the start, and what is recorded.

    Raises:
        DataError: For data that cannot be used.
        ScenarioError: Where they do not fit the network.
    """
    data = read_data(scenario, folder)
    network = build_network(scenario, scenario.network.inputs_for(data.shape), data.outputs)
    with failing(f"a network of kind {scenario.network.kind}, on data of kind {scenario.data.kind},"):
        problem = training_problem(scenario, data)
        checked_parts(network, problem)
        eqx.filter_eval_shape(problem, network)
        probes = build_probes(scenario, data)
    try:
        sharpness_along(scenario).check(network)
    except ValueError as error:
        raise ScenarioError(f"sharpness: {error}") from None
    if scenario.sweep is None or scenario.descent.learning_rates:  # else other networks alone may run
        _check_probes(probes, network, problem)
    _check_minibatches(scenario, problem)
    try:
        stopping_for(scenario.flow.stopping, problem, jnp.dtype(scenario.precision))
    except ValueError as error:  # of a criterion that these data do not have
        raise ScenarioError(f"flow: {error}") from None
    return problem, network, probes


def _check_probes(probes: Sequence[Probe], network: eqx.Module, problem: Problem) -> None:
    """Raise `ScenarioError` where a probe cannot be measured, as more eigenvalues than the network has weights."""
    for probe in probes:
        try:
            probe.check(network, problem)
        except ValueError as error:
            raise ScenarioError(f"record: {probe.label.name}: {error}") from None


def _check_minibatches(scenario: Scenario, problem: Problem) -> None:
    """Raise `ScenarioError` where a descent draws from samples that the problem does not have."""
    for place, sampler in _samplers(scenario):
        try:
            if sampler is not None:
                sampler.samples_of(problem)
        except ValueError as error:
            raise ScenarioError(f"{place}.optimizer: {error}") from None


def _samplers(scenario: Scenario) -> Iterator[tuple[str, Minibatches | None]]:
    """Yield how each descent draws minibatches, `None` where it takes all samples, with its place in the scenario."""
    sections = {"descent": scenario.descent} if scenario.descent.learning_rates else {}
    swept = () if scenario.sweep is None else scenario.sweep.descent
    for place, section in {**sections, **{f"sweep.descent[{n}]": entry for n, entry in enumerate(swept)}}.items():
        yield place, section.at(section.learning_rates[0]).minibatches()
    rates = scenario.descent.learning_rates
    for number, fork in enumerate(scenario.descent.made_forks() if rates else ()):
        assert fork.optimizer is not None
        yield f"descent.forks[{number}]", fork.optimizer(fork.learning_rate or rates[0]).minibatches()


def read_data(scenario: Scenario, folder: Path) -> Data:
    """Draw or read the data of `scenario`. Raises as `build` does."""
    with failing(f"data of kind {scenario.data.kind}"):
        found = scenario.data.load(seeds.generator(scenario.seed, "data"), user_path(folder))
        check_data(found)
    if found.classes is not None:
        wanted = found.labels
        found = found.written_as(scenario.loss.make().labels(found.classes) if wanted == "auto" else wanted)
    for error in shape_errors(scenario.network, found.shape, found.outputs):
        raise ScenarioError(error.message())
    return found if scenario.network.keeps_shape() else found.flattened()


def build_problem(scenario: Scenario, X: np.ndarray, y: np.ndarray) -> Problem:
    """Return the risk of the network of `scenario` on these samples, without weight decay."""
    if not scenario.least_squares:
        return EmpiricalRisk(X, y, scenario.loss.make())
    drawn = any(sampler is not None for _, sampler in _samplers(scenario))
    kinds = [PROBES[entry.kind] for entry in scenario.record if entry.kind not in MEASURES]
    probed = any(isinstance(kind, type) and issubclass(kind, BatchProbe) for kind in kinds)
    return LinearRegression(X, y, keep_samples=drawn or probed)


def training_problem(scenario: Scenario, data: Data) -> Problem:
    """Return the risk that `scenario` trains on, with its weight decay."""
    problem = build_problem(scenario, *data.training)
    return RegularizedRisk(problem, scenario.weight_decay) if scenario.weight_decay else problem


def build_probes(scenario: Scenario, data: Data) -> tuple[Probe, ...]:
    """Return what `scenario` records, with the samples of `data` that are held out. Raises `ScenarioError` for none."""
    given: dict[str, Any] = {}
    if data.held_out is not None:
        given = {"test_problem": build_problem(scenario, *data.held_out), "test_samples": data.held_out}
    for entry in scenario.record:
        if not given and entry.given & HELD_OUT:
            found = f"{entry.kind} beside data of kind {scenario.data.kind}, whose load holds out no samples"
            raise ScenarioError(f"record: found {found}; expected Data(training, held_out); write another record")
    return tuple(entry.make(**given) for entry in scenario.record if entry.kind not in MEASURES)


def build_network(scenario: Scenario, inputs: Any, outputs: int, key: jax.Array | None = None) -> eqx.Module:
    """Return the network of `scenario` with weights drawn from `key`, by default that of its seed."""
    key = seeds.key(scenario.seed, "network") if key is None else key
    with failing(f"a network of kind {scenario.network.kind}"):
        made = scenario.network.build(inputs, outputs, key=key, shared=partial(seeds.key, scenario.seed))
    return cast(made, jnp.dtype(scenario.precision))


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
