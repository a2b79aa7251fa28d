"""What a panel shows, described once: two renderers draw it, one for the figures of a paper and one for the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Limits = tuple[float, float]
FURTHEST = 1e150
"""Where an axis may end at most: its length has to be a number, too, and a logarithmic axis needs room above."""
INK = "ink"
"""The name of the key of what belongs to no run: it has the colour of text."""


@dataclass(frozen=True)
class Axis:
    """An axis, `label` in Matplotlib's mathematics and `words` in plain text, and its limits on either scale.

    `logarithmic` is the scale at first, and `log` is `None` where nothing is positive. With `linear_until` a figure's
    logarithmic axis is linear up to there. `last` is where the last curve ends, which may be far beyond the limits.
    `ticks` name the places 0, 1, 2, … where the values are no numbers. `at` are the points that all curves share, in
    words `places`.
    """

    label: str
    words: str
    linear: Limits
    log: Limits | None = None
    logarithmic: bool = False
    linear_until: float | None = None
    last: float = 0.0
    ticks: tuple[str, ...] | None = None
    at: tuple[float, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits:
        """The limits on the scale at first."""
        return self.log if self.logarithmic and self.log is not None else self.linear


@dataclass(frozen=True)
class Key:
    """What the curves of one run have in common in all panels: their name, in two notations as an axis, and their look.

    `look` holds Matplotlib's properties of a line. `stays` tells that the run rests where it ends.
    """

    name: str
    words: str
    label: str
    look: Mapping[str, Any]
    stays: bool = False


@dataclass(frozen=True)
class Curve:
    """A line through points, or with `line=False` the points alone; from `low` to `high` there may be a band.

    Markers stand at the values `marks` of x. `named` tells whether it is in the legend of a figure.
    """

    key: Key
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    marks: np.ndarray | None = None
    alpha: float = 1.0
    line: bool = True
    named: bool = True


@dataclass(frozen=True)
class Guide:
    """A line across a panel: dashed an edge of stability, in the look of `key`; dotted a bound.

    `label` is its name in the margin of a figure.
    """

    value: float
    key: Key | None = None
    label: str | None = None


@dataclass(frozen=True)
class Panel:
    """One quantity of several runs against one axis.

    A touch of a curve tells the columns `told`, by title. `overlays` are what a figure draws over the curves; the page
    has panels of their own for them. `title` names the place of a panel among others, and `statistic` says in a
    sentence what curves and bands are.
    """

    name: str
    heading: str
    description: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    guides: tuple[Guide, ...] = ()
    overlays: tuple[Curve, ...] = ()
    told: tuple[tuple[str, str], ...] = (("x", "x"), ("y", "y"))
    title: str = ""
    statistic: str = ""


def subsample(entries: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` of the entries, evenly taken, the first and the last among them."""
    if len(entries) <= most:
        return list(entries)
    return [entries[i] for i in np.linspace(0, len(entries) - 1, most).round().astype(int)]
