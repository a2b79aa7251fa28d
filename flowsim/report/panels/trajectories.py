"""The panels of runs against time: every quantity that was recorded, of all runs beside the flow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray

from ...columns import MEASURES, Recorded, RecordedRun, read_runs
from ...comparison.centres import SHARPNESS as CENTRE_SHARPNESS
from ...comparison.measure import LIMIT
from ...dynamics import Outcome
from ...formatting import format_number
from ..style import CROSSING, LIMITS, THRESHOLD, run_look
from .oscillation import middle_and_range, oscillates
from .panel import HEADINGS, Axis, Curve, Guide, Key, Panel, Symlog, edge_in_words, label_of, subsample
from .view import Series, TimeView, linear_limits, log_limits, sharpness_limits, time_view

_FROM_SHARPNESS = ("top_eigenvalues", "spectrum_top")
"""Eigenvalues of the Hessian of which the first is the sharpness."""
LIMIT_KEY = "limit"
"""The name of the key of the flow's limits from points of the runs, which a figure draws over their sharpness."""


@dataclass(frozen=True)
class TrajectoryPanels:
    """What describes the panels of a data set of trajectories: its runs in their order, and the part of time in view.

    On a curve stand `marks` markers, so that it is told from others without colours. Of an array of numbers `lines`
    are drawn, the first in full colour and the last at the strength `faintest`. In the legend of a figure are as many
    runs beside the flow as `names` says, and in its margin as many edges as `margin_names`.
    """

    dataset: xarray.Dataset
    shown: Recorded
    view: TimeView
    keys: tuple[Key, ...]
    marks: int = 10
    lines: int = 8
    faintest: float = 0.35
    names: int = 9
    margin_names: int = 6

    @classmethod
    def of(cls, dataset: xarray.Dataset) -> "TrajectoryPanels":
        """Return the description of a data set of trajectories."""
        shown, keys = read_runs(dataset), []
        for index, run in enumerate(shown.ordered):
            ended = ", diverged" if run.outcome == Outcome.DIVERGED else ""
            look = run_look(run.run, calm=is_calm(run))
            keys.append(Key(f"run-{index}", run.run.name + ended, run.run.label + ended, look, stays=run.outcome.stays))
        return cls(dataset, shown, time_view(shown), tuple(keys))

    @property
    def keyed_runs(self) -> Iterator[tuple[Key, RecordedRun]]:
        """The runs in their order, each with its key."""
        return zip(self.keys, self.shown.ordered, strict=True)

    @property
    def time(self) -> Axis:
        """The axis of time, which all panels share."""
        end, steps = self.view.end, bool(self.shown.others) and self.shown.plain
        times = np.concatenate([run.along("time") for run in self.shown.runs])
        first = float(times[(times > 0) & (times < end)].min(initial=end))
        return Axis(
            label=r"time $t = \eta k$" if steps else r"time $t$",
            words="time t = ηk" if steps else "time t",
            linear=(-0.02 * end, end),
            log=(first if first < end else end / 1000, end),
            logarithmic=self.view.linear_until is not None,
            symlog=None if self.view.linear_until is None else Symlog(self.view.linear_until, (0, end)),
            last=float(np.max([run.along("time")[-1] for run in self.shown.runs])),
        )

    @property
    def measure_of_progress(self) -> str:
        """What tells how far runs came: the squared distance, else the excess risk, else the risk."""
        measures = ("squared_distance", "excess_risk")
        return next((name for name in measures if np.isfinite(self.shown.leading.along(name)[0])), "risk")

    @property
    def has_distances(self) -> bool:
        """Whether there is a flow, and runs whose distances from it are drawn."""
        return bool(self.shown.others) and self.shown.has_flow

    def is_followed(self, quantity: str) -> bool:
        """Tell whether a run knows a quantity anywhere but at its end, or has no other record."""
        known = [np.isfinite(columns(run, quantity, 1)[0]) for run in self.shown.runs]
        return any(there[:-1].any() or (len(there) == 1 and there.all()) for there in known)

    def panel(self, quantity: str) -> Panel:
        """Return the panel of a quantity.

        Of an oscillation the band is its range, and the curve the middle of that.
        """
        attributes = self.dataset[quantity].attrs if quantity in self.dataset else {}
        name = quantity.replace("_", " ")
        heading, words = HEADINGS.get(quantity, (name.capitalize(), name))
        label = label_of(quantity, attributes)
        if quantity == "distance":
            descents = all(other.run.is_descent for other in self.shown.others)
            theirs = r"W_\mathrm{GD}(t/\eta)" if descents else "W(t)"
            label = rf"$\Vert {theirs} - W_\mathrm{{GF}}(t) \Vert$"
        runs = self.shown.ordered
        series = [_series(run, values) for run in runs for values in columns(run, quantity, self.lines)]
        limits = list(self._flow_limits()) if quantity == "sharpness" else []
        y = self._axis(quantity, label, words, [*series, *(drawn for drawn, _ in limits)])
        curves = (curve for index in range(len(runs)) for curve in self._curves(index, quantity, y.logarithmic))
        curves = tuple(curve for curve in curves if np.isfinite(curve.y).any())
        crossings = self._crossings() if quantity == "distance" else ()
        overlays = (*self._moving_edges(quantity), *(curve for _, curve in limits), *crossings)
        guides = tuple(self._guides(quantity, y.limits[1]))
        description = str(attributes.get("long_name", name))
        told = (("t", "x"), (words, "y"))
        return Panel(quantity, heading, description, self.time, y, curves, guides, overlays, told, leaders=True)

    def _axis(self, quantity: str, label: str, words: str, series: Sequence[Series]) -> Axis:
        """Return the vertical axis: logarithmic where anything is positive, of a probe where all of it is.

        A probe says itself whether it is to be logarithmic; the sharpness is not.
        """
        log = log_limits(series, self.view)
        declared = quantity != "sharpness" and bool(self.dataset[quantity].attrs.get("logarithmic", 1))
        positive = quantity in (*MEASURES, "distance") or all(
            (one.values[np.isfinite(one.values)] > 0).all() for one in series
        )
        if quantity == "sharpness":
            thresholds = [run.last_threshold for run in self.shown.others]
            leading = _series(self.shown.leading, self.shown.leading.along("sharpness").astype(float))
            others = series[1:] if self.shown.has_flow else series
            linear = sharpness_limits(leading, others, self.shown.bounds or (), thresholds, self.view)
        else:
            linear = linear_limits(series, self.view)
        return Axis(label, words, linear, log, logarithmic=log is not None and declared and positive)

    def _curves(self, index: int, quantity: str, logarithmic: bool) -> Iterator[Curve]:
        """Yield the curve of a quantity along a run, and of an array one for each number, the last of them faint.

        What has no place on a logarithmic axis, as the distance at the start, is no part of an oscillation.
        """
        run, key = self.shown.ordered[index], self.keys[index]
        others = len(self.shown.others)
        number = index - self.shown.has_flow
        named = number < 0 or number in subsample(range(others), self.names)
        # Evenly on the axis of time, and those of each run moved by another part of their spacing.
        parts = (np.arange(self.marks) + (number + 0.5) / max(others, 1)) / self.marks
        start, end = self.view.linear_until, self.view.end
        marks = end * parts if start is None else start * (end / start) ** parts
        found = columns(run, quantity, self.lines)
        for values, strength in zip(found, np.linspace(1.0, self.faintest, max(len(found), 2)), strict=False):
            one = _series(run, values)
            x, y, low, high = one.times, one.values, None, None
            if not run.run.is_flow:
                x, y, low, high = middle_and_range(x, np.where((y > 0) | (not logarithmic), y, np.nan))
            y = one.values if low is None else y
            yield Curve(key, x, y, low, high, marks, float(strength), named=named and strength == 1.0)

    def _guides(self, quantity: str, top: float) -> Iterator[Guide]:
        """Yield the edges of stability of what is their curvature, and the bounds of Theorem 2 on the sharpness."""
        curvature = _curvature(quantity)
        edges: dict[tuple[float | None, float], int] = {}
        for index, run in enumerate(self.shown.ordered):
            level = float(run.run.threshold_of(curvature))
            if np.isfinite(level) and not run.is_scheduled:
                edges.setdefault((run.run.learning_rate, level), index)
        visible = sorted({level for _, level in edges if level <= top}) if quantity == "sharpness" else []
        named = subsample(visible, self.margin_names)
        for (rate, level), index in edges.items():
            of_descent = self.shown.ordered[index].run.has_edge_of_descent
            name = r"$2/\eta,\ " if of_descent else r"edge, $"
            label = rf"{name}\eta = {rate:.3g}$" if level in named and rate is not None else None
            yield Guide(level, self.keys[index], label, edge_in_words(level, of_descent=of_descent))
        if quantity == "sharpness":
            for bound, side, sign in zip(self.shown.bounds or (), ("lower", "upper"), "≥≤", strict=False):
                words = f"S_min {sign} {format_number(bound, 3)}"
                yield Guide(bound, label=f"Theorem 2, {side}", words=words, dotted=True)

    def _moving_edges(self, quantity: str) -> Iterator[Curve]:
        """Yield the edges of stability that move, as the learning rate changes: each once, in the look of its run."""
        seen: set[bytes] = set()
        for run, key in zip(self.shown.ordered, self.keys, strict=True):
            edge = run.edge_along(_curvature(quantity)).astype(float)
            if run.is_scheduled and np.isfinite(edge).any() and edge.tobytes() not in seen:
                seen.add(edge.tobytes())
                name = r"$2/\eta(t)$" if run.run.has_edge_of_descent else "edge of stability"
                words = f"edge of stability, {run.run.name}"
                look = THRESHOLD | {"color": key.look["color"], "marker": "none"}
                yield Curve(Key(f"edge-{key.name}", words, name, look), run.along("time"), edge, named=len(seen) == 1)

    def _flow_limits(self) -> Iterator[tuple[Series, Curve]]:
        """Yield the sharpness of the flow's limit from points of each run, where it was asked for, and its curve.

        The curves lie between the sharpness of each run and all guides, and have one name.
        """
        limits = ((run, run.along(LIMIT.name)) for run in self.shown.by_rate)
        limited = [(run, _series(run, values)) for run, values in limits if np.isfinite(values).any()]
        for number, (run, drawn) in enumerate(limited):
            look: dict[str, Any] = LIMITS | {"marker": run_look(run.run)["marker"]}
            key = Key(LIMIT_KEY, "limit of GF from there", "limit of GF from there", look)
            yield drawn, Curve(key, drawn.times, drawn.values, named=number == 0)

    def _crossings(self) -> Iterator[Curve]:
        """Yield a star on every curve where the run first reaches its edge, on its first point if it starts above."""
        places = []
        for run in self.shown.by_rate:
            values, crossing = run.along("distance").astype(float), run.number("crossing_time")
            times, values = run.along("time")[values > 0], values[values > 0]
            if len(times) and crossing <= min(self.view.end, times[-1]):
                time = max(crossing, times[0])
                places.append((time, np.exp(np.interp(time, times, np.log(values)))))
        if places:
            label = r"$S$ reaches $2/\eta$" if self.shown.plain else "reaches its edge"
            x, y = np.array(places, float).T
            yield Curve(Key("crossing", "reaches its edge", label, CROSSING), x, y, line=False)


def _curvature(quantity: str) -> str:
    """Return the curvature that a quantity is, of which there may be an edge."""
    return "sharpness" if quantity in (CENTRE_SHARPNESS.name, *_FROM_SHARPNESS) else quantity


def columns(run: RecordedRun, quantity: str, most: int) -> list[np.ndarray]:
    """Return the numbers of a quantity along a run, of an array of numbers at most so many."""
    values = run.along(quantity).astype(float)
    values = values.reshape(len(values), -1)
    return [values[:, number] for number in subsample(range(values.shape[1]), most)]


def _series(run: RecordedRun, values: np.ndarray) -> Series:
    """Return the series without the records at which nothing was measured, or as it is where none was."""
    times, bounded, there = run.along("time"), run.outcome != Outcome.DIVERGED, ~np.isnan(values)
    return Series(times[there], values[there], bounded) if there.any() else Series(times, values, bounded)


def is_calm(run: RecordedRun) -> bool:
    """Tell whether the curves of a run may lie before the flow: it converged, or does not oscillate."""
    drawn = _series(run, run.along("sharpness").astype(float))
    return run.outcome.converged or (drawn.bounded and not oscillates(drawn.values))
