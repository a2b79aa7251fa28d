"""What a scenario takes, roughly, before it is begun: what cannot fit into memory, and what merely takes long."""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import PyTree
from pydantic_core import PydanticCustomError

from ..data import DataSource
from ..kinds import too_large, validation_error
from ..kinds.values import MOST_NUMBERS
from ..networks import NetworkRecipe
from ..problems import Problem
from ..runtime.memory import beyond_memory, in_bytes
from .settings import LargeProductsSettings, TheorySettings
from .sweep_settings import MOST_CELLS, SweepSettings


def memory_errors(
    precision: str, data: DataSource, network: NetworkRecipe, sweep: SweepSettings | None
) -> Iterator[PydanticCustomError]:
    """Yield that the copies of the weights that a run keeps are more than the memory of the machine."""
    weights = _weights(network, data)
    flows = sweep is None or sweep.flow
    # The fewest that any solver of the flow keeps (two stages beside four), and that descent does.
    copies = 6 if flows else 3
    if beyond := beyond_memory(weights * copies * np.dtype(precision).itemsize):
        yield validation_error(
            found=f"{weights} weights, of which {'a flow' if flows else 'descent'} keeps {copies} copies: {beyond}",
            expected="a network that fits",
            write="fewer or narrower layers, or data of fewer features",
            at=("network",),
        )


def theory_size_errors(
    theory: TheorySettings, data: DataSource, network: NetworkRecipe
) -> Iterator[PydanticCustomError]:
    """Yield that there are more flows to check than can be, or be held: each keeps its network until it is its turn."""
    flows = count_checked_flows(theory)
    if flows > MOST_CELLS:
        yield validation_error(
            found=f"{flows} flows to check",
            expected=f"at most {MOST_CELLS}",
            write="fewer repetitions, or shorter lists",
            at=("repetitions",),
        )
    elif beyond := beyond_memory(8 * flows * _weights(network, data)):
        yield validation_error(
            found=f"{flows} flows to check, whose networks take {beyond}",
            expected="networks that fit",
            write="fewer repetitions",
            at=("repetitions",),
        )


def product_size_errors(asked: LargeProductsSettings) -> Iterator[PydanticCustomError]:
    """Yield that one product of matrices does not fit, or that there are more of them than can be drawn."""
    largest, copies = max(asked.depths) * max(asked.widths) ** 2, 6
    if beyond := beyond_memory(8 * copies * largest):
        yield validation_error(
            found=f"{largest} numbers in one initialization, in {copies} copies: {beyond}",
            expected="matrices that fit",
            write="smaller widths or depths",
            at=("widths",),
        )
    if (draws := count_products(asked)) > MOST_NUMBERS:
        yield too_large(f"{draws} initializations over all combinations", "initializations", ("initializations",))


def _weights(network: NetworkRecipe, data: DataSource) -> int:
    """Return how many weights there will be, at least."""
    _, outputs = data.dimensions()
    return network.count_weights(network.inputs_for(data.sample_shape()), outputs) or 0


def count_checked_flows(theory: TheorySettings) -> int:
    """Return the number of flows that are checked."""
    return theory.repetitions * math.prod(
        max(1, len(axis)) for axis in (theory.depths, theory.features, theory.conditions)
    )


def count_products(asked: LargeProductsSettings) -> int:
    """Return the number of initializations that are drawn for Lemma 3."""
    return asked.initializations * math.prod(
        len(axis) for axis in (asked.deviations, asked.scales, asked.widths, asked.depths)
    )


def seconds_of_checks(theory: TheorySettings, *, seconds_per_flow: float = 0.3) -> float:
    """Return about how long the checked flows take on one core, once their programs are compiled."""
    return seconds_per_flow * count_checked_flows(theory)


def seconds_of_products(asked: LargeProductsSettings, *, seconds_per_number: float = 5e-7) -> float:
    """Return about how long it takes one core to draw what Lemma 3 asks for."""
    numbers = sum(asked.depths) * sum(width**2 for width in asked.widths)
    draws = asked.initializations * len(asked.deviations) * len(asked.scales)
    return seconds_per_number * numbers * draws


def long_parts(
    sweep: SweepSettings | None,
    theory: TheorySettings | None,
    products: LargeProductsSettings | None,
    steps: int,
    *,
    longer_than: float = 600.0,
    seconds_per_point: float = 5e-3,
    seconds_per_start: float = 0.02,
    seconds_per_step: float = 2e-6,
) -> Iterator[str]:
    """Yield of every part of a scenario that takes a core more than ten minutes, about how long it takes at least.

    `steps` are those of all descents beside the flow together. The seconds are those of the fastest parts on one core.
    """
    parts: dict[str, float] = {}
    if sweep is not None:
        points = math.prod(len(values) for values in sweep.over.values())
        parts[f"the {points} points of the sweep, before the first run,"] = seconds_per_point * points
        parts[f"the {points * sweep.starts} starts of the sweep"] = seconds_per_start * points * sweep.starts
    if theory is not None:
        parts[f"the {count_checked_flows(theory)} flows of the theory"] = seconds_of_checks(theory)
    if products is not None:
        parts[f"{count_products(products)} initializations of lemma_3"] = seconds_of_products(products)
    parts[f"{steps} steps of descent, unless it converges before,"] = seconds_per_step * steps
    for part, seconds in parts.items():
        if seconds > longer_than:
            yield f"{part} may take {in_hours(seconds)} of one core or more"


def passes_in_words(problem: Problem, network: PyTree) -> str | None:
    """Return what a pass over the samples would take in memory where it is made in chunks, else `None`."""
    chunk, needed = problem.samples_at_once(network), problem.pass_bytes(network)
    if chunk is None or needed is None:
        return None
    return f"a pass over all samples takes about {in_bytes(needed)} of memory, so it is made in chunks of {chunk}"


def in_hours(seconds: float) -> str:
    """Return a time in words: 3 s, 20 minutes, 5 hours, 4 days."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
