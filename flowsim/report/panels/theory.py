"""The panels of the theory: both sides of each statement along the flow, and the sharpness against the conditioning."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...results import CheckedFlow
from ...theory import Statement
from ..style import BOUND, shade
from .panel import INK, Axis, Curve, Guide, Key, Limits, Panel, Symlog, axis_over, data_limits, subsample

_POINTS = {"marker": "o", "markersize": 2.5}
_SIDES = {"claimed smaller": {}, "claimed larger": {"linestyle": (0, (3, 2))}}
_SIDE_KEYS = (
    Key("claimed larger", "", "side claimed larger", {"color": "0.72", "linewidth": 2.6, "zorder": 2.2}),
    Key("claimed smaller", "", "side claimed smaller", {"color": "black", "linewidth": 0.9, "zorder": 2.4}),
)
_RATIO = "Sharpness of the limit over the lower bound of Theorem 2, against the condition number Λ/λ of the data"


@dataclass(frozen=True)
class TheoryPanels:
    """What describes the panels of checked flows: the first flow of each depth, and the keys of the depths."""

    flows: tuple[CheckedFlow, ...]
    columns: tuple[CheckedFlow, ...]
    keys: tuple[Key, ...]

    @classmethod
    def of(cls, flows: Sequence[CheckedFlow], *, depths: int | None = None) -> "TheoryPanels":
        """Return the description of flows, of all depths or at most so many."""
        first: dict[int, CheckedFlow] = {}
        for checked in flows:
            first.setdefault(checked.depth, checked)
        columns = subsample(list(first.values()), depths or len(first))
        looks = ({"color": shade(index, len(columns))} for index in range(len(columns)))
        keys = (
            Key(f"theory-{index}", f"L = {checked.depth}", f"$L = {checked.depth}$", look)
            for index, (checked, look) in enumerate(zip(columns, looks, strict=True))
        )
        return cls(tuple(flows), tuple(columns), tuple(keys))

    @property
    def names(self) -> list[str]:
        """The names of the statements whose sides go along time, in the order of the flows."""
        return list(dict.fromkeys(name for checked in self.columns for name in _along_time(checked)))

    def sides(self, name: str, columns: Sequence[int] | None = None) -> Panel | None:
        """Return the panel of both sides of a statement against the time since the escape from the initial plateau.

        It shows the flows at these places among the columns, all by default; `None` where the statement was checked
        along none of them.
        """
        places = range(len(self.columns)) if columns is None else columns
        of_flows = [(self.keys[place], _along_time(self.columns[place])) for place in places]
        found = [(key, statements[name]) for key, statements in of_flows if name in statements]
        if not found:
            return None
        times = np.concatenate([statement.times for _, statement in found if statement.times is not None])
        after = float(times.max()) if times.max() > 0 else 1.0
        curves = tuple(curve for key, statement in found for curve in _both_sides(key, statement))
        values = np.concatenate([np.zeros(0), *(curve.y for curve in curves)])
        log = _log_limits(curves)
        return Panel(
            f"theory-{self.names.index(name)}",
            name,
            found[0][1].claim,
            Axis("time since the escape", "time since the escape", (max(float(times.min()), -after), after)),
            Axis(name.replace(", ", ",\n"), "both sides", data_limits(values) or (0.0, 1.0), log, log is not None),
            curves,
            told=(("side", "side"), ("t", "x"), ("value", "y")),
        )

    def grid(self) -> list[Panel | None]:
        """Return the panels of a figure, a row for each statement and a column for each depth.

        Sides that agree lie on one another: the side claimed smaller is drawn inside the other.
        """
        drawn: list[Panel | None] = []
        for row, name in enumerate(self.names):
            for place, key in enumerate(self.keys):
                panel = self.sides(name, [place])
                if panel is not None:
                    curves = [
                        replace(curve, key=side, look={})
                        for side in _SIDE_KEYS
                        for curve in panel.curves
                        if side.name == curve.side
                    ]
                    x = _time_since_escape(panel.curves[0].x) if curves else panel.x
                    y = replace(panel.y, label="" if place else panel.y.label, most_ticks=4, label_size=7.0)
                    title = "" if row else key.label
                    panel = replace(panel, x=x, y=y, curves=curves, title=title)
                drawn.append(panel)
        return drawn

    def conditioning(self) -> Panel | None:
        """Return the panel of S over its lower bound against Λ/λ; `None` unless there are several of these.

        The dashed line is the bound 4Λ/λ of Corollary 2, where it applies.
        """
        found = np.array(list(_ratios(self.flows)), float).reshape(-1, 3)
        if len(found) == 0 or len({checked.condition for checked in self.flows}) < 2:
            return None
        curves = []
        for checked, key in zip(self.columns, self.keys, strict=True):
            of_depth = found[found[:, 0] == checked.depth]
            curves.append(Curve(key, of_depth[:, 1], of_depth[:, 2], line=False, look=_POINTS))
        conditions, values, description = np.unique(found[:, 1]), np.append(found[:, 2], 1.0), _RATIO
        if any(one.name == "Corollary 2" and one.smaller is not None for one in self.flows[0].statements):
            key = Key(INK, "4Λ/λ", r"$4\Lambda/\lambda$", BOUND | {"linestyle": "--"})
            curves.append(Curve(key, conditions, 4 * conditions))
            values, description = np.append(values, 4 * conditions), f"{_RATIO}, with the bound 4Λ/λ of Corollary 2"

        return Panel(
            "theory-conditioning",
            "Sharpness against conditioning",
            description,
            axis_over(r"$\Lambda/\lambda$", "condition number Λ/λ", conditions, logarithmic=True),
            axis_over(r"$S$ / lower bound on $S_\mathrm{min}$", "S / lower bound on S_min", values, logarithmic=True),
            curves,
            guides=(Guide(1.0, words="lower bound", dotted=True),),
            legend={"loc": "upper left"},
            told=(("Λ/λ", "x"), ("S / bound", "y")),
        )


def _time_since_escape(times: np.ndarray, *, longest: float = 10.0) -> Axis:
    """Return the axis of all times; the time before the escape is linear up to `longest` times that after it."""
    name, before, after = "time since the escape", -times[0], float(times[-1])
    if before <= longest * after:
        start = float(min(times[0], 0))
        return Axis(name, name, (start, after) if after > start else (start - 0.05, after + 0.05))
    # Logarithmic on half of the width, then linear, with the time since the escape on a quarter.
    scale = Symlog(after, (float(times[0]), after), float(np.log10(before / after) / 2))
    far = 10.0 ** np.floor(np.log10(before))
    middle = 10.0 ** np.round(np.log10(far * after) / 2)
    power = 10.0 ** np.floor(np.log10(after))
    rounded = power * max(digit for digit in (1, 2, 5) if digit * power <= after)
    at = [-far, *([-middle] if middle < far / 80 else []), 0.0, rounded]
    ticks = [  # times of thousands and more, which are powers of ten, as such
        f"{time:g}" if abs(time) < 1000 else f"${'-' if time < 0 else ''}10^{{{np.log10(abs(time)):.0f}}}$"
        for time in at
    ]
    return Axis(name, name, scale.limits, symlog=scale, at=tuple(map(float, at)), ticks=tuple(ticks))


def _along_time(checked: CheckedFlow) -> dict[str, Statement]:
    """Return the statements about a flow whose sides go along time, by name."""
    return {statement.name: statement for statement in checked.statements if statement.times is not None}


def _both_sides(key: Key, statement: Statement) -> Iterator[Curve]:
    times = np.asarray(statement.times, float)
    for side, look in _SIDES.items():
        values = getattr(statement, side.removeprefix("claimed "))
        if values is not None and np.shape(values) == times.shape:
            yield Curve(key, times, np.asarray(values, float), look=look, side=side)


def _log_limits(curves: Sequence[Curve], *, above: float = 1e8, decades: float = 24.0) -> Limits | None:
    """Return limits that show both sides, the larger one up to `above` times all of the smaller one."""
    positive = [(curve.side, curve.y[np.isfinite(curve.y) & (curve.y > 0)]) for curve in curves]
    values = np.concatenate([np.zeros(0), *(found for _, found in positive)])
    smaller = np.concatenate([np.zeros(0), *(found for side, found in positive if side == "claimed smaller")])
    if len(values) == 0:
        return None
    top = min(values.max(), above * smaller.max()) if len(smaller) else values.max()
    return float(max(values.min(), top * 10.0**-decades) / 3), float(top * 3)


def _ratios(flows: Sequence[CheckedFlow]) -> Iterator[tuple[int, float, float]]:
    """Yield depth, Λ/λ, and sharpness over the lower bound of Theorem 2, of the flows that converged."""
    for checked in flows:
        for statement in checked.statements:
            if statement.name == "Theorem 1" and checked.outcome.converged and statement.smaller is not None:
                smaller, larger = statement.sides
                if smaller and larger and np.isfinite(checked.condition):
                    yield checked.depth, checked.condition, larger / smaller
