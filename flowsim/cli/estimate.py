"""Roughly what scenarios take; nothing is run."""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree
from rich.console import Console

from ..comparison.records import RecordBudget
from ..networks import split
from ..networks.weights import weight_count
from ..problems import Problem
from ..results import BLOCKS
from ..runtime.memory import device_bytes, in_bytes
from ..scenarios import environment, in_hours
from ..scenarios.runner import read_data, sharpness_along
from ..solvers.solver import memory_of
from ..sweeps import BlockStore, default_jobs, scenario_blocks
from .jobs import Job, choose_device, read_jobs
from .report import Terminal


class Pace(NamedTuple):
    """The speed of a machine: seconds of a `gradient` inside a compiled loop, and of the `compilation` of the loop."""

    gradient: float
    compilation: float


class Work(NamedTuple):
    """A part of a run: `what` it is, and roughly the compilations, gradients and further seconds that it takes."""

    what: str
    compilations: float = 0
    gradients: float = 0
    seconds: float = 0


@dataclass(frozen=True)
class Estimate:
    """What a job consists of, its `parts`, and about how many `seconds` and `bytes` it takes.

    `solver_known` tells whether the memory of the solver is known, and among the bytes.
    """

    weights: int
    samples: int
    parts: tuple[Work, ...]
    seconds: float
    bytes: float
    solver_known: bool


def print_estimates(options: argparse.Namespace) -> None:
    """Read and check the scenarios as a run would, and print about what each takes. Raises as `read_jobs` does."""
    jax.config.update("jax_enable_x64", True)
    choose_device(options.device)
    jobs, console = read_jobs(options), Terminal()
    store, processes = BlockStore(options.out / BLOCKS), options.jobs or default_jobs()
    for job in jobs:
        _print(job, estimate(job, store=store, processes=processes), console)


def _print(job: Job, found: Estimate, console: Console) -> None:
    about = "about" if found.solver_known else "at least"
    destination = str(job.folder.path)
    if job.folder.holds_results:
        kind = "a different scenario, which are given up" if job.folder.holds_other_results else "the same scenario"
        destination += f", where there are some already, of {kind}"
    lines = [
        f"{job.name} is right: {_many(found.weights, 'weight')} in {job.scenario.precision}, "
        + _many(found.samples, "sample"),
        f"  runs    {'; '.join(part.what for part in found.parts)}",
        f"  time    roughly {in_hours(found.seconds)} on this machine, depending on when the runs converge",
        f"  memory  {about} {in_bytes(found.bytes)} of {in_bytes(device_bytes())}",
        f"The results go to {destination}.\n",
    ]
    console.print("\n".join(lines), soft_wrap=True, highlight=False)


def estimate(
    job: Job, *, store: BlockStore, processes: int, pace: Pace | None = None, seconds_around: float = 6.0
) -> Estimate:
    """Return about what a job takes whose sweep is shared by `processes` and keeps its blocks in `store`.

    Nothing of it is run. The pace of this machine is measured unless it is given; `seconds_around` are those of Python,
    its packages, tables and figures.
    """
    pace = measure_pace(job.network, job.problem) if pace is None else pace
    weights = weight_count(job.network)
    known = job.problem.sample_count()  # a linear regression keeps the covariance of its samples alone
    samples = len(read_data(job.scenario, job.path.parent).training[0]) if known is None else known
    parts = (*_comparison(job, weights, samples), *_theory(job, processes), *_sweep(job, store, processes))
    seconds = seconds_around + sum(
        part.compilations * pace.compilation + part.gradients * pace.gradient + part.seconds for part in parts
    )
    return Estimate(weights, samples, parts, seconds, *_memory(job, weights, samples))


def _comparison(
    job: Job,
    weights: int,
    samples: int,
    *,
    compilations: int = 40,
    of_step: int = 5,
    valley: int = 10,
    of_sharpness: int = 32,
    of_model: int = 30_000,
) -> Iterator[Work]:
    """Yield the work of the flow, and of the descents and models beside it.

    The numbers are those of the shipped scenarios: the programs of a comparison take so many `compilations`; a step of
    the flow, the sharpness at a record and the run of a model so many gradients; a nonlinear network takes `valley`
    steps of the flow for each record, as it creeps to its limit, unless the flow ends before, at `t1`.
    """
    if not job.compares:
        return
    flow, descent = job.scenario.flow, job.scenario.descent
    rates, along = len(descent.learning_rates), sharpness_along(job.scenario)
    recorded = RecordBudget().of_runs(job.network, rates)
    of_flow = rates * recorded or 100
    measured = rates * along.expected_records(weights, recorded) + along.expected_records(weights, of_flow)
    creeps = math.isinf(flow.t1) and not job.scenario.network.is_linear()
    gradients = of_step * min(of_flow * (valley if creeps else 1), flow.max_steps)
    until = "to its limit" if math.isinf(flow.t1) else f"to t = {flow.t1:g}"
    yield Work(f"the flow {until}", compilations, gradients + measured * along.count * of_sharpness)
    if probes := [probe for probe in job.probes if probe.gradients(job.network) > 1]:
        names = ", ".join(probe.label.name for probe in probes)
        every = (rates * recorded + of_flow) * sum(probe.gradients(job.network) for probe in probes)
        yield Work(f"{names} at {_many(rates * recorded + of_flow, 'record')}", compilations, every)
    if rates:
        steps = descent.all_steps(flow.t1)
        sampler = descent.at(descent.learning_rates[0]).minibatches()
        # Once an epoch the full gradient is taken, too.
        share = 1.0 if sampler is None else min(1.0, 2 * sampler.samples_in_step(samples) / samples)
        of_steps = f"of {_many(steps, 'step')}{' in all' if rates > 1 else ''}"
        yield Work(f"{_many(rates, 'descent')} {of_steps}", gradients=share * steps)
    if models := flow.of_descent:
        runs = rates * len(models)
        what = f"{_many(runs, 'run')} of {'models' if runs > 1 else 'a model'}: {', '.join(models)}"
        yield Work(what, compilations * len(models), runs * of_model)
    if flow.limits:
        flows = rates * flow.limits
        yield Work(f"{_many(flows, 'flow')} from points of the descents", compilations, flows * gradients)


def _theory(job: Job, processes: int, *, compilations_of_shape: int = 20) -> Iterator[Work]:
    """Yield the work of the statements that are checked on flows of their own, and on products of matrices."""
    theory, products = job.scenario.theory, job.scenario.lemma_3
    if theory is not None:
        shapes = len({(cell.depth, cell.features) for cell in job.cells})
        what = f"{_many(theory.flows, 'flow')} to check statements on"
        yield Work(what, shapes * compilations_of_shape, seconds=theory.seconds())
    if products is not None:
        yield Work(f"{_many(products.draws, 'initialization')} for Lemma 3", seconds=products.seconds() / processes)


def _sweep(job: Job, store: BlockStore, processes: int, *, compilations_of_shape: int = 40) -> Iterator[Work]:
    """Yield the work of the blocks of a sweep that are not stored yet."""
    sweep = job.scenario.sweep
    if sweep is None:
        return
    here = environment()
    blocks = scenario_blocks(job.scenario, job.path.parent)
    missing = [block for block in blocks if not store.holds(block.address(here))]
    points = sweep.grid.size
    descents = points * sum(len(one.learning_rates) * (one.repetitions or sweep.repetitions) for one in sweep.descent)
    runs = [_many(points * sweep.starts, "flow")] if sweep.flow else []
    runs += [_many(descents, "descent")] if descents else []
    models = job.scenario.flow.of_descent if descents else ()
    runs += [f"{_many(descents * len(models), 'run')} of models"] if models else []
    runs += [f"{_many(points * sweep.starts, 'bisection')} for the critical learning rate"] if sweep.critical else []
    stored = len(blocks) - len(missing)
    in_all = _many(len(blocks), "block")
    kept = f", {stored} of {in_all} stored" if stored else f" in {in_all}"
    shapes = len({block.recipe.structure for block in missing})
    # A process compiles for every shape of which it gets a block.
    compilations = compilations_of_shape * (1 + len(models)) * min(shapes, math.ceil(shapes / processes) + 1)
    seconds = sum(block.cost for block in missing) / processes
    yield Work(f"a sweep of {' and '.join(runs) or 'nothing'}{kept}", compilations, seconds=seconds)


def _many(count: int, what: str) -> str:
    """Return a number of things in words: 1 flow, 2 flows."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _memory(job: Job, weights: int, samples: int, *, of_process: float = 7e8) -> tuple[float, bool]:
    """Return about how many bytes one process takes at its most, and whether those of the solver are among them.

    `of_process` are those of Python and JAX, the compiler at work included.
    """
    copy = sum(leaf.nbytes for leaf in jax.tree.leaves(split(job.network)[0]))
    needed = of_process + sum(leaf.nbytes for leaf in jax.tree.leaves(job.problem) if isinstance(leaf, jax.Array))
    rates, solver_known = len(job.scenario.descent.learning_rates), True
    if job.compares:
        needed += copy * (2 * rates * RecordBudget().of_runs(job.network, rates) or 100)
    if job.scenario.sweep is None or job.scenario.sweep.flow:
        copies = memory_of(job.scenario.flow.make().solver_for(job.network, job.problem), weights)
        # Beyond 256 weights the termination check keeps 48 copies in the highest precision, after the steps.
        of_check = 48 * jnp.result_type(float).itemsize * weights if weights > 256 else 0
        needed += max(copy * (copies or 0), of_check)
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

    def seconds(count: int) -> float:
        begun = clock()
        jax.block_until_ready(program(weights, jnp.asarray(count), problem))
        return clock() - begun

    begun = clock()
    program = eqx.filter_jit(repeat).lower(weights, jnp.asarray(1), problem).compile()
    compilation, count = clock() - begun, 1
    while (took := seconds(count)) < long_enough:
        count *= 4
    return Pace(took / count, compilation)
