"""What a block is worth: the flow and the descents from all of its starts, measured at their ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..batch import descend_batch
from ..columns import FAILED, MEASURES, NOT_ASKED
from ..comparison.plan import RunSpec
from ..curvature.finiteness import check_gradient
from ..dynamics import Outcome, decide, descend, integrate, is_beyond, objective_floor
from ..kinds import reason_of
from ..networks import stacked, unstacked, weight_dtype
from ..runtime.compiling import few_blas_threads
from ..scenarios.runner import environment
from ..scenarios.sweep_settings import CriticalSettings
from .blocks import Block, StartPlan
from .critical import Bracket, critical_brackets
from .measures import distance, measure, measure_probes, risk_of, settled_outcome, sharpness_of
from .models import LABELS, centres_of, measure_descent, run_model, run_to_end

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
            return _BlockRun(block).done()
    except Exception as error:
        return failed_block(block, reason_of(error))


def failed_block(block: Block, message: str) -> BlockResult:
    """Return the result of a block of which nothing could be computed."""
    arrays = _empty(block, block.recipe.plan())
    return BlockResult(arrays, [Failure(start.describe(), message) for start in block.starts])


def _empty(block: Block, plan: StartPlan) -> Arrays:
    """Return the arrays of a block before it is computed: NaN, no steps, and `FAILED` for every requested run."""
    measures = (*MEASURES, "test_risk") if plan.holds_out else MEASURES
    runs: dict[Kind, tuple[RunSpec, ...]] = {"descent": plan.descents, "model": plan.models}
    of_models = tuple(LABELS) if plan.models else ()
    columns: dict[Kind, tuple[str, ...]] = {"initial": measures}
    if plan.flow in plan.runs:
        columns["flow"] = ("outcome", "steps", "time", *measures)
    if plan.descents:
        columns["descent"] = ("outcome", "steps", "distance_to_flow", *measures, *of_models)
    if plan.models:
        columns["model"] = (*columns["descent"], "time", "gradients", "products")
    if plan.critical is not None:
        columns["critical"] = ("learning_rate_lower", "learning_rate_upper", "status")
    whole, arrays = {"outcome": FAILED, "status": FAILED, "steps": 0}, {}
    for kind, quantities in columns.items():
        shape = (len(block.starts), len(runs[kind])) if kind in runs else len(block.starts)
        for quantity in quantities:
            arrays[Column(kind, quantity)] = np.full(shape, whole.get(quantity, np.nan))
    for kind, specs in runs.items():
        for row, start in enumerate(block.starts) if specs else ():
            skipped = [start.repetition >= plan.runs[spec] for spec in specs]
            arrays[Column(kind, "outcome")][row, skipped] = NOT_ASKED
    return arrays


class _BlockRun:
    """The objects of one block while it is computed."""

    def __init__(self, block: Block):
        self.block, self.plan = block, block.recipe.plan()
        self.arrays = _empty(block, self.plan)
        self.failures: list[Failure] = []
        made = block.recipe.materials()
        self.problem, self.held_out, self.probes = made.problem, made.held_out, made.probes
        self.stopping = made.stopping
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
        flow = self.plan.flow
        options: dict[str, Any] = {"t1": flow.until.t1, "max_steps": flow.until.steps, "stopping": self.stopping}
        for row, network in self.networks.items() if flow in self.plan.runs else ():
            with self._attempt(f"{self._cell(row)}, flow"):
                run = integrate(network, self.problem, model=flow.dynamics, ts=np.empty(0), **options)
                end = None if run.outcome == Outcome.DIVERGED else run.network
                self._note("flow", row, {"outcome": run.outcome, "steps": run.steps, "time": run.time}, end)
                if end is not None:
                    ends[row] = end
        indices = [
            (row, column)
            for column, spec in enumerate(self.plan.descents)
            for row, start in enumerate(self.block.starts)
            if row in self.networks and start.repetition < self.plan.runs[spec]
        ]
        descents = self._together_or_alone(self._descend, indices, self._cell_of_descent) if indices else []
        for index, facts, end in descents:
            with self._attempt(self._cell_of_descent(index)):
                # Descents together see the risk alone: a gradient that is NaN shows one step later.
                if end is None and facts["steps"] <= 1:
                    check_gradient(self.networks[index[0]], self.problem, "at the initial weights")
                self._note("descent", index, facts, end, ends.get(index[0]))
            if self.plan.models:
                self._models(index, end, ends.get(index[0]))
        if self.plan.critical is not None:
            self._critical_rates(self.plan.critical)
        return BlockResult(self.arrays, self.failures)

    def _cell(self, row: int) -> str:
        return self.block.starts[row].describe()

    def _cell_of_descent(self, index: tuple[int, int]) -> str:
        return f"{self._cell(index[0])}, learning rate {self.plan.descents[index[1]].learning_rate}"

    def _descend(self, indices: list[tuple[int, int]]) -> list[tuple[tuple[int, int], dict[str, Any], Any]]:
        """Run descents; return the index, the facts and the network of each, `None` for one that has diverged.

        They run together, but for those that end by a criterion of the flow's that kernels lack: a margin or an angle,
        and any early end if a step takes a minibatch alone.
        """
        stopping, specs = self.stopping, self.plan.descents
        early = stopping is not None and stopping.ends_early
        by_direction = stopping is not None and (stopping.margin is not None or stopping.direction is not None)
        together, ends = [], []
        for row, column in indices:
            spec = specs[column]
            if not (early and (by_direction or spec.descent.minibatches() is not None)):
                together.append((row, column))
                continue
            options = {"optimizer": spec.descent, "steps": spec.steps, "record_steps": [spec.steps]}
            run = descend(self.networks[row], self.problem, stopping=stopping, **options)
            end = None if run.outcome == Outcome.DIVERGED else run.network
            ends.append(((row, column), {"outcome": run.outcome, "steps": run.steps}, end))
        if not together:
            return ends
        run = descend_batch(
            stacked([self.networks[row] for row, _ in together]),
            self.problem,
            learning_rates=[specs[column].descent for _, column in together],
            steps=np.array([specs[column].steps for _, column in together]),
            floors=objective_floor(stopping, self.problem, self.networks[together[0][0]]),
        )
        outcomes, steps = np.asarray(run.outcomes), np.asarray(run.steps)
        networks = unstacked(run.networks, len(together))
        for index, outcome, count, network in zip(together, outcomes, steps, networks, strict=True):
            end = None if outcome == Outcome.DIVERGED else network
            ends.append((index, {"outcome": outcome, "steps": count}, end))
        return ends

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

    def _models(self, index: tuple[int, int], end: eqx.Module | None, reference: Any) -> None:
        """Run the models of one descent, and compare both at the last centre of its oscillation.

        A descent that diverged, or has no centre, has no models.
        """
        row, column = index
        network, spec = self.networks[row], self.plan.descents[column]
        models = {number: model for number, model in enumerate(self.plan.models) if model.follows is spec}
        if end is None:
            self._set("model", (row, list(models)), {"outcome": NOT_ASKED})
            return
        descent = centres = None
        with self._attempt(f"{self._cell_of_descent(index)}, centre"):
            descent = run_to_end(network, self.problem, spec, {})
            centres = centres_of(spec, descent)
            if len(centres.records):
                facts = measure_descent(network, self.problem, descent, centres, self.plan.flow)
                self._set("descent", index, facts)
            else:
                self._set("model", (row, list(models)), {"outcome": NOT_ASKED})
        if descent is None or centres is None or not len(centres.records):
            return
        for number, model in models.items():
            with self._attempt(f"{self._cell_of_descent(index)}, {model.dynamics.kind()} flow"):
                run, measures = run_model(network, self.problem, model, descent, centres)
                facts = {"outcome": run.outcome, "steps": run.steps, "time": run.time}
                facts |= {"gradients": run.gradients, "products": run.products, **measures}
                there = None if run.outcome == Outcome.DIVERGED else run.network
                self._note("model", (row, number), facts, there, reference)

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
        """Tell whether a descent leaves a minimum of this sharpness."""
        spec = self.plan.descents[column]
        threshold = spec.descent.lasting_threshold(jnp.asarray(spec.end_time))
        return threshold is not None and bool(is_beyond(sharpness, float(threshold), weight_dtype(network)))

    def _set(self, kind: Kind, index: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            column = Column(kind, name)
            if column not in self.arrays:  # of a probe, whose shape was not known before
                shape = self.arrays[Column(kind, "risk")].shape
                self.arrays[column] = np.full((*shape, *np.shape(value)), np.nan)
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
