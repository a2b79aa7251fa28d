"""The plots of a sweep: where its runs ended, against the first dimension of its grid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray

from ...results.runs import GRADIENT_DESCENT, Run
from ..panels import subsample
from ..style import run_look
from ..sweeps import runs
from ..sweeps.intervals import Interval, quartiles, share_interval
from ..sweeps.panels import INITIAL, positions, spaced_logarithmically
from .plot import INK, MOST_POINTS, Curve, Group, Key, Level, Limits, Plot, curve_of, key_of, span

_MOST_FACETS, _MOST_RUNS_SHOWN = 6, 14
_FEW = MOST_POINTS // 4
_MARGIN = 0.06
# Networks that were thrown back to zero have next to no sharpness, and would squeeze all others.
_MOST_SPAN = {"sharpness": 1e6}
_START, _DIVERGED, _CRITICAL = "initialization", "diverged", "critical learning rate"
_ABOUT = (
    "Medians over the repetitions, of the flow at its limits or where it was to stop, with a band from the first "
    "quartile to the third and a faint point for each run; runs that diverged are left out. Dashed lines are edges of "
    "stability, 2/η for gradient descent, the dotted one is the lower bound of Theorem 2."
)
_HEADINGS = {
    "sharpness": "Sharpness at the end",
    "squared_distance": "Squared distance at the end",
    "excess_risk": "Excess risk at the end",
    "risk": "Risk at the end",
    _DIVERGED: "Share of runs that diverged",
}
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class _Place:
    """A combination of the values of all dimensions but the first, and what the data set has there.

    `few` tells whether there are so few runs in all that each of them is shown, and not medians and quartiles alone.
    """

    number: int
    values: dict[str, Any]
    part: xarray.Dataset
    few: bool

    @property
    def words(self) -> str:
        """The combination in words, to stand behind a heading."""
        return "".join(f", {name.replace('_', ' ')} = {value}" for name, value in self.values.items())


def sweep_plots(dataset: xarray.Dataset) -> Group:
    """Return the plots of a sweep, one of each quantity for up to six combinations of the other dimensions."""
    if not runs.grid(dataset):
        dataset = dataset.expand_dims(point=["the only one"])
    shown = (*runs.flows(dataset), *subsample(runs.others(dataset), _MOST_RUNS_SHOWN))
    keys = [key_of(f"sweep-{index}", run.name, run_look(run)) for index, run in enumerate(shown)]
    known = {key_of("sweep-start", _START, INITIAL): None} | dict(zip(keys, shown, strict=True))
    facets = subsample(list(runs.cells(dataset, runs.grid(dataset)[1:])), _MOST_FACETS)
    points = len(shown) * sum(part["initial_risk"].size for _, part in facets)
    places = [_Place(number, values, part, points <= _FEW) for number, (values, part) in enumerate(facets)]
    plots = [_plot(place, name, known) for name in _quantities(dataset) for place in places]
    keys = [*known]
    if "critical_learning_rate_lower" in dataset:
        keys.append(key_of("sweep-critical", _CRITICAL, run_look(Run(GRADIENT_DESCENT))))
        plots = [*(_critical_plot(place, keys[-1]) for place in places), *plots]
    return Group("sweep", "Over the sweep", _ABOUT, tuple(plots), tuple(keys))


def _quantities(dataset: xarray.Dataset) -> Iterator[str]:
    yield "sharpness"
    yield runs.progress_measure(dataset)
    if any(bool(runs.diverged(dataset, run).any()) for run in runs.others(dataset)):
        yield _DIVERGED


def _plot(place: _Place, quantity: str, known: dict[Key, Run | None]) -> Plot:
    """Return the plot of a quantity for the runs of their keys, `None` for the initialization."""
    part, axis = place.part, runs.grid(place.part)[0].replace("_", " ")
    found = {key: _estimates(part, run, quantity) for key, run in known.items()}
    bounds = list(_bound(part)) if quantity == "sharpness" else []
    linear, log = _limits([*found.values(), *(one.columns for one in bounds)], quantity)
    drawn = [curve for key, columns in found.items() if (curve := curve_of(key, columns)) is not None]
    single = [
        curve
        for key, run in known.items()
        if run and place.few and quantity != _DIVERGED
        for curve in _every_run(part, key, _all(part, run, quantity))
    ]
    estimate, spread = ("share", "95 % interval") if quantity == _DIVERGED else ("median", "quartiles")
    x_log = spaced_logarithmically(positions(part))
    return Plot(
        f"sweep-{quantity}-{place.number}",
        _HEADINGS[quantity] + place.words,
        f"{_HEADINGS[quantity]} against {axis}{place.words}",
        across=axis,
        up=_HEADINGS[quantity],
        curves=(*single, *drawn, *bounds),
        linear=linear,
        log=log,
        logarithmic=log is not None,
        told=((axis, "place"), (estimate, "y"), (f"{spread}, from", "low"), ("to", "high")),
        x=_across(positions(part), x_log),
        x_log=x_log,
        levels=tuple(_levels(known)) if quantity == "sharpness" else (),
        ticks=_ticks(part),
    )


def _across(x: np.ndarray, logarithmic: bool) -> Limits:
    if logarithmic:
        room = (x.max() / x.min()) ** _MARGIN
        return float(x.min() / room), float(x.max() * room)
    margin = _MARGIN * (float(np.ptp(x)) or 1.0)
    return float(x.min() - margin), float(x.max() + margin)


def _ticks(part: xarray.Dataset) -> tuple[str, ...] | None:
    """Return the values of a dimension that are no numbers, which stand at 0, 1, 2, …"""
    values = part[runs.grid(part)[0]].values
    return None if values.dtype.kind in "iuf" else tuple(str(value) for value in values)


def _estimates(part: xarray.Dataset, run: Run | None, quantity: str) -> Columns:
    """Return the median of a quantity over the ends of a run, or over the starts, or the share that diverged."""
    if quantity != _DIVERGED:
        return _placed(part, quartiles(_all(part, run, quantity)))
    if run is None:
        return _placed(part, Interval(*np.full((3, len(positions(part))), np.nan)))
    counted = (runs.diverged(part, run), runs.asked(part, run))
    found = share_interval(*(which.sum(runs.REPETITION).values for which in counted))
    return _placed(part, found)


def _placed(part: xarray.Dataset, found: Interval) -> Columns:
    places = [str(value) for value in part[runs.grid(part)[0]].values.tolist()]
    return {"x": positions(part), "y": found.estimate, "low": found.low, "high": found.high, "place": places}


def _critical_plot(place: _Place, key: Key) -> Plot:
    """Return the plot of the largest learning rates that reach the minimum, below what Theorem 2 allows."""
    part, axis = place.part, runs.grid(place.part)[0].replace("_", " ")
    values = runs.critical_rates(part).values
    allowed = [replace(one, columns={**one.columns, "y": 2 / one.columns["y"]}) for one in _bound(part)]
    found = _placed(part, quartiles(values))
    linear, log = _limits([found, *(one.columns for one in allowed)], _CRITICAL)
    drawn = curve_of(key, found)
    x_log = spaced_logarithmically(positions(part))
    return Plot(
        f"sweep-critical-{place.number}",
        _CRITICAL.capitalize() + place.words,
        f"The largest learning rate that reaches the minimum, against {axis}{place.words}; dotted 1/(La‖w*‖^(2−2/L))",
        across=axis,
        up=_CRITICAL,
        curves=(*_every_run(part, key, values), *([] if drawn is None else [drawn]), *allowed),
        linear=linear,
        log=log,
        logarithmic=log is not None,
        told=((axis, "place"), ("median", "y"), ("quartiles, from", "low"), ("to", "high")),
        x=_across(positions(part), x_log),
        x_log=x_log,
        ticks=_ticks(part),
    )


def _all(part: xarray.Dataset, run: Run | None, quantity: str) -> np.ndarray:
    """Return a quantity over (point, repetition): at the starts, or at the ends of a run."""
    found = part[f"initial_{quantity}"] if run is None else runs.final(part, run, quantity)
    return found.transpose(..., runs.REPETITION).values


def _limits(found: Sequence[Columns], quantity: str) -> tuple[Limits, Limits | None]:
    if quantity == _DIVERGED:
        return (-0.03, 1.03), None
    values = np.concatenate([columns[name] for columns in found for name in ("y", "low", "high") if name in columns])
    return span(values, margin=_MARGIN, most=_MOST_SPAN.get(quantity, 1e24))


def _every_run(part: xarray.Dataset, key: Key, values: np.ndarray) -> Iterator[Curve]:
    """Yield a faint point for each repetition, of values over (point, repetition)."""
    if values.shape[-1] > 1:
        known = np.isfinite(values)
        x = np.broadcast_to(positions(part)[:, None], values.shape)[known]
        columns = {"x": x, "y": values[known]}
        yield Curve(key.name, columns, line=False, marks=range(len(x)), size=3.0, alpha=0.25, told=False)


def _bound(part: xarray.Dataset) -> Iterator[Curve]:
    """Yield the lower bound of Theorem 2 on the sharpness of minimizers, where it is known."""
    if "sharpness_lower_bound" in part:
        x = positions(part)
        bound = np.broadcast_to(part["sharpness_lower_bound"].values, x.shape)
        yield Curve(INK, {"x": x, "y": bound}, dash=(2, 3), told=False)


def _levels(known: dict[Key, Run | None]) -> Iterator[Level]:
    for key, run in known.items():
        if run is not None and np.isfinite(run.threshold):
            yield Level(float(run.threshold), key.name)
