"""The panels of several data sets of trajectories over each other: colours tell folders apart, dashes the runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray

from ...columns import Recorded, RecordedRun, Run, read_runs
from ...formatting.terminal import printable
from ..style import folder_colour, side_by_side_look
from .panel import INK, Axis, Curve, Guide, Key, Panel, subsample
from .trajectories import LIMIT_KEY, TrajectoryPanels, is_calm
from .view import time_view


@dataclass(frozen=True)
class SideBySidePanels:
    """What describes the panels of several data sets of trajectories, by the names of their folders.

    `parts` are the panels of each folder, of the runs that are drawn, on one axis of time, out of so many `runs`. In
    the margin of a figure are at most so many names of edges.
    """

    parts: Mapping[str, TrajectoryPanels]
    runs: int
    margin_names: int = 6

    @classmethod
    def of(cls, datasets: Mapping[str, xarray.Dataset], *, most: int = 12) -> "SideBySidePanels":
        """Return the description of data sets of trajectories by the names of their folders.

        Drawn are the flow of each folder, or the first run where there is none, and of other runs as many as leave
        `most` curves: first those that most folders have, spread evenly over rates, and models of descent last.
        """
        found = {name: read_runs(dataset) for name, dataset in datasets.items()}
        beside = _beside_flows(found.values())
        numbers = {name: number for number, name in enumerate(beside)}
        drawn = _drawn(beside, most - len(datasets))
        view, parts = time_view(*found.values()), {}
        for place, (name, dataset) in enumerate(datasets.items()):
            whole, colour = TrajectoryPanels.of(dataset), folder_colour(place, len(datasets))
            keyed = [
                (_key(f"run-{place}-{index}", name, key, run, numbers.get(_identity(run.run), 0), colour), run)
                for index, (key, run) in enumerate(zip(whole.keys, whole.shown.ordered, strict=True))
                if _identity(run.run) in drawn or run is whole.shown.leading
            ]
            shown = replace(whole.shown, runs=tuple(run for _, run in keyed))
            keys = tuple(key for key, _ in keyed)
            parts[name] = replace(whole, shown=shown, view=view, keys=keys, lines=1)  # of an array the first number
        return cls(parts, sum(len(shown.runs) for shown in found.values()))

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all runs that are drawn."""
        return tuple(key for part in self.parts.values() for key in part.keys)

    @property
    def keyed_runs(self) -> Iterator[tuple[Key, RecordedRun]]:
        """The runs that are drawn, each with its key."""
        for part in self.parts.values():
            yield from part.keyed_runs

    @property
    def remarks(self) -> list[str]:
        """Sentences about what is not drawn."""
        if len(self.keys) == self.runs:
            return []
        others = "the flow of each folder, and of others first those that most folders have"
        return [f"Drawn are {len(self.keys)} of {self.runs} runs: {others}; the table has all of them."]

    @property
    def time(self) -> Axis:
        """The axis of time, which all panels share."""
        return _union([part.time for part in self.parts.values()])

    @property
    def measure_of_progress(self) -> str:
        """What tells in every folder how far runs came: the squared distance, else the excess risk, else the risk."""
        known = ("squared_distance", "excess_risk", "risk")
        return max((part.measure_of_progress for part in self.parts.values()), key=known.index)

    def is_followed(self, quantity: str) -> bool:
        """Tell whether a quantity is known in some folder anywhere but at the ends of runs."""
        return any(part.is_followed(quantity) for part in self.parts.values())

    def panel(self, quantity: str) -> Panel:
        """Return the panel of a quantity, with a curve for each run that knows it.

        Raises `ValueError` where none that is drawn does.
        """
        known = {name: part for name, part in self.parts.items() if _knows(part, quantity)}
        panels = [part.panel(quantity) for part in known.values()]
        if not panels:
            raise ValueError(f"{quantity!r} is known only of runs that are not drawn: plot it of their folder alone")
        faint = {"alpha": 0.12}
        curves = [replace(curve, named=False, band=faint) for panel in panels for curve in panel.curves]
        return replace(
            panels[0],
            x=_union([panel.x for panel in panels]),
            y=_union([panel.y for panel in panels]),
            curves=curves,
            guides=tuple(self._guides(known, panels)),
            overlays=(*self._legend(known), *_overlays(known, panels)),
        )

    def _guides(self, known: Mapping[str, TrajectoryPanels], panels: Sequence[Panel]) -> Iterator[Guide]:
        """Yield edges of stability, in grey as folders share them, and bounds, in the colour of a lone folder."""
        edges: dict[float, Guide] = {}
        for guide in (guide for panel in panels for guide in panel.guides if not guide.dotted):
            if guide.value not in edges or edges[guide.value].label is None:
                edges[guide.value] = replace(guide, key=_INK)
        named = subsample(sorted(value for value, edge in edges.items() if edge.label is not None), self.margin_names)
        for value, edge in edges.items():
            yield edge if value in named else replace(edge, label=None)
        bounds: dict[float, list[Guide]] = {}
        for part, panel in zip(known.values(), panels, strict=True):
            for guide in panel.guides:
                if guide.dotted:
                    bounds.setdefault(guide.value, []).append(replace(guide, key=part.keys[0]))
        for same in bounds.values():
            label = same[0].label if len(same) == len(panels) else None
            yield replace(same[0], key=same[0].key if len(same) == 1 else None, label=label)

    def _legend(self, known: Mapping[str, TrajectoryPanels]) -> Iterator[Curve]:
        """Yield curves without points, which name in the legend of a figure the folders, and then the runs."""
        for name, part in known.items():
            look = {"color": part.keys[0].look["color"], "linewidth": 1.8}
            shown = printable(name).replace("$", r"\$")
            # Matplotlib leaves out of a legend what begins with an underscore.
            yield Curve(Key(INK, name, f" {shown}" if shown.startswith("_") else shown, look))
        looks: dict[Any, tuple[str, Mapping[str, Any]]] = {}
        for key, run in (pair for part in known.values() for pair in part.keyed_runs):
            looks.setdefault(_identity(run.run), (run.run.label, key.look))
        if len(looks) > 1:
            for label, look in looks.values():
                grey = {**look, "color": "0.35"} | ({"markeredgecolor": "0.35"} if "marker" in look else {})
                yield Curve(Key(INK, label, label, grey))


_INK = Key(INK, "", "", {"color": "0.35"})


_Identity = tuple[str, float | None, int, str]


def _identity(run: Run) -> _Identity:
    """Return what makes runs of several folders the same one, however their rates are rounded in names."""
    return run.dynamics, run.learning_rate, run.fork, run.branch


def _beside_flows(found: Iterable[Recorded]) -> dict[_Identity, list[Run]]:
    """Return the runs beside the flows by what makes them the same: those of one dynamics together, by their rates."""
    runs: dict[_Identity, list[Run]] = {}
    for run in (run.run for shown in found for run in shown.others):
        runs.setdefault(_identity(run), []).append(run)
    order = list(dict.fromkeys(same[0].dynamics for same in runs.values()))
    return dict(sorted(runs.items(), key=lambda one: (order.index(one[1][0].dynamics), one[1][0].learning_rate or 0.0)))


def _drawn(beside: Mapping[_Identity, Sequence[Run]], most: int) -> set[_Identity]:
    """Return the runs of which there are `most` at most: first those that most folders share, models last."""
    groups: dict[tuple[int, bool], list[_Identity]] = {}
    for name, runs in beside.items():
        groups.setdefault((-len(runs), bool(runs[0].models)), []).append(name)
    drawn: set[_Identity] = set()
    for (shared, _), names in sorted(groups.items()):
        room = max(most, 0) // -shared
        drawn |= set(subsample(names, room)) if room else set()
        most += shared * len(names)
    return drawn


def _key(name: str, folder: str, key: Key, run: RecordedRun, number: int, colour: Any) -> Key:
    look = side_by_side_look(run.run, number, colour, calm=is_calm(run))
    return replace(key, name=name, words=f"{folder}: {key.words}", look=look)


def _knows(part: TrajectoryPanels, quantity: str) -> bool:
    return any(np.isfinite(run.along(quantity)).any() for run in part.shown.runs)


def _union(axes: Sequence[Axis]) -> Axis:
    """Return the axis that shows what all of them do, logarithmic where all are; the shortest name is the most general.

    As "time t" is beside "time t = ηk".
    """
    logs = [axis.log for axis in axes if axis.log is not None]
    return replace(
        axes[0],
        label=min((axis.label for axis in axes), key=len),
        words=min((axis.words for axis in axes), key=len),
        linear=(min(axis.linear[0] for axis in axes), max(axis.linear[1] for axis in axes)),
        log=(min(log[0] for log in logs), max(log[1] for log in logs)) if logs else None,
        logarithmic=all(axis.logarithmic for axis in axes),
        last=max(axis.last for axis in axes),
    )


def _overlays(known: Mapping[str, TrajectoryPanels], panels: Sequence[Panel]) -> Iterator[Curve]:
    """Yield what a figure draws over the curves, lines in the colours of the folders, each name once in the legend.

    The limits of the flow, of which there is a panel, are left out.
    """
    named: set[str] = set()
    for part, panel in zip(known.values(), panels, strict=True):
        for curve in panel.overlays:
            if curve.key.name != LIMIT_KEY:
                look = {**curve.key.look, **({"color": part.keys[0].look["color"]} if curve.line else {})}
                is_new = curve.named and curve.key.label not in named
                named |= {curve.key.label} if curve.named else set()
                yield replace(curve, key=replace(curve.key, look=look), named=is_new)
