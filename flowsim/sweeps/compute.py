"""What a block is worth: the flow and the descents from all of its starts, measured at their ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..batch import descend_batch
from ..columns import FAILED, MEASURES, NOT_ASKED
from ..curvature.finiteness import check_gradient
from ..dynamics import Descent, Outcome, as_descent, decide, descend, integrate, objective_floor, times_of_steps
from ..kinds import reason_of
from ..networks import stacked, unstacked, weight_dtype
from ..runtime.compiling import few_blas_threads
from ..scenarios.runner import environment
from ..scenarios.sweep_settings import CriticalSettings
from .critical import Bracket, critical_brackets
from .measures import distance, measure, measure_probes, risk_of, settled_outcome, sharpness_of
from .models import LABELS, ModelledDescent
from .work import Block

Kind = Literal["initial", "flow", "descent", "model", "critical"]


class Column(NamedTuple):
    """One quantity of a block: of its starts, or of their flows, descents, models or bisections."""

    of: Kind
    quantity: str


Arrays = dict[Column, np.ndarray]


@dataclass(frozen=True)
class Failure:
    """A cell that could not be computed: its coordinates in words, and what happened."""

    cell: str
    message: str


@dataclass
class BlockResult:
    """The numbers of a block, over its starts, or over its starts and its descents or models; and what failed."""

    arrays: Arrays
    failures: list[Failure] = field(default_factory=list)


def compute(block: Block, expected: dict[str, Any]) -> BlockResult:
    """Compute a block: a pure function, which may run in any process on any machine of the `expected` environment.

    Turns 64-bit JAX on or off, as the block wants it. A cell that raises is reported in `failures`, and the others go
    on.
    """
    if jax.config.jax_enable_x64 != block.recipe.wide:  # pyright: ignore[reportAttributeAccessIssue]  (set at run time)
        jax.config.update("jax_enable_x64", block.recipe.wide)
    try:
        # What would be stored under the name of something else is not computed.
        for name, value in environment().items():
            if value != expected.get(name):
                raise RuntimeError(f"the worker has {name} {value}, and the run was started with {expected.get(name)}")
        block.recipe.check_origin()
        # Several processes that each have their matrices decomposed by all cores wait for one another a hundred times
        # as long as the decompositions take.
        with few_blas_threads(1):
            return _Work(block).done()
    except Exception as error:
        return failed_block(block, reason_of(error))


def failed_block(block: Block, message: str) -> BlockResult:
    """Return the result of a block of which nothing could be computed."""
    return BlockResult(_nothing(block), [Failure(start.describe(), message) for start in block.starts])


def _nothing(block: Block) -> Arrays:
    """Return the arrays of a block before anything is known: NaN, no steps, and `FAILED` for every requested run."""
    count = len(block.starts)
    known = (*MEASURES, "test_risk") if block.recipe.holds_out else MEASURES
    columns = [Column("initial", name) for name in known]
    if block.recipe.flow:
        columns += [Column("flow", name) for name in ("outcome", "steps", "time", *known)]
    kinds: tuple[Kind, ...] = ("descent", "model")
    for kind in filter(partial(_runs_of, block), kinds):
        columns += [Column(kind, name) for name in ("outcome", "steps", "distance_to_flow", *known)]
    if _runs_of(block, "model"):
        columns += [Column("model", name) for name in ("time", "gradients", "products")]
        columns += [Column(kind, name) for kind in kinds for name in LABELS]
    if block.recipe.critical is not None:
        columns += [Column("critical", name) for name in ("learning_rate_lower", "learning_rate_upper", "status")]
    whole = {"outcome": FAILED, "status": FAILED, "steps": 0}
    arrays = {
        column: np.full((count, *_runs_of(block, column.of)), whole.get(column.quantity, np.nan)) for column in columns
    }
    requested = [[start.repetition < one.repetitions for one in block.recipe.descents] for start in block.starts]
    for column, values in arrays.items():
        if column.of in kinds and column.quantity == "outcome":
            runs = 1 if column.of == "descent" else len(block.recipe.models)
            values[~np.repeat(requested, runs, axis=1)] = NOT_ASKED
    return arrays


def _runs_of(block: Block, kind: Kind) -> tuple[int, ...]:
    """Return how many runs of a kind there are from each start, where there may be several: descents, and their models.

    Nothing where there are none.
    """
    descents = len(block.recipe.descents)
    count = {"descent": descents, "model": descents * len(block.recipe.models)}.get(kind, 0)
    return (count,) if count else ()


@dataclass(frozen=True)
class _End:
    """The end of one descent: its start and learning rate by number, what is known, and the network if there is one."""

    index: tuple[int, int]
    facts: dict[str, Any]
    network: eqx.Module | None


class _Work:
    """The objects of one block while it is computed."""

    def __init__(self, block: Block):
        self.block = block
        self.arrays = _nothing(block)
        self.failures: list[Failure] = []
        self.recipe = block.recipe
        made = self.recipe.materials()
        self.problem, self.held_out, self.probes = made.problem, made.held_out, made.probes
        self.flow_options, self.stopping, self.optimizers = made.flow, made.flow["stopping"], made.optimizers
        self.models = made.models
        self.networks: dict[int, Any] = {}
        for row, start in enumerate(block.starts):
            with self._attempt(start.describe()):
                self.networks[row] = made.network(start)

    def done(self) -> BlockResult:
        """Compute everything that the block asks for."""
        ends: dict[int, eqx.Module] = {}
        for row, network in self.networks.items():
            with self._attempt(f"{self._cell(row)}, start"):
                self._note("initial", row, {}, network)
        for row, network in self.networks.items() if self.recipe.flow else ():
            with self._attempt(f"{self._cell(row)}, flow"):
                run = integrate(network, self.problem, ts=np.empty(0), **self.flow_options)
                end = None if run.outcome == Outcome.DIVERGED else run.network
                self._note("flow", row, {"outcome": run.outcome, "steps": run.steps, "time": run.time}, end)
                if end is not None:
                    ends[row] = end
        for end in self._descents():
            with self._attempt(self._cell_of_descent(end.index)):
                # Descents together see the risk alone: a gradient that is NaN shows one step later.
                if end.network is None and end.facts["steps"] <= 1:
                    check_gradient(self.networks[end.index[0]], self.problem, "at the initial weights")
                self._note("descent", end.index, end.facts, end.network, ends.get(end.index[0]))
            if self.recipe.models:
                self._models(end, ends.get(end.index[0]))
        if self.recipe.critical is not None:
            self._critical_rates(self.recipe.critical)
        return BlockResult(self.arrays, self.failures)

    def _cell(self, row: int) -> str:
        return self.block.starts[row].describe()

    def _descents(self) -> list[_End]:
        """Run gradient descent for every start and learning rate that goes with it."""
        indices = [
            (row, column)
            for column, descent in enumerate(self.recipe.descents)
            for row, start in enumerate(self.block.starts)
            if row in self.networks and start.repetition < descent.repetitions
        ]
        return self._together_or_alone(self._descend, indices, self._cell_of_descent) if indices else []

    def _cell_of_descent(self, index: tuple[int, int]) -> str:
        return f"{self._cell(index[0])}, learning rate {self.recipe.descents[index[1]].learning_rate}"

    def _descend(self, indices: list[tuple[int, int]]) -> list[_End]:
        """Run descents together, those of one optimizer at a time."""
        by_optimizer: dict[int, list[tuple[int, int]]] = {}
        for index in indices:
            by_optimizer.setdefault(self.recipe.descents[index[1]].optimizer, []).append(index)
        return [end for group in by_optimizer.values() for end in self._descend_together(group)]

    def _descend_together(self, indices: list[tuple[int, int]]) -> list[_End]:
        if self._ends_alone(indices):
            return [self._descend_alone(index) for index in indices]
        descents = [self.recipe.descents[column] for _, column in indices]
        run = descend_batch(
            stacked([self.networks[row] for row, _ in indices]),
            self.problem,
            learning_rates=np.array([descent.learning_rate for descent in descents]),
            steps=np.array([descent.steps for descent in descents]),
            optimizer=self.optimizers[descents[0].optimizer],
            floors=objective_floor(self.stopping, self.problem, self.networks[indices[0][0]]),
        )
        outcomes, steps = np.asarray(run.outcomes), np.asarray(run.steps)
        ends = unstacked(run.networks, len(indices))
        return [
            _End(index, {"outcome": outcome, "steps": count}, None if outcome == Outcome.DIVERGED else end)
            for index, outcome, count, end in zip(indices, outcomes, steps, ends, strict=True)
        ]

    def _ends_alone(self, indices: list[tuple[int, int]]) -> bool:
        """Tell whether descents end by a criterion of the flow's that kernels do not know.

        That is a margin or an angle, and anything early where a step sees a minibatch alone.
        """
        stopping = self.stopping
        if stopping is None or not stopping.ends_early:
            return False
        sampled = any(self._descent(column).minibatches() is not None for _, column in indices)
        return sampled or stopping.margin is not None or stopping.direction is not None

    def _descent(self, column: int) -> Descent:
        planned = self.recipe.descents[column]
        return as_descent(self.optimizers[planned.optimizer](planned.learning_rate))

    def _descend_alone(self, index: tuple[int, int]) -> _End:
        """Run a descent that ends by the criterion of the flow, one after the other."""
        row, column = index
        steps = self.recipe.descents[column].steps
        options = {"optimizer": self._descent(column), "steps": steps, "record_steps": [steps]}
        run = descend(self.networks[row], self.problem, stopping=self.stopping, **options)
        facts = {"outcome": run.outcome, "steps": run.steps}
        return _End(index, facts, None if run.outcome == Outcome.DIVERGED else run.network)

    def _together_or_alone(self, run: Callable[[list], list], entries: list, cell: Callable[[Any], str]) -> list:
        """Return `run(entries)`; where that raises, the same one by one, which shows whose fault it is."""
        try:
            return run(entries)
        except Exception:
            found = []
            for entry in entries:
                with self._attempt(cell(entry)):
                    found += run([entry])
            return found

    def _models(self, end: _End, reference: Any) -> None:
        """Run the models of one descent, and compare both where the centre of its oscillation is last known.

        A descent that diverged, or has no centre, has no models.
        """
        row, column = index = end.index
        places = slice(column * len(self.recipe.models), (column + 1) * len(self.recipe.models))
        if end.network is None:
            self._set("model", (row, places), {"outcome": NOT_ASKED})
            return
        descent, planned = self._descent(column), self.recipe.descents[column]
        rate, steps = planned.learning_rate, planned.steps
        modelled = ModelledDescent(self.networks[row], self.problem, descent, rate, steps, self.flow_options)
        known = False
        with self._attempt(f"{self._cell_of_descent(index)}, centre"):
            if known := bool(len(modelled.centres.records)):
                self._set("descent", index, modelled.measured())
            else:
                self._set("model", (row, places), {"outcome": NOT_ASKED})
        if not known:
            return
        for number, (name, model) in enumerate(self.models.items()):
            with self._attempt(f"{self._cell_of_descent(index)}, {name} flow"):
                run, found = modelled.model(name, model)
                facts = {"outcome": run.outcome, "steps": run.steps, "time": run.time}
                facts |= {"gradients": run.gradients, "products": run.products, **found}
                there = None if run.outcome == Outcome.DIVERGED else run.network
                self._note("model", (row, places.start + number), facts, there, reference)

    def _critical_rates(self, settings: CriticalSettings) -> None:
        def search(rows: list[int]) -> list[tuple[int, Bracket]]:
            networks = [self.networks[row] for row in rows]
            return list(zip(rows, critical_brackets(networks, self.problem, self.stopping, settings), strict=True))

        def cell(row: int) -> str:
            return f"{self._cell(row)}, critical learning rate"

        for row, found in self._together_or_alone(search, list(self.networks), cell):
            rates = {"learning_rate_lower": found.lower, "learning_rate_upper": found.upper}
            self._set("critical", row, rates | {"status": found.status})

    def _note(
        self, kind: Kind, index: Any, facts: dict[str, Any], network: eqx.Module | None, reference: Any = None
    ) -> None:
        """Write down the `facts` about a run, and the measures of its end, NaN without one."""
        row = index[0] if isinstance(index, tuple) else index
        values = {} if network is None else self._measured(network, self.networks[row])
        if network is not None and reference is not None:
            values["distance_to_flow"] = distance(network, reference)
        verdict = values.pop("verdict", None)
        if kind == "descent" and network is not None:
            outcome = settled_outcome(self.networks[index[0]], network, self.problem, self.stopping, verdict)
            if outcome != Outcome.CONVERGED or not self._leaves(index[1], network, values["sharpness"]):
                facts = facts | {"outcome": decide({outcome: True, Outcome(facts["outcome"]): True})}
        self._set(kind, index, values | facts)  # a probe of an oscillation knows it where it has the state of the run

    def _leaves(self, column: int, network: eqx.Module, sharpness: float) -> bool:
        """Tell whether a descent leaves a minimum of this sharpness, beyond its threshold by half of the digits."""
        descent, steps = self._descent(column), self.recipe.descents[column].steps
        end = times_of_steps(descent, steps=steps)[-1] if descent.is_scheduled() else 0.0
        threshold = descent.lasting_threshold(jnp.asarray(end))
        digits = float(jnp.finfo(weight_dtype(network)).eps) ** 0.5
        return threshold is not None and sharpness > float(threshold) * (1 + digits)

    def _set(self, kind: Kind, index: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            column = Column(kind, name)
            if column not in self.arrays:  # of a probe, whose shape was not known before
                shape = (len(self.block.starts), *_runs_of(self.block, kind), *np.shape(value))
                self.arrays[column] = np.full(shape, np.nan)
            self.arrays[column][index] = value

    def _measured(self, network: eqx.Module, start: eqx.Module) -> dict[str, Any]:
        values = measure(network, self.problem, self.stopping) | {"sharpness": sharpness_of(network, self.problem)}
        probes = tuple(probe.begin(start) for probe in self.probes)
        values |= measure_probes(probes, network, self.problem, jnp.asarray(values["gradient_norm"]))
        return values if self.held_out is None else values | {"test_risk": risk_of(network, self.held_out)}

    @contextmanager
    def _attempt(self, cell: str) -> Iterator[None]:
        """Put a failure of `cell` on record where the body raises."""
        try:
            yield
        except Exception as error:
            self.failures.append(Failure(cell, reason_of(error)))
