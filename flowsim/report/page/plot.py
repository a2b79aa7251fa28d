"""A plot of the page, as numbers: its axes, its curves by name, and what a touch of a point says.

Nothing here draws. The page's script does, in the browser, with Bokeh, from the JSON that these become.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from ...formatting import format_number
from ..panels import FURTHEST, INK as INK, Limits, subsample
from ..style import FLOW

MOST_POINTS = 60_000
"""Of all curves of a kind together, so that a page stays light; the data sets have all."""
MOST_POINTS_OF_CURVE = 3000
_MARKERS = {"o": "circle", "s": "square", "^": "triangle", "D": "diamond", "v": "inverted_triangle"}
_MARKERS |= {"<": "hex", "P": "cross", ">": "star", "X": "x"}


@dataclass(frozen=True)
class Key:
    """The name of a curve, by which it is switched on and off, and its look on a light and a dark page.

    `stays` tells that what it shows remains as it is after the last point, as a run does that came to rest.
    """

    name: str
    label: str
    light: str
    dark: str
    width: float
    dash: tuple[int, ...] = ()
    marker: str = ""
    stays: bool = False


def key_of(name: str, label: str, look: Mapping[str, Any], *, stays: bool = False) -> Key:
    """Return the key of a curve that figures draw in the given look of Matplotlib."""
    light, style, flow = to_hex(look["color"]), look.get("linestyle", "-"), look["color"] == FLOW["color"]
    dash = tuple(round(2 * part) for part in style[1]) if isinstance(style, tuple) else ()
    width = 3.0 if flow else 1.0 + look.get("linewidth", 1.0)
    marker = _MARKERS.get(look.get("marker", ""), "")
    return Key(name, label, light, "#f2f2f2" if flow else _on_dark(light), width, dash, marker, stays)


def _on_dark(colour: str, luminance: float = 0.62) -> str:
    """Return a colour, mixed with white until it stands out from a dark page, with the given luminance at least."""
    red, green, blue = to_rgb(colour)
    mixed = max(0.0, luminance - (0.299 * red + 0.587 * green + 0.114 * blue))
    return to_hex((red + mixed * (1 - red), green + mixed * (1 - green), blue + mixed * (1 - blue)))


@dataclass(frozen=True)
class Curve:
    """Columns of equal length, of which `x` and `y` are drawn as a line, or only as marks, and the others are told.

    `key` is the name of its key, or `INK`. With columns "low" and "high" there is a band between them. `marks` are the
    places of its marks, of `size` pixels, `dash` is another dash than that of its key, and `told` has a touch tell.
    """

    key: str
    columns: Mapping[str, Any]
    line: bool = True
    marks: Sequence[int] = ()
    size: float = 6.0
    alpha: float = 1.0
    dash: tuple[int, ...] | None = None
    told: bool = True


def points_of_each(curves: int, least: int = 60) -> int:
    """Return how many points each of so many curves may have: of a longer one every so many are shown."""
    return min(max(MOST_POINTS // max(curves, 1), least), MOST_POINTS_OF_CURVE)


def curve_of(
    key: Key,
    columns: Mapping[str, Any],
    *,
    most: int = MOST_POINTS_OF_CURVE,
    marks: Sequence[int] | None = None,
    alpha: float = 1.0,
    dash: tuple[int, ...] | None = None,
    most_marks: int = 10,
) -> Curve | None:
    """Return a curve through `most` of the points that are known; `None` where there are none.

    It has marks at `marks`, places in the columns, unless told at some that are spread over all, and at a lone point
    in any case; none where its key has no marker.
    """
    known = np.flatnonzero(np.isfinite(np.asarray(columns["y"], float)))
    if len(known) == 0:
        return None
    kept = np.array(subsample(known.tolist(), most), int)
    wanted = range(len(kept)) if marks is None else np.searchsorted(kept, np.intersect1d(known, marks))
    places = subsample(np.unique(np.minimum(wanted, len(kept) - 1)).tolist(), most_marks) if key.marker else []
    parts = {name: np.asarray(column)[kept] for name, column in columns.items()}
    return Curve(key.name, parts, marks=places if len(kept) > 1 else [0], alpha=alpha, dash=dash)


@dataclass(frozen=True)
class Level:
    """A line across a plot, in the look of the key of that name and hidden with it, or in that of text."""

    value: float
    key: str | None = None
    dotted: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot with what stands around it: a heading, and a description for those who cannot see it.

    `linear` and `log` are what its vertical axis shows on either scale, `log` is `None` where that shows nothing, and
    `logarithmic` says which it has at first. `x` and `x_log` say the same of the horizontal axis, unless that is the
    time of its group. `told` are the titles and the columns of what a point says, and `ticks` names of places on the
    horizontal axis where those are no numbers.
    """

    name: str
    heading: str
    description: str
    across: str
    up: str
    curves: tuple[Curve, ...]
    linear: Limits
    log: Limits | None
    logarithmic: bool
    told: tuple[tuple[str, str], ...]
    x: Limits | None = None
    x_log: bool = False
    levels: tuple[Level, ...] = ()
    ticks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Time:
    """The part of time that plots show: from `start` on a linear axis, `first` on a logarithmic one, to `end`.

    `logarithmic` says which of them it is at first. At `last` the last run ends, which may be far beyond.
    """

    start: float
    first: float
    end: float
    logarithmic: bool
    last: float

    @property
    def scales(self) -> dict[str, str]:
        """The scales that time may have on the page, by name, in words."""
        if self.last <= self.end:
            return {"linear": "linear", "logarithmic": "logarithmic"}
        end, last = format_number(self.end, 3), format_number(self.last, 3)
        return {
            "linear": f"linear, to t = {end}",
            "linear, all": f"linear, to t = {last}",
            "logarithmic": f"logarithmic, to t = {end}",
            "logarithmic, all": f"logarithmic, to t = {last}",
        }


@dataclass(frozen=True)
class Group:
    """Plots of the same curves, which are switched on and off together.

    `time` is what a slider goes through, and `series` has the columns of each key, "time" and one named after each
    plot, that are read there.
    """

    name: str
    heading: str
    about: str
    plots: tuple[Plot, ...]
    keys: tuple[Key, ...]
    time: Time | None = None
    series: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def span(values: np.ndarray, *, margin: float = 0.05, most: float = 1e24) -> tuple[Limits, Limits | None]:
    """Return limits for values on a linear axis, and on a logarithmic one, `None` where nothing is positive.

    The first begins at zero where the values come near to it. Below the largest over `most` is rounding.
    """
    values = np.clip(values[np.isfinite(values)], -FURTHEST, FURTHEST)
    if len(values) == 0:
        return (0.0, 1.0), None
    low, high = float(values.min()), float(values.max())
    low = 0.0 if 0 < low < high / 2 else low
    room = margin * ((high - low) or abs(high) or 1.0)
    positive = values[values > 0]
    if len(positive) == 0:
        return (low - room, high + room), None
    bottom = max(float(positive.min()), high / most)
    wider = max(1.3, (high / bottom) ** margin)
    return (low - room, high + room), (bottom / wider, high * wider)


def plain(value: Any) -> Any:
    """Return what a plot holds in the types of JSON: numbers of arrays as the bytes of doubles, in base 64.

    A lone number that is not finite, for which JSON has no word, is `None`.
    """
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iufb":
            return {"doubles": base64.b64encode(value.astype("<f8").tobytes()).decode()}
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
