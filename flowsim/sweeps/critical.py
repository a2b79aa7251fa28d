"""The critical learning rate of every start: where reaching the minimum turns into missing it."""

import math
from typing import Any

import equinox as eqx
import numpy as np

from ..batch import descend_batch
from ..dynamics import Outcome, Stopping
from ..networks import stacked, unstacked
from ..problems import Problem
from .measures import measured


def brackets(
    networks: list[eqx.Module], problem: Problem, stopping: Stopping | None, asked: dict[str, Any]
) -> list[tuple[float, float]]:
    """Return for every network the learning rates between which gradient descent begins to miss the minimum.

    Bisection of the logarithm, all starts in step. Where the lowest rate already misses, both are zero and it;
    where the highest reaches, it and infinity.
    """
    together, count = stacked(networks), len(networks)

    def reaches(rates: np.ndarray) -> np.ndarray:
        run = descend_batch(together, problem, learning_rates=rates, steps=asked["steps"])
        excess = [measured(end, problem, stopping)["excess_risk"] for end in unstacked(run.networks, count)]
        return (np.asarray(run.outcomes) != Outcome.DIVERGED) & (np.array(excess) <= asked["excess_risk"])

    lower, upper = np.full(count, asked["lowest"]), np.full(count, asked["highest"])
    fails, succeeds = ~reaches(lower), reaches(upper)
    # A number of halvings that is the same for all, so that none depends on the others.
    halvings = math.log2(math.log(asked["highest"] / asked["lowest"]) / math.log1p(asked["precision"]))
    for _ in range(max(0, math.ceil(halvings))):
        middle = np.sqrt(lower * upper)
        reached = reaches(middle)
        lower, upper = np.where(reached, middle, lower), np.where(reached, upper, middle)
    lower, upper = np.where(fails, 0.0, lower), np.where(fails, asked["lowest"], upper)
    lower, upper = np.where(succeeds, asked["highest"], lower), np.where(succeeds, np.inf, upper)
    return list(zip(lower, upper, strict=True))
