"""What a block is worth: the flow and the descents from all of its starts, measured at their ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg  # noqa: F401  brings the BLAS whose threads are limited
from threadpoolctl import threadpool_limits

from ...curvature import sharpness
from ...dynamics import Outcome, descend_lanes, integrate
from ...networks import split, stacked, unstacked
from ...problems import Problem
from ..runner import build_network, build_problem, flow_options, read_data
from ..scenario import Scenario
from .block import Block
from .grid import start_key

Arrays = dict[str, np.ndarray]
NO_OUTCOME = -1


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed: its coordinates in words, and what happened."""

    cell: str
    message: str


@dataclass
class BlockResult:
    """The numbers of a block, over its starts, or over its starts and learning rates; and the cells that failed."""

    arrays: Arrays
    failures: list[Failure] = field(default_factory=list)


def compute(block: Block) -> BlockResult:
    """Compute a block: a pure function, which may run in any process on any machine.

    Turns on 64-bit JAX. A cell that raises is reported in `failures`, and the others go on.
    """
    jax.config.update("jax_enable_x64", True)
    # Several processes that each have their matrices decomposed by all cores wait for one another a hundred times as
    # long as the decompositions take.
    with threadpool_limits(1, "blas"):
        return _Work(block).done()


class _Work:
    """The objects of one block while it is computed."""

    def __init__(self, block: Block):
        self.block = block
        self.scenario = Scenario.model_validate(block.scenario)
        data = read_data(self.scenario, Path(block.folder))
        self.problem = build_problem(self.scenario, *data.training)
        self.held_out = build_problem(self.scenario, *data.held_out) if data.held_out else None
        self.networks = [self._network(start, data.features, data.outputs) for start in block.starts]
        self.failures: list[Failure] = []

    def done(self) -> BlockResult:
        arrays = _named("initial", self._measured(self.networks))
        ends: list[eqx.Module | None] = [None] * len(self.networks)
        if self.block.flow:
            flows, ends = self._flows()
            arrays |= _named("flow", flows)
        if self.block.descents:
            arrays |= _named("descent", self._descents(ends))
        if self.block.critical is not None:
            arrays |= _named("critical_learning_rate", self._guarded_bracket(self.block.critical))
        return BlockResult(arrays, self.failures)

    def _network(self, start: Any, features: int, outputs: int) -> eqx.Module:
        network = self.scenario.network.model_copy(update={"scale": start.scale})
        scenario = self.scenario.model_copy(update={"network": network})
        return build_network(scenario, features, outputs, start_key(scenario.seed, start.name, start.repetition))

    def _flows(self) -> tuple[Arrays, list[eqx.Module | None]]:
        options = flow_options(self.scenario)
        rows, ends = [], []
        for start, network in zip(self.block.starts, self.networks, strict=True):
            run = self._attempt(
                f"{self.block.describe(start)}, flow",
                lambda network=network: integrate(network, self.problem, ts=np.empty(0), **options),
            )
            ends.append(None if run is None else run.network)
            facts = (NO_OUTCOME, np.nan, 0) if run is None else (int(run.code), float(run.time), int(run.steps))
            rows.append(dict(zip(("outcome", "time", "steps"), facts, strict=True)))
        return _columns(rows) | self._measured(ends), ends

    def _descents(self, flow_ends: list[eqx.Module | None]) -> Arrays:
        lanes = [
            (number, index)
            for index, descent in enumerate(self.block.descents)
            for number, start in enumerate(self.block.starts)
            if start.repetition < descent.repetitions
        ]
        shape = (len(self.block.starts), len(self.block.descents))
        name = f"{self.block.describe(self.block.starts[0])} and {len(lanes) - 1} more, descent"
        run = self._attempt(name, lambda: self._descended(lanes)) if lanes else None
        found = _columns([{"outcome": NO_OUTCOME, "steps": 0}]) if run is None else run[0]
        ends = [] if run is None else run[1]
        measured = self._measured(ends, [flow_ends[number] for number, _ in lanes[: len(ends)]])
        places = tuple(np.array(lanes[: len(ends)], int).reshape(-1, 2).T)
        return {name: _scattered(values[: len(ends)], places, shape) for name, values in (found | measured).items()}

    def _descended(self, lanes: list[tuple[int, int]]) -> tuple[Arrays, list[eqx.Module | None]]:
        asked = [self.block.descents[index] for _, index in lanes]
        run = descend_lanes(
            stacked([self.networks[number] for number, _ in lanes]),
            self.problem,
            learning_rates=np.array([descent.learning_rate for descent in asked]),
            steps=np.array([descent.steps for descent in asked]),
        )
        outcomes = np.asarray(run.outcomes)
        ends = [
            None if outcome == Outcome.DIVERGED else network
            for outcome, network in zip(outcomes, unstacked(run.networks, len(lanes)), strict=True)
        ]
        return {"outcome": outcomes, "steps": np.asarray(run.steps)}, ends

    def _measured(self, networks: Sequence[eqx.Module | None], references: Sequence[eqx.Module | None] = ()) -> Arrays:
        """Return what is known of these networks, NaN for a network that is `None`."""
        nothing = dict.fromkeys(_MEASURES, np.nan)
        rows = []
        for number, network in enumerate(networks):
            reference = references[number] if references else None
            if network is None:
                rows.append(nothing | {"test_risk": np.nan, "distance_to_flow": np.nan})
                continue
            row = {name: float(value) for name, value in _measure(network, self.problem).items()}
            row["test_risk"] = np.nan if self.held_out is None else float(_risk(network, self.held_out))
            row["distance_to_flow"] = np.nan if reference is None else float(_distance(network, reference))
            rows.append(row | {"sharpness": _sharpness(network, self.problem)})
        columns = _columns(rows) if rows else {}
        dropped = [] if self.held_out else ["test_risk"]
        dropped += [] if references else ["distance_to_flow"]
        return {name: values for name, values in columns.items() if name not in dropped}

    def _guarded_bracket(self, asked: dict[str, Any]) -> Arrays:
        name = f"{self.block.describe(self.block.starts[0])} and {len(self.networks) - 1} more, critical learning rate"
        nothing = np.full(len(self.networks), np.nan)
        found = self._attempt(name, lambda: self._bracket(asked))
        lower, upper = (nothing, nothing) if found is None else found
        return {"lower": lower, "upper": upper}

    def _bracket(self, asked: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return for every start the learning rates between which reaching the minimum turns into missing it.

        Bisection of the logarithm, all starts in step. Where the lowest rate already misses, both are zero and it;
        where the highest reaches, it and infinity.
        """
        networks, count = stacked(self.networks), len(self.networks)

        def reaches(rates: np.ndarray) -> np.ndarray:
            run = descend_lanes(networks, self.problem, learning_rates=rates, steps=asked["steps"])
            excess = [_measure(end, self.problem)["excess_risk"] for end in unstacked(run.networks, count)]
            return (np.asarray(run.outcomes) != Outcome.DIVERGED) & (np.array(excess) <= asked["excess_risk"])

        lower, upper = np.full(count, asked["lowest"]), np.full(count, asked["highest"])
        fails, succeeds = ~reaches(lower), reaches(upper)
        while np.any(upper > lower * (1 + asked["precision"])):
            middle = np.sqrt(lower * upper)
            reached = reaches(middle)
            lower, upper = np.where(reached, middle, lower), np.where(reached, upper, middle)
        lower, upper = np.where(fails, 0.0, lower), np.where(fails, asked["lowest"], upper)
        return np.where(succeeds, asked["highest"], lower), np.where(succeeds, np.inf, upper)

    def _attempt(self, cell: str, run: Callable[[], Any]) -> Any:
        """Return what `run` returns; `None`, and a failure on record, where it raises."""
        try:
            return run()
        except Exception as error:
            self.failures.append(Failure(cell, f"{type(error).__name__}: {error}".splitlines()[0]))
            return None


_MEASURES = ("risk", "excess_risk", "squared_distance", "gradient_norm", "sharpness")


@eqx.filter_jit
def _measure(network: eqx.Module, problem: Problem) -> dict[str, jax.Array]:
    weights, rest = split(network)
    gradient = jax.grad(lambda moved: problem.objective(eqx.combine(moved, rest)))(weights)
    return {
        "risk": problem(network),
        "excess_risk": problem.excess_risk(network),
        "squared_distance": problem.squared_distance(network),
        "gradient_norm": _length(gradient),
    }


@eqx.filter_jit
def _risk(network: eqx.Module, problem: Problem) -> jax.Array:
    return problem(network)


@eqx.filter_jit
def _distance(network: eqx.Module, other: eqx.Module) -> jax.Array:
    return _length(jax.tree.map(jnp.subtract, split(network)[0], split(other)[0]))


def _length(tree: Any) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def _sharpness(network: eqx.Module, problem: Problem) -> float:
    """Return the sharpness, NaN where it cannot be certified."""
    try:
        return float(sharpness(network, problem))
    except RuntimeError:
        return float("nan")


def _columns(rows: list[dict[str, Any]]) -> Arrays:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _named(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}_{name}": values for name, values in arrays.items()}


def _scattered(values: np.ndarray, places: tuple[np.ndarray, ...], shape: tuple[int, int]) -> np.ndarray:
    whole = np.issubdtype(values.dtype, np.integer)
    table = np.full(shape, NO_OUTCOME if whole else np.nan, values.dtype)
    table[places] = values
    return table
