"""What a scenario will take, part by part, once it has been read and before anything runs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..comparison.models import GRADIENT
from ..scenarios.forecast import checked_flows, product_cases, seconds_of_checks, seconds_of_points, seconds_of_products
from ..scenarios.runner import sharpness_along
from ..sweeps import sweep_work
from .ahead import RECORDS_ALONE, Ahead
from .kept import Kept, memory_ahead
from .pace import Pace

# Programs in compilations of a gradient, measured on the shipped scenarios: linear networks and nonlinear ones agree.
_DESCENT, _FLOW, _SHARPNESS, _MODEL, _LIMITS, _SWEEP, _CHECK = 5, 16, 14, 55, 14, 40, 20
_PROGRAMS_BEGUN = 4
# Python, its packages and the tables and figures at the end, in seconds.
_AROUND = 6.0
# Of the records that a flow makes, with those of each descent beside it; every other one falls together with another.
_NEW_RECORDS = 0.65
# What a step costs, in gradients: explicit ones, and those that look at second derivatives.
_EXPLICIT, _IMPLICIT = 5, 20
_SECONDS_PER_RECORD, _GRADIENTS_PER_RECORD = 1e-4, 32
_SECONDS_PER_STEP_OF_MODEL, _STEPS_OF_MODEL, _GRADIENTS_OF_MODEL = 4e-3, 220, 30_000
_SECONDS_PER_LIMIT = 0.1
# A nonlinear network comes to its limit along a valley, so slowly as nobody knows beforehand.
_SLOW = 10


@dataclass(frozen=True)
class Part:
    """A part of a run: its `name`, in words what is done, and about how many `seconds` that takes.

    They may be a `guess`, where nobody knows how many steps there will be, or the `most` that it may take.
    """

    name: str
    what: str
    seconds: float
    guess: bool = False
    most: bool = False


@dataclass(frozen=True)
class Outlook:
    """What a scenario will take: its parts in the order in which they come, and what is in memory meanwhile."""

    weights: int
    samples: int
    parts: tuple[Part, ...]
    memory: tuple[Kept, ...]

    @property
    def seconds(self) -> float:
        """About how long all of it takes, at most as far as that is known."""
        return sum(part.seconds for part in self.parts)

    @property
    def least(self) -> float:
        """About how long it takes if all that may end early does so at once."""
        return sum(part.seconds for part in self.parts if not part.most)

    @property
    def bytes(self) -> float:
        """About how much memory all of it takes."""
        return sum(kept.bytes or 0.0 for kept in self.memory)


def outlook(ahead: Ahead, pace: Pace) -> Outlook:
    """Return what a scenario will take on a machine of this `pace`; nothing of it is run."""
    parts = [Part("start and end", "Python, the data, tables and figures", _AROUND)]
    if ahead.compares:
        parts += _runs(ahead, pace)
    parts += [*_theory(ahead, pace), *_sweep(ahead, pace)]
    return Outlook(ahead.weights, ahead.samples, tuple(parts), tuple(memory_ahead(ahead)))


def _runs(ahead: Ahead, pace: Pace) -> Iterator[Part]:
    steps, flow, rates = ahead.steps, ahead.scenario.flow, len(ahead.steps)
    programs = {
        "gradient": _PROGRAMS_BEGUN + _FLOW,
        "descent": _DESCENT if steps else 0,
        "sharpness": _SHARPNESS,
        "models": _MODEL * (len(flow.models) - (GRADIENT in flow.models)),
        "limits": _LIMITS if flow.limits else 0,
    }
    compilation = sum(programs.values()) * pace.compilation
    yield Part("compilation", "less where the programs of an earlier run are kept", compilation)
    if steps:
        what = f"{rates}, of {sum(steps)} steps in all, or fewer if they arrive"
        yield Part("descents", what, sum(steps) * _cost_of_step(ahead) * pace.gradient, most=True)
    count, gradients = _steps_of_flow(ahead, steps)
    until = "to its limit" if math.isinf(flow.t1) else f"to t = {flow.t1:g}"
    yield Part("flow", f"{until}, some {count} steps", count * gradients * pace.gradient, guess=True)
    yield from _models_and_limits(ahead, pace)
    along = sharpness_along(ahead.scenario)
    measured = rates * along.expected_records(ahead.weights, ahead.records)
    measured += along.expected_records(ahead.weights, _records_of_flow(ahead))
    seconds = measured * along.count * (_SECONDS_PER_RECORD + _GRADIENTS_PER_RECORD * pace.gradient)
    yield Part("sharpness", f"at some {measured} records of {1 + rates} runs", seconds)


def _cost_of_step(ahead: Ahead) -> float:
    """Return what a step of descent costs, in gradients of the whole risk."""
    asked = ahead.scenario.descent
    sampler = asked.optimizer.make()(asked.learning_rates[0]).minibatches()
    # Once an epoch the full gradient is taken.
    return 1.0 if sampler is None else min(1.0, 2 * sampler.size / ahead.samples)


def _records_of_flow(ahead: Ahead) -> int:
    rates = len(ahead.steps)
    return math.ceil(rates * ahead.records * _NEW_RECORDS) if rates else RECORDS_ALONE


def _steps_of_flow(ahead: Ahead, steps: Sequence[int]) -> tuple[int, int]:
    """Return a guess of how many steps the flow takes, and of what one costs in gradients.

    Steps end at the records at least; a time that is given they reach in about as many as stability asks of descent.
    """
    least, flow = _records_of_flow(ahead), ahead.scenario.flow
    implicit = ahead.problem.rank(ahead.network) is not None
    if math.isinf(flow.t1) and not ahead.scenario.network.is_linear():
        least *= _SLOW
    elif not math.isinf(flow.t1) and steps:
        least = max(least, min(steps) // 3)
    return min(least, flow.max_steps), _IMPLICIT if implicit else _EXPLICIT


def _models_and_limits(ahead: Ahead, pace: Pace) -> Iterator[Part]:
    flow, rates = ahead.scenario.flow, len(ahead.steps)
    if models := [name for name in flow.models if name != GRADIENT]:
        runs = rates * len(models)
        seconds = _STEPS_OF_MODEL * _SECONDS_PER_STEP_OF_MODEL + _GRADIENTS_OF_MODEL * pace.gradient
        yield Part("models", f"{', '.join(models)}: {runs} runs", runs * seconds, guess=True)
    if flow.limits:
        count, gradients = _steps_of_flow(ahead, ())
        seconds = _SECONDS_PER_LIMIT + count * gradients * pace.gradient
        runs = rates * flow.limits
        yield Part("limits", f"{runs} flows from points of the descents", runs * seconds, guess=True)


def _theory(ahead: Ahead, pace: Pace) -> Iterator[Part]:
    theory, products = ahead.scenario.theory, ahead.scenario.lemma_3
    if theory is not None:
        shapes = len({(cell.depth, cell.features) for cell in ahead.cells})
        what = f"{checked_flows(theory)} flows, of {shapes} shapes to compile for"
        yield Part("theory", what, seconds_of_checks(theory) + shapes * _CHECK * pace.compilation, guess=True)
    if products is not None:
        draws = products.initializations * product_cases(products)
        yield Part("lemma_3", f"{draws} initializations", seconds_of_products(products) / ahead.workers)


def _sweep(ahead: Ahead, pace: Pace) -> Iterator[Part]:
    sweep = ahead.scenario.sweep
    if sweep is None:
        return
    work = sweep_work(ahead.scenario, ahead.folder, ahead.store)
    starts = sweep.starts * math.prod(len(values) for values in sweep.over.values())
    descents = sum(len(one.learning_rates) * (one.repetitions or sweep.repetitions) for one in sweep.descent)
    runs = f"{starts} flows" if sweep.flow else "no flow"
    runs += f" and {descents * starts // sweep.starts} descents"
    stored = f", {work.stored} of {work.blocks} blocks are stored" if work.stored else f" in {work.blocks} blocks"
    # A worker compiles for every shape of which it gets a block.
    shapes = max(1, min(work.structures, math.ceil(work.structures / ahead.workers) + 1))
    compiled = shapes * _SWEEP * pace.compilation if work.structures else 0.0
    seconds = compiled + work.seconds / ahead.workers + seconds_of_points(sweep)
    yield Part("sweep", f"{runs}{stored}", seconds, guess=True)
