"""The points of a sweep, and the initializations at each of them."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..scenarios.reading import with_values
from ..scenarios.scenario import Scenario

RESERVED = ("repetition", "run", "dynamics", "learning_rate", "stability_threshold", "threshold_of")


@dataclass(frozen=True)
class Point:
    """One combination of the values of all axes: its place in the grid, and the scenario that it stands for."""

    index: tuple[int, ...]
    values: dict[str, Any]
    scenario: Scenario

    @property
    def name(self) -> str:
        """The coordinates in words, the same whatever order the axes have: network.depth=10, network.scale=0.3."""
        return ", ".join(f"{key}={self._checked(key)!r}" for key in sorted(self.values))

    def _checked(self, key: str) -> Any:
        """Return the value of an axis as the scenario holds it: 1.0 where it was written 1."""
        *sections, name = key.split(".")
        holder = getattr(self.scenario, sections[0]) if sections else self.scenario
        return getattr(holder, name, self.values[key])


def points(scenario: Scenario) -> Iterator[Point]:
    """Yield every point of the sweep of `scenario`, the last axis running fastest."""
    axes = scenario.sweep.over if scenario.sweep else {}
    for index in product(*(range(len(values)) for values in axes.values())):
        values = {key: axes[key][i] for key, i in zip(axes, index, strict=True)}
        yield Point(index, values, with_values(scenario, values))


def axis_names(scenario: Scenario) -> dict[str, str]:
    """Return for every axis its short name: the last part of its key, or all of it where that is taken."""
    axes = scenario.sweep.over if scenario.sweep else {}
    short = {key: key.rpartition(".")[2] for key in axes}
    count = Counter([*short.values(), *RESERVED])
    return {key: name if count[name] == 1 else key.replace(".", "_") for key, name in short.items()}


def start_key(seed: int, name: str, repetition: int) -> jax.Array:
    """Return the key of one initialization, which depends on its own coordinates alone."""
    digest = hashlib.sha256(f"{seed} | {name} | repetition {repetition}".encode()).digest()
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(digest[:8], "<u4")), impl="threefry2x32")
