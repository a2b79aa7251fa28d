"""What a panel shows, described once, for two renderers: Matplotlib draws figures of a paper, Bokeh those of the page.

What quantities are called stands here too, in plain text and in Matplotlib's mathematics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from ...comparison.measure import LIMIT
from ...formatting import format_number, subsample as subsample

Limits = tuple[float, float]
FURTHEST = 1e150
"""Where an axis may end at most: its length has to be a number, too, and a logarithmic axis needs room above."""
INK = "ink"
"""The name of the key of what belongs to no run: it has the colour of text."""
LABELS = {
    "squared_distance": r"squared distance $\Vert \pi - w^\star \Vert^2$",
    "excess_risk": r"excess risk $R - R_\mathrm{min}$",
    "risk": r"risk $R$",
    "sharpness": r"sharpness $S$",
    "gradient_norm": r"gradient norm $\Vert \nabla R \Vert$",
}
HEADINGS = {
    "sharpness": ("Sharpness", "sharpness S"),
    "squared_distance": ("Squared distance to the optimum", "‖π − w*‖²"),
    "excess_risk": ("Excess risk", "R − R_min"),
    "risk": ("Risk", "R"),
    "distance": ("Distance from the gradient flow", "‖W − W_GF‖"),
    "gradient_norm": ("Gradient norm", "‖∇R‖"),
    LIMIT.name: ("Sharpness of the flow's limit from there", "sharpness of the limit"),
}
"""Heading and name in plain text of what every run may record, in the order of the page."""


@dataclass(frozen=True)
class Symlog:
    """The scale of an axis of a figure, linear up to `until` on both sides of zero, and logarithmic beyond.

    On each side of zero the linear part is as wide as so many `decades`.
    """

    until: float
    limits: Limits
    decades: float = 0.4


@dataclass(frozen=True)
class Axis:
    """An axis, `label` in Matplotlib's mathematics and `words` in plain text, and its limits on either scale.

    `logarithmic` is the scale at first, and `log` is `None` where nothing is positive. In a figure `symlog` replaces
    both scales. `last` is where the last curve ends, which may be far beyond the limits. `at` are the points that all
    curves share, in words `places`; `ticks` are names of the points `at`, as of values that are no numbers. Of an axis
    without such points `most_ticks` limits the number of ticks; those of `integers` are whole numbers. In a figure
    fractions may have a `logit` scale, which spreads both ends of (0, 1), and the label the size `label_size`, in
    points, where there is little room.
    """

    label: str
    words: str
    linear: Limits
    log: Limits | None = None
    logarithmic: bool = False
    symlog: Symlog | None = None
    last: float = 0.0
    ticks: tuple[str, ...] | None = None
    at: tuple[float, ...] = ()
    places: tuple[str, ...] = ()
    most_ticks: int | None = None
    label_size: float | None = None
    integers: bool = False
    logit: bool = False

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

    Without points it is an entry of the legend alone. With `line=False` a band is drawn alone; `band` holds its look in
    figures. Markers stand at the values `marks` of x. `named` tells whether the curve is in the legend of a figure. Of
    two curves of one key, as the sides of a statement, `side` says which this is. `look` holds what differs from the
    look of the key, in figures alone but for the dashes.

    Where x is not time, a point may be where the run was at one of the `times`; with `frames`, a row for each of the
    `times`, the whole curve changes: `y` is the last row.
    """

    key: Key
    x: np.ndarray = field(default_factory=lambda: np.zeros(0))
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    marks: np.ndarray | None = None
    alpha: float = 1.0
    line: bool = True
    named: bool = True
    look: Mapping[str, Any] = field(default_factory=dict)
    side: str = ""
    times: np.ndarray | None = None
    frames: np.ndarray | None = None
    band: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Guide:
    """A line across a panel: dashed an edge of stability; `dotted` a bound; `upright` at a value of x.

    It has the colour of `key`, or that of text; `look` holds what else a figure shows differently. `label` is its name
    in the margin of a figure, and `words` that in the margin of the page, in plain text.
    """

    value: float
    key: Key | None = None
    label: str | None = None
    words: str = ""
    dotted: bool = False
    upright: bool = False
    look: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mesh:
    """Colours for the `values` of the cells between the `sides` along x and the `edges` along y.

    The scale of colours is called `label`, and goes over the `limits`.
    """

    sides: Float[np.ndarray, " columns+1"]
    edges: Float[np.ndarray, " rows+1"]
    values: Float[np.ndarray, "rows columns"]
    label: str
    limits: Limits
    logarithmic: bool = False


@dataclass(frozen=True)
class Panel:
    """One quantity of several runs against one axis.

    A touch of a curve tells the columns `told`, by title. `overlays` are what a figure draws over the curves; the page
    has panels of their own for them. `title` names the place of a panel among others, and `statistic` says in a
    sentence what curves and bands are. The rest is about figures: a `mesh` lies below the curves; `whiskers` replace
    bands; the legend calls dashed guides `edge` and names dotted lines if they are `bounds` on the sharpness; `legend`
    holds Matplotlib's options of a legend within the panel; `letter` is in the corner; with `leaders` the names of the
    guides are moved apart in the margin, and lines lead to them.
    """

    name: str
    heading: str
    description: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    guides: Sequence[Guide] = ()
    overlays: Sequence[Curve] = ()
    told: tuple[tuple[str, str], ...] = (("x", "x"), ("y", "y"))
    title: str = ""
    statistic: str = ""
    whiskers: bool = False
    edge: str = ""
    bounds: bool = False
    mesh: Mesh | None = None
    legend: Mapping[str, Any] = field(default_factory=dict)
    letter: str = ""
    leaders: bool = False


def edge_in_words(level: float, *, of_descent: bool) -> str:
    """Return the name of an edge of stability in plain text: 2/η of gradient descent, or that of another descent."""
    return f"{'2/η' if of_descent else 'edge'} = {format_number(level, 3)}"


def label_of(name: str, attributes: Mapping[Any, Any]) -> str:
    """Return what the axis of the variable `name` is called: a probe brings its symbol along."""
    return LABELS.get(name) or str(attributes.get("symbol", name.removeprefix("final_").replace("_", " ")))


def data_limits(values: np.ndarray, *, logarithmic: bool = False, margin: float = 0.05) -> Limits | None:
    """Return limits that hold all values with a margin on a linear or logarithmic axis, as Matplotlib has them.

    They are `None` where there is nothing to show.
    """
    values = np.clip(values[np.isfinite(values)].astype(float), -FURTHEST, FURTHEST)
    values = np.log10(values[values > 0]) if logarithmic else values
    if len(values) == 0:
        return None
    low, high = float(values.min()), float(values.max())
    if low == high and logarithmic:
        low, high = float(np.ceil(low) - 1), float(np.floor(high) + 1)
    elif low == high:
        room = 0.05 * abs(low) or 0.05
        low, high = low - room, high + room
    room = margin * (high - low)
    return (10.0 ** (low - room), 10.0 ** (high + room)) if logarithmic else (low - room, high + room)


def abscissae(curves: Iterable[Curve]) -> np.ndarray:
    """Return all points of curves along the horizontal axis of a panel."""
    return np.concatenate([np.zeros(0), *(curve.x for curve in curves)])


def ordinates(curves: Iterable[Curve], guides: Iterable[Guide] = ()) -> np.ndarray:
    """Return all that curves, their bands and the guides across a panel show on its vertical axis."""
    parts = [part for curve in curves for part in (curve.y, curve.low, curve.high) if part is not None]
    return np.concatenate([np.zeros(0), *parts, [guide.value for guide in guides if not guide.upright]])


def axis_over(
    label: str, words: str, values: np.ndarray, *, logarithmic: bool = False, start: float | None = None, **options: Any
) -> Axis:
    """Return an axis that holds all values; it is logarithmic only where one of them is positive.

    A linear axis begins at `start` if it is given.
    """
    log, (low, high) = data_limits(values, logarithmic=True), data_limits(values) or (0.0, 1.0)
    linear = (low if start is None else start, high)
    return Axis(label, words, linear, log, logarithmic=logarithmic and log is not None, **options)
