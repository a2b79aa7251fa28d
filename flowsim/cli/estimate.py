"""About how long a scenario takes on this machine, and how much memory, from one gradient compiled and timed."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..comparison.compare import RecordBudget
from ..comparison.models import GRADIENT
from ..dynamics import GradientFlow
from ..networks import split
from ..problems import Problem
from ..scenarios import environment
from ..scenarios.forecast import count_checked_flows, count_products, seconds_of_checks, seconds_of_products
from ..scenarios.runner import flow_options, read_data, sharpness_along
from ..solvers.solver import memory_of
from ..sweeps import BlockStore, plan
from .jobs import Job


@dataclass(frozen=True)
class Pace:
    """The speed of a machine: seconds of a `gradient` inside of a compiled loop, and of the `compilation` of that."""

    gradient: float
    compilation: float


@dataclass(frozen=True)
class Costs:
    """What the parts of a run cost, measured on the shipped scenarios; nothing but the estimate depends on it.

    All is counted in compilations and evaluations of the gradient, in which linear and nonlinear networks agree.
    """

    around: float = 6.0
    """Seconds for Python, its packages, tables and figures."""
    compilations: int = 40
    """Compilations of a gradient that the programs of the comparison, of a model or of a shape in a sweep are worth."""
    theory_compilations: int = 20
    """The same for a shape on which statements of the theory are checked."""
    explicit_step: int = 5
    """Gradients in a step of the flow by an explicit method."""
    implicit_step: int = 20
    """Gradients in a step of the flow that looks at second derivatives."""
    sharpness: int = 32
    """Gradients that the sharpness at one record is worth."""
    model_run: int = 30_000
    """Gradients in a run of a model of descent."""
    valley: int = 10
    """Steps of the flow for each record where a nonlinear network creeps to its limit along a valley."""
    records_alone: int = 100
    """Records of a flow with no descent beside it."""
    process_bytes: float = 7e8
    """Memory of Python and JAX, the compiler at work included."""
    verdict: tuple[int, int] = (256, 42)
    """Beyond so many weights, the copies of them in the highest precision that the verdict of a flow takes."""


@dataclass(frozen=True)
class Work:
    """A part of a run: in words `what` it is, and its cost in compilations and gradients of the risk, and in seconds.

    Descents `may_end_early`: they stop where they converge.
    """

    what: str
    compilations: float = 0.0
    gradients: float = 0.0
    seconds: float = 0.0
    may_end_early: bool = False

    def at(self, pace: Pace) -> float:
        """Return the seconds that it takes on a machine of this pace."""
        return self.compilations * pace.compilation + self.gradients * pace.gradient + self.seconds


@dataclass(frozen=True)
class Estimate:
    """About what a job takes: its `parts`, and how many `seconds` and `bytes` in all.

    `solver_known` tells whether the memory of the solver is known, and among the bytes.
    """

    weights: int
    samples: int
    parts: tuple[Work, ...]
    seconds: float
    may_end_early: bool
    bytes: float
    solver_known: bool


def estimate(
    job: Job, *, store: BlockStore, processes: int, pace: Pace | None = None, costs: Costs = Costs()
) -> Estimate:
    """Return about what a job takes whose sweep is shared by `processes` and keeps its blocks in `store`.

    Nothing of it is run. The pace of this machine is measured unless it is given.
    """
    pace = measure_pace(job.network, job.problem) if pace is None else pace
    weights = sum(leaf.size for leaf in jax.tree.leaves(split(job.network)[0]))
    known = job.problem.sample_count()  # a linear regression keeps the covariance of its samples alone
    samples = len(read_data(job.scenario, job.path.parent).training[0]) if known is None else known
    parts = [*_comparison(job, weights, samples, costs), *_theory(job, processes, costs)]
    parts += _sweep(job, store, processes, costs)
    seconds = costs.around + sum(part.at(pace) for part in parts)
    early = sum(part.at(pace) for part in parts if part.may_end_early)
    needed, solver = _memory(job, weights, samples, costs)
    return Estimate(weights, samples, tuple(parts), seconds, early > seconds / 2, needed, solver)


def _comparison(job: Job, weights: int, samples: int, costs: Costs) -> Iterator[Work]:
    """Yield the work of the flow, and of the descents and models beside it."""
    if not job.compares:
        return
    flow, descent, rates = job.scenario.flow, job.scenario.descent, len(job.scenario.descent.learning_rates)
    recorded = RecordBudget().of_runs(job.network, rates)
    of_flow = rates * recorded or costs.records_alone
    along = sharpness_along(job.scenario)
    measured = rates * along.expected_records(weights, recorded) + along.expected_records(weights, of_flow)
    to_limit = of_flow * (1 if job.scenario.network.is_linear() else costs.valley)
    steps = to_limit if math.isinf(flow.t1) else of_flow
    if rates and not math.isinf(flow.t1):  # in about as many as stability asks of descent
        steps = max(steps, descent.all_steps(flow.t1) // rates // 3)
    per_step = costs.explicit_step if job.problem.rank(job.network) is None else costs.implicit_step
    until = "to its limit" if math.isinf(flow.t1) else f"to t = {flow.t1:g}"
    gradients = min(steps, flow.max_steps) * per_step + measured * along.count * costs.sharpness
    yield Work(f"the flow {until}", costs.compilations, gradients)
    if rates:
        count = descent.all_steps(flow.t1)
        sampler = descent.optimizer.make()(descent.learning_rates[0]).minibatches()
        share = 1.0 if sampler is None else min(1.0, 2 * sampler.size / samples)  # once an epoch the full gradient
        yield Work(f"{rates} descents of {count} steps in all", gradients=count * share, may_end_early=True)
    if models := [name for name in flow.models if name != GRADIENT]:
        runs = f"{rates * len(models)} runs of models: {', '.join(models)}"
        yield Work(runs, costs.compilations * len(models), rates * len(models) * costs.model_run)
    if flow.limits:
        flows = rates * flow.limits
        gradients = flows * min(to_limit, flow.max_steps) * per_step
        yield Work(f"{flows} flows from points of the descents", costs.compilations, gradients)


def _theory(job: Job, processes: int, costs: Costs) -> Iterator[Work]:
    """Yield the work of the statements that are checked on flows of their own, and on products of matrices."""
    theory, products = job.scenario.theory, job.scenario.lemma_3
    if theory is not None:
        shapes = len({(cell.depth, cell.features) for cell in job.cells})
        what = f"{count_checked_flows(theory)} flows to check statements on"
        yield Work(what, shapes * costs.theory_compilations, seconds=seconds_of_checks(theory))
    if products is not None:
        what = f"{count_products(products)} initializations for Lemma 3"
        yield Work(what, seconds=seconds_of_products(products) / processes)


def _sweep(job: Job, store: BlockStore, processes: int, costs: Costs) -> Iterator[Work]:
    """Yield the work of the blocks of a sweep that are not stored yet."""
    sweep = job.scenario.sweep
    if sweep is None:
        return
    here = environment()
    blocks = [placed.block for placed in plan(job.scenario, job.path.parent)]
    missing = [block for block in blocks if not store.holds(block.address(here))]
    points = math.prod(len(values) for values in sweep.over.values())
    descents = points * sum(len(one.learning_rates) * (one.repetitions or sweep.repetitions) for one in sweep.descent)
    runs = [f"{points * sweep.starts} flows"] if sweep.flow else []
    runs += [f"{descents} descents"] if descents else []
    runs += [f"{points * sweep.starts} bisections for the critical learning rate"] if sweep.critical else []
    stored = len(blocks) - len(missing)
    in_all = "1 block" if len(blocks) == 1 else f"{len(blocks)} blocks"
    kept = f", {stored} of {in_all} stored" if stored else f" in {in_all}"
    shapes = len({block.structure for block in missing})
    # A process compiles for every shape of which it gets a block.
    compiled = max(1, min(shapes, math.ceil(shapes / processes) + 1)) if missing else 0
    seconds = sum(block.cost for block in missing) / processes
    yield Work(f"a sweep of {' and '.join(runs) or 'nothing'}{kept}", compiled * costs.compilations, seconds=seconds)


def _memory(job: Job, weights: int, samples: int, costs: Costs) -> tuple[float, bool]:
    """Return about how many bytes one process takes at its most, and whether those of the solver are among them."""
    copy = sum(leaf.nbytes for leaf in jax.tree.leaves(split(job.network)[0]))
    needed = costs.process_bytes
    needed += sum(leaf.nbytes for leaf in jax.tree.leaves(job.problem) if isinstance(leaf, jax.Array))
    rates, solver_known = len(job.scenario.descent.learning_rates), True
    if job.compares:
        needed += copy * (2 * rates * RecordBudget().of_runs(job.network, rates) or costs.records_alone)
    if job.scenario.sweep is None or job.scenario.sweep.flow:
        asked = flow_options(job.scenario)
        flow = GradientFlow(asked["solver"], rtol=asked["rtol"], atol=asked["atol"])
        copies = memory_of(flow.solver_for(job.network, job.problem), weights)
        few, of_verdict = costs.verdict
        wider = jnp.result_type(float).itemsize * weights // copy
        # The verdict comes after the steps, in a program of its own.
        needed += copy * max(copies or 0, of_verdict * wider if weights > few else 0)
        solver_known = copies is not None
    a_pass, chunk = job.problem.pass_bytes(job.network), job.problem.samples_at_once(job.network)
    if a_pass is not None:
        needed += a_pass * (1.0 if chunk is None else min(1.0, chunk / samples))
    return needed, solver_known


def measure_pace(
    network: PyTree, problem: Problem, *, long_enough: float = 0.2, clock: Callable[[], float] = time.perf_counter
) -> Pace:
    """Compile a loop of gradients of the risk, run it for `long_enough` seconds, and return how fast it is.

    Constants instead would be wrong by the factor between two machines, and by that between two networks of as many
    weights.
    """
    weights, rest = split(network)

    def repeat(weights: PyTree, count: Int[Array, ""], problem: Problem) -> PyTree:
        def objective(weights: PyTree) -> Any:
            return problem.objective(eqx.combine(weights, rest))

        def step(_: Any, weights: PyTree) -> PyTree:
            # So small a part changes no weight, and yet the compiler may not leave the gradient out.
            return jax.tree.map(lambda w, g: w - 1e-30 * g, weights, jax.grad(objective)(weights))

        return jax.lax.fori_loop(0, count, step, weights)

    begun = clock()
    program = eqx.filter_jit(repeat).lower(weights, jnp.asarray(1), problem).compile()
    compilation, count = clock() - begun, 1
    while True:
        begun = clock()
        jax.block_until_ready(program(weights, jnp.asarray(count), problem))
        seconds = clock() - begun
        if seconds >= long_enough:
            return Pace(seconds / count, compilation)
        count *= 4
