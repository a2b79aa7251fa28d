"""The panels of a sweep: where its runs ended, against the first dimension of its grid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray

from ...columns import GRADIENT_DESCENT, MEASURES, Run
from ...formatting import format_number, subsample
from ..style import BOUND, FLOW, INITIAL, POINTS, run_look
from ..sweeps import runs
from ..sweeps.intervals import Interval, quartiles, share_interval
from .panel import FURTHEST, INK, Axis, Curve, Guide, Key, Panel, axis_over, edge_in_words, label_of, ordinates

DIVERGED, CRITICAL = "diverged", "critical"
MEDIANS = "medians of runs that did not diverge, of GF at its limits or where it was to stop; bands: quartiles"
CRITICAL_MEDIANS = "medians over initializations with a critical learning rate; bands: quartiles"
SHARES = "shares of all runs; whiskers: 95 % intervals (Wilson)"
HEADINGS = {
    "sharpness": "Sharpness at the end",
    "squared_distance": "Squared distance at the end",
    "excess_risk": "Excess risk at the end",
    "risk": "Risk at the end",
    DIVERGED: "Share of runs that diverged",
    CRITICAL: "Critical learning rate",
}
AXIS_NAMES = {
    "scale": "scale of the initialization",
    "depth": r"depth $L$",
    "condition": r"condition number $\Lambda/\lambda$",
    "samples": r"samples $n$",
    "features": r"features $d$",
}
SHARE_AXIS = Axis("probability of divergence", HEADINGS[DIVERGED], (-0.03, 1.03))
"""The axis of the shares of runs that diverged."""


def quantities(dataset: xarray.Dataset) -> list[str]:
    """Return what panels of a sweep are about: sharpness, how far runs came, and `DIVERGED` and `CRITICAL` if known."""
    diverged = any(bool(runs.diverged(dataset, run).any()) for run in runs.others(dataset))
    critical = "critical_learning_rate_lower" in dataset
    of_runs = ["sharpness", runs.progress_measure(dataset)] if runs.runs_of(dataset) else []
    return [*of_runs, *([DIVERGED] * diverged), *([CRITICAL] * critical)]


@dataclass(frozen=True)
class Facet:
    """A combination of the values of all dimensions but the first, and what the data set has there."""

    values: dict[str, Any]
    part: xarray.Dataset

    @property
    def title(self) -> str:
        """The combination in words."""
        shown = {name: f"{at:g}" if isinstance(at, int | float) else at for name, at in self.values.items()}
        return ", ".join(f"{name.replace('_', ' ')} = {at}" for name, at in shown.items())


@dataclass(frozen=True)
class SweepPanels:
    """What describes the panels of a sweep: its facets, which share their axes, and the runs that are shown.

    `points` tells whether each repetition is a point of its own, besides medians and quartiles.
    """

    facets: tuple[Facet, ...]
    runs: tuple[Run, ...]
    points: bool = False

    @classmethod
    def of(cls, dataset: xarray.Dataset, *, facets: int, others: int, points: int = 0) -> "SweepPanels":
        """Return the description of a sweep, with at most so many facets, runs beside the flow, and single points."""
        if not runs.grid(dataset):
            dataset = dataset.expand_dims(point=["the only one"])
        cells = subsample(list(runs.cells(dataset, runs.grid(dataset)[1:])), facets)
        shown = (*runs.flows(dataset), *subsample(runs.others(dataset), others))
        count = len(shown) * sum(part["initial_risk"].size for _, part in cells)
        return cls(tuple(Facet(*cell) for cell in cells), shown, count <= points)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of the initialization and of the runs, and of the critical learning rates if they were searched."""
        critical = "critical_learning_rate_lower" in self.facets[0].part
        return (_START, *(_key(index, run) for index, run in enumerate(self.runs)), *([_CRITICAL] * critical))

    def panels(self, quantity: str) -> list[Panel]:
        """Return the panels of a quantity at the ends of the runs, one for each facet.

        It may be `DIVERGED`, the share of the runs that did, or `CRITICAL`, the critical learning rates.
        """
        drawn = [tuple(self._curves(facet.part, quantity)) for facet in self.facets]
        guides = [tuple(self._guides(facet.part, quantity)) for facet in self.facets]
        y = self._axis(quantity, [one for curves in drawn for one in curves], [one for some in guides for one in some])
        estimate, spread = ("share", "95 % interval") if quantity == DIVERGED else ("median", "quartiles")
        heading = said = HEADINGS.get(quantity, quantity.replace("_", " ").capitalize() + " at the end")
        if quantity == CRITICAL:
            said = "The largest learning rate that reaches the minimum, dotted 1/(La‖w*‖^(2−2/L)),"
        made = []
        for number, facet in enumerate(self.facets):
            x, place = axis_along(facet.part), f", {facet.title}" if facet.title else ""
            panel = Panel(
                f"sweep-{quantity}-{number}",
                heading + place,
                f"{said} against {x.words}{place}",
                x,
                y,
                drawn[number],
                guides[number],
                title=facet.title,
                told=((x.words, "place"), (estimate, "y"), (f"{spread}, from", "low"), ("to", "high")),
                statistic={DIVERGED: SHARES, CRITICAL: CRITICAL_MEDIANS}.get(quantity, MEDIANS),
                whiskers=quantity == DIVERGED,
                edge=self._edge if quantity == "sharpness" else "",
                bounds=quantity == "sharpness" and any(_has_bound(one.part) for one in self.facets),
            )
            made.append(panel)
        return made

    @property
    def _edge(self) -> str:
        """What the edges of stability of the runs are called."""
        plain = all(run.has_edge_of_descent for run in self.runs if not run.is_flow)
        return r"$2/\eta$" if plain else "edge of stability"

    def _axis(self, quantity: str, curves: Sequence[Curve], guides: Sequence[Guide], most_span: float = 1e6) -> Axis:
        """Return the vertical axis, which holds all facets.

        Networks that were thrown back to zero have next to no sharpness, and would squeeze all others: the largest
        over `most_span` is the least that is shown of it. An axis of a probe is logarithmic unless the probe says
        otherwise, or not all is positive.
        """
        words = HEADINGS.get(quantity, quantity.replace("_", " "))
        if quantity == DIVERGED:
            return SHARE_AXIS
        values = ordinates(curves, guides)
        if quantity == CRITICAL:
            return axis_over(r"critical learning rate $\eta$", words, values, logarithmic=True)
        ends = [facet.part[runs.name_at_end(facet.part, quantity)] for facet in self.facets]
        positive = quantity in MEASURES or not any(bool((found <= 0).any()) for found in ends)
        attributes = ends[0].attrs
        logarithmic = bool(attributes.get("logarithmic", 1)) and positive
        y = axis_over(label_of(quantity, attributes), words, values, logarithmic=logarithmic)
        if quantity == "sharpness" and y.log is not None:
            y = replace(y, log=(max(y.log[0], y.log[1] / most_span), y.log[1]))
        return y

    def _curves(self, part: xarray.Dataset, quantity: str) -> Iterator[Curve]:
        """Yield the curves of a facet, which has one dimension besides those of repetitions and runs."""
        if quantity == CRITICAL:
            yield from _critical_curves(part)
            return
        if quantity == DIVERGED:
            for index, run in enumerate(self.runs):
                if not run.is_flow:
                    counted = (runs.diverged(part, run), runs.asked(part, run))
                    shares = share_interval(*(which.sum(runs.REPETITION).values for which in counted))
                    yield _interval_curve(part, _key(index, run), shares)
            return
        ends = [(_key(index, run), runs.final(part, run, quantity)) for index, run in enumerate(self.runs)]
        if self.points:
            for key, found in ends:
                yield from _points(part, key, found)
        if runs.knows(part, quantity):
            yield _interval_curve(part, _START, quartiles(_by_repetition(part[f"initial_{quantity}"])))
        for key, found in ends:  # where all runs diverged, or missed their limit, there is a gap
            yield _interval_curve(part, key, quartiles(_by_repetition(found)))
        if quantity == "sharpness" and _has_bound(part):
            x = positions(part)
            bound = np.broadcast_to(part["sharpness_lower_bound"].values, x.shape)
            if not is_constant(bound):
                yield Curve(Key(INK, "bound on S_min", "", BOUND), x, bound, named=False)

    def _guides(self, part: xarray.Dataset, quantity: str) -> Iterator[Guide]:
        """Yield the edges of stability, and the bound where it is the same everywhere.

        That of a rate so small that a logarithmic axis would have no room above it is left out.
        """
        if quantity != "sharpness":
            return
        for index, run in enumerate(self.runs):
            if run.threshold < FURTHEST:
                words = edge_in_words(float(run.threshold), of_descent=run.has_edge_of_descent)
                yield Guide(float(run.threshold), _key(index, run), words=words)
        if _has_bound(part):
            bound = np.ravel(part["sharpness_lower_bound"].values)
            if is_constant(bound):
                yield Guide(float(bound[0]), words=f"S_min ≥ {format_number(float(bound[0]), 3)}", dotted=True)


_START = Key("sweep-start", "initialization", "initialization", INITIAL)
_CRITICAL = Key("sweep-critical", "critical learning rate", "critical learning rate", run_look(Run(GRADIENT_DESCENT)))


def _key(index: int, run: Run) -> Key:
    return Key(f"sweep-{index}", run.name, run.label, run_look(run))


def _has_bound(part: xarray.Dataset) -> bool:
    """Tell whether the lower bound of Theorem 2 is known anywhere."""
    return "sharpness_lower_bound" in part and bool(np.isfinite(part["sharpness_lower_bound"]).any())


def is_constant(bound: np.ndarray) -> bool:
    """Tell whether a bound is the same at all points, so that it goes across the whole panel."""
    return bool(np.allclose(bound, bound[0], rtol=1e-9))


def _critical_curves(part: xarray.Dataset) -> Iterator[Curve]:
    """Yield the middles of all brackets, their medians and quartiles, and 2 over the bound of Theorem 2."""
    found = runs.critical_rates(part)
    yield from _points(part, replace(_CRITICAL, look=POINTS), found)
    yield _interval_curve(part, _CRITICAL, quartiles(found.values))
    x = positions(part)
    allowed = np.broadcast_to(2 / part["sharpness_lower_bound"].values, x.shape)
    yield Curve(Key(INK, "1/(La‖w*‖^(2−2/L))", r"$1/(La \Vert w^\star \Vert^{2-2/L})$", BOUND), x, allowed)


def _interval_curve(part: xarray.Dataset, key: Key, found: Interval) -> Curve:
    band = {"alpha": 0.14 if key.look is FLOW else 0.22, "zorder": key.look["zorder"] - 1}
    return Curve(key, positions(part), found.estimate, found.low, found.high, band=band)


def _by_repetition(values: xarray.DataArray) -> np.ndarray:
    return values.transpose(..., runs.REPETITION).values


def _points(part: xarray.Dataset, key: Key, found: xarray.DataArray) -> Iterator[Curve]:
    """Yield a point for each repetition, where there are several."""
    values = _by_repetition(found)
    if values.shape[-1] > 1:
        known = np.isfinite(values)
        x = np.broadcast_to(positions(part)[:, None], values.shape)[known]
        yield Curve(key, x, values[known], alpha=0.25, line=False, named=False)


def axis_along(part: xarray.Dataset) -> Axis:
    """Return the horizontal axis; the scale is logarithmic where values are spaced so."""
    name, x = runs.grid(part)[0], positions(part)
    words = name.replace("_", " ")
    values = part[name].values
    named = None if values.dtype.kind in "iuf" else tuple(str(value) for value in values)
    return axis_over(
        AXIS_NAMES.get(name, words),
        words,
        x,
        logarithmic=spaced_logarithmically(x),
        ticks=named,
        places=tuple(str(value) for value in values.tolist()),
        at=tuple(x.tolist()),
    )


def positions(part: xarray.Dataset) -> np.ndarray:
    """Return where the points stand: at the values of the dimension, or evenly where those are no numbers."""
    values = part[runs.grid(part)[0]].values
    return values.astype(float) if values.dtype.kind in "iuf" else np.arange(len(values), dtype=float)


def spaced_logarithmically(x: np.ndarray) -> bool:
    """Tell whether the ratios of neighbouring points are more alike than their distances."""
    if len(x) < 3 or not np.all(x > 0):
        return False
    steps, ratios = np.diff(x), np.diff(np.log(x))
    return float(np.ptp(ratios) / np.abs(ratios).mean()) < float(np.ptp(steps) / np.abs(steps).mean())
