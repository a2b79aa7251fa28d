"""The largest learning rate at which gradient descent reaches the minimum, by a search from every initialization."""

import itertools
import math
from collections.abc import Generator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ..batch import descend_batch
from ..columns import CriticalStatus
from ..dynamics import Outcome, Stopping, stopping_for
from ..networks import split, stacked, unstacked, weight_dtype
from ..problems import Problem
from ..scenarios.sweep_settings import CriticalSettings
from .measures import measure


class Bracket(NamedTuple):
    """The largest learning rate that reaches the minimum and the smallest above it that misses, both NaN where unknown.

    `status` is DETERMINED, or why the rates are unknown.
    """

    lower: float
    upper: float
    status: CriticalStatus


def critical_brackets(
    networks: list[eqx.Module], problem: Problem, stopping: Stopping | None, settings: CriticalSettings
) -> list[Bracket]:
    """Return for every network the bracket of its critical learning rate.

    All searches advance together, and each depends on its own network alone.
    """
    together, count, dtype = stacked(networks), len(networks), weight_dtype(networks[0])
    doublings = jnp.finfo(dtype).nmant if settings.doublings is None else settings.doublings
    gradients = np.array([measure(network, problem, stopping)["gradient_norm"] for network in networks])
    standard = stopping_for(None, problem, dtype)
    assert standard.gradient_norm is not None
    assert standard.relative_gradient_norm is not None
    small = np.maximum(standard.gradient_norm, standard.relative_gradient_norm * gradients)

    searches = [_search(settings, doublings) for _ in networks]
    rates = np.array([next(search) for search in searches])
    brackets: dict[int, Bracket] = {}
    while len(brackets) < count:
        # A search that has ended makes a single step, so that all calls share their shapes, and so their programs.
        steps = np.array([1 if row in brackets else settings.steps for row in range(count)])
        run = descend_batch(together, problem, learning_rates=rates, steps=steps)
        ends = [measure(end, problem, stopping) for end in unstacked(run.networks, count)]
        diverged = np.asarray(run.outcomes) == Outcome.DIVERGED
        reached = ~diverged & (np.array([end["excess_risk"] for end in ends]) <= settings.excess_risk)
        at_rest = np.array([end["gradient_norm"] for end in ends]) <= small
        at_rest |= np.asarray(run.outcomes) == Outcome.FIXED_POINT
        undecided = not (diverged | reached | at_rest)[steps > 1].all()
        unstable = diverged | (_oscillates(run.networks, problem, rates) if undecided else False)
        for row in set(range(count)) - set(brackets):
            states = (
                (reached[row], CriticalStatus.REACHED),
                (at_rest[row] and not diverged[row], CriticalStatus.AT_REST),
                (unstable[row], CriticalStatus.UNSTABLE),
                (True, CriticalStatus.STILL_FALLING),
            )
            try:
                rates[row] = searches[row].send(next(state for holds, state in states if holds))
            except StopIteration as end:
                brackets[row] = end.value
    return [brackets[row] for row in range(count)]


def _search(settings: CriticalSettings, doublings: int) -> Generator[float, CriticalStatus, Bracket]:
    """Yield learning rates, each to be answered by the state of descent at its last step; return the bracket.

    Descent may miss the minimum because the rate is too large or because it is too small for the steps. Rates are
    doubled from `highest` on until one is too large, and halved until one reaches the minimum. The first that does so
    is the largest of these rates; above it, every miss is of a rate too large.
    """
    rate, states = settings.highest, {}
    states[rate] = yield rate
    while states[rate] is not CriticalStatus.UNSTABLE and rate < settings.highest * 2.0**doublings:
        has_reached = states[rate] is CriticalStatus.REACHED
        rate *= 2
        states[rate] = yield rate
        if has_reached and states[rate] is not CriticalStatus.REACHED:
            break
    rate, unstable_down_to = settings.highest, settings.lowest / 2.0**doublings
    while CriticalStatus.REACHED not in states.values() and rate > (
        unstable_down_to if states[rate] is CriticalStatus.UNSTABLE else settings.lowest
    ):
        rate /= 2
        states[rate] = yield rate

    rates = sorted(states)
    reached = [rate for rate in rates if states[rate] is CriticalStatus.REACHED]
    # A large rate may throw the weights back to a saddle, where descent looks slow: slow are those below the first
    # that is unstable.
    slow = list(itertools.takewhile(lambda rate: states[rate] is not CriticalStatus.UNSTABLE, rates))
    if not reached and not slow:
        return Bracket(math.nan, math.nan, CriticalStatus.UNSTABLE)
    lower = (reached or slow)[-1]
    if lower == rates[-1]:
        return Bracket(math.nan, math.nan, states[lower])
    upper = 2 * lower
    while upper > (1 + settings.precision) * lower:
        middle = math.sqrt(lower * upper)
        states[middle] = yield middle
        is_slow = states[lower] is not CriticalStatus.REACHED and states[middle] is not CriticalStatus.UNSTABLE
        lower, upper = (middle, upper) if is_slow or states[middle] is CriticalStatus.REACHED else (lower, middle)
    if states[lower] is not CriticalStatus.REACHED:
        return Bracket(math.nan, math.nan, states[lower])
    return Bracket(lower, upper, CriticalStatus.DETERMINED)


def _oscillates(
    networks: eqx.Module, problem: Problem, rates: Float[np.ndarray, " batch"], *, steps: int = 8
) -> Bool[np.ndarray, " batch"]:
    """Return whether the next `steps` from each network add up to less than those of a random walk would.

    A random walk goes √(Σ‖d‖²) with steps d, a smooth path Σ‖d‖, and a cycle returns to its beginning. The default
    closes all cycles of the first three period doublings.
    """
    path = []
    for _ in range(steps + 1):
        leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(split(networks)[0])]
        path.append(np.concatenate([leaf.reshape(len(rates), -1) for leaf in leaves], axis=1))
        networks = descend_batch(networks, problem, learning_rates=rates, steps=1).networks
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        walk = np.sum(np.diff(path, axis=0) ** 2, axis=(0, 2))
        return ~(np.sum((path[-1] - path[0]) ** 2, axis=1) >= walk)
