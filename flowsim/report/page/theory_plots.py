"""The plots of the theory: both sides of each statement against time, and the sharpness against the conditioning."""

from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
import xarray

from ...results import CheckedFlow, theory_from_dataset
from ...theory import Statement
from ..panels import subsample
from ..theory_figures import first_at_each_depth, ratios, series
from .plot import Curve, Group, Key, Level, Plot, curve_of, key_of, span

_ABOUT = (
    "Both sides of every statement along the flow, the smaller one as a line, the larger one dashed: the statement "
    "holds where the line stays below. Time counts from the escape from the initial plateau."
)
_RATIO = "Sharpness of the limit over the lower bound of Theorem 2, against the condition number Λ/λ of the data"
_SIDES = {"smaller": (), "larger": (6, 4)}


def theory_plots(dataset: xarray.Dataset, *, most_depths: int = 8) -> Group:
    """Return the plots of the statements that were checked."""
    flows = theory_from_dataset(dataset).flows
    depths = subsample(first_at_each_depth(flows), most_depths)
    keys = [_key(index, checked, len(depths)) for index, checked in enumerate(depths)]
    names = list(dict.fromkeys(name for checked in depths for name in series(checked)))
    plots = [_sides_plot(number, name, depths, keys) for number, name in enumerate(names)]
    plots += _conditioning(flows, depths, keys)
    return Group("theory", "The theory along the flow", _ABOUT, tuple(plots), tuple(keys))


def _key(index: int, checked: CheckedFlow, count: int) -> Key:
    colour = matplotlib.colormaps["viridis"](0.15 + 0.65 * index / max(1, count - 1))
    return key_of(f"theory-{index}", f"L = {checked.depth}", {"color": colour, "linewidth": 1.0})


def _sides_plot(number: int, name: str, depths: Sequence[CheckedFlow], keys: Sequence[Key]) -> Plot:
    found = {key: series(checked)[name] for key, checked in zip(keys, depths, strict=True) if name in series(checked)}
    times = np.concatenate([one.times for one in found.values() if one.times is not None])
    after = float(times.max()) if times.max() > 0 else 1.0
    sides = [side.ravel() for one in found.values() for side in (one.smaller, one.larger) if side is not None]
    linear, log = span(np.concatenate(sides or [np.zeros(0)]).astype(float))
    return Plot(
        f"theory-{number}",
        name,
        next(iter(found.values())).claim,
        across="time since the escape",
        up="both sides",
        curves=tuple(curve for key, one in found.items() for curve in _both_sides(key, one)),
        linear=linear,
        log=log,
        logarithmic=log is not None,
        told=(("side", "side"), ("t", "x"), ("value", "y")),
        x=(max(float(times.min()), -after), after),
    )


def _both_sides(key: Key, statement: Statement) -> Iterator[Curve]:
    times = np.asarray(statement.times, float)
    for side, dash in _SIDES.items():
        values = getattr(statement, side)
        if values is None or np.shape(values) != times.shape:
            continue
        columns = {"x": times, "y": np.asarray(values, float), "side": [side] * len(times)}
        if (curve := curve_of(key, columns, dash=dash)) is not None:
            yield curve


def _conditioning(flows: Sequence[CheckedFlow], depths: Sequence[CheckedFlow], keys: Sequence[Key]) -> Iterator[Plot]:
    """Yield the plot of S over its lower bound against Λ/λ, where there are several of these."""
    found = ratios(flows)
    conditions = np.array([condition for _, condition, _ in found])
    if len(set(conditions.tolist())) < 2:
        return
    linear, log = span(np.array([ratio for _, _, ratio in found]))
    yield Plot(
        "theory-conditioning",
        "Sharpness against conditioning",
        _RATIO,
        across="condition number Λ/λ",
        up="S / lower bound on S_min",
        curves=tuple(_points(found, checked.depth, key) for checked, key in zip(depths, keys, strict=True)),
        linear=linear,
        log=log,
        logarithmic=log is not None,
        told=(("Λ/λ", "x"), ("S / bound", "y")),
        x=(float(conditions.min()) / 1.5, float(conditions.max()) * 1.5),
        x_log=True,
        levels=(Level(1.0, dotted=True),),
    )


def _points(found: Sequence[tuple[int, float, float]], depth: int, key: Key) -> Curve:
    points = np.array([(condition, ratio) for one, condition, ratio in found if one == depth], float).reshape(-1, 2)
    return Curve(key.name, {"x": points[:, 0], "y": points[:, 1]}, line=False, marks=range(len(points)), size=5.0)
