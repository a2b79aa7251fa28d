"""Grids: every combination of the values of some axes."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Grid:
    """Axes by their names, each with its values."""

    axes: Mapping[str, tuple[Any, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis."""
        return tuple(map(len, self.axes.values()))

    @property
    def size(self) -> int:
        """The number of points."""
        return math.prod(self.shape)

    def points(self) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Yield the index and the coordinates of every point, values by their axes, the last axis running fastest."""
        for index in product(*map(range, self.shape)):
            yield index, {axis: values[i] for (axis, values), i in zip(self.axes.items(), index, strict=True)}


def name_of(coordinates: Mapping[str, Any], leave_out: Collection[str] = ()) -> str:
    """Return coordinates in words, the same whatever order the axes have: network.depth=10, network.scale=0.3."""
    return ", ".join(f"{axis}={coordinates[axis]!r}" for axis in sorted(coordinates) if axis not in leave_out)
