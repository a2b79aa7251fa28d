"""The panels of maps over time, of four runs at most: what each layer measures, and the spectrum of the Hessian."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from ...columns import SHARPNESS, RecordedRun
from ..style import FLOW, THRESHOLD, run_look
from .panel import INK, Axis, Curve, Key, Mesh, Panel, Symlog, data_limits, label_of, ordinates, subsample
from .spectrum import NODES, Spectra
from .trajectories import TrajectoryPanels

_START = Key("start", "start", "start", {"color": "0.75"})
_END = Key("end", "end", "end", {"color": "black", "linewidth": 0.8})
_SHARPNESS = Key(INK, "", "", {"color": FLOW["color"], "linewidth": 0.8})


def layer_panels(panels: TrajectoryPanels, name: str, *, rows: str, most_names: int = 12) -> list[Panel]:
    """Return the maps of a quantity of each layer over time, one for each run, in one scale of colours.

    The axis of the layers is called `rows`. Layers have their names where there are at most so many. There is no map
    where nothing is finite.
    """
    attributes, runs = panels.dataset[name].attrs, _mapped(panels, name)
    values = [run.along(name).astype(float).reshape(len(run.along("time")), -1).T for run in runs]
    if not runs:
        return []
    names = json.loads(attributes.get("rows", "[]"))
    edges = np.arange(len(values[0]) + 1) + 0.5
    y = Axis(rows, rows, (0.5, float(edges[-1])), integers=True, most_ticks=5)
    if 0 < len(names) <= most_names:
        y = replace(y, ticks=tuple(names), at=tuple(range(1, len(names) + 1)))
    label, logarithmic = label_of(name, attributes), bool(attributes.get("logarithmic", 1))
    return _maps(panels, runs, y, edges, values, label, logarithmic=logarithmic)


def spectrum_panels(panels: TrajectoryPanels) -> list[Panel]:
    """Return the density of the eigenvalues of the Hessian along each run, and below where it begins and ends.

    There is none where no eigenvalue is finite. Eigenvalues stand on an axis that is linear about zero and logarithmic
    beyond. The colour is the share of all of them in a bin, and lines are the sharpness and its edge. Where random
    vectors estimate it, what a node stands for is spread over the distance to an eigenvalue that its residual leaves
    open, and below stands the error of the mean.
    """
    runs = _mapped(panels, NODES)
    if not runs:
        return []
    spectra = Spectra.of(runs)
    edges, means, bottom = spectra.edges, spectra.means, spectra.bottom

    def eigenvalues(step: int) -> Axis:
        ticks = spectra.ticks(step=step)
        limits = float(min(edges[0], ticks[0])), float(max(edges[-1], ticks[-1]))
        name = r"eigenvalue $\lambda$"
        return Axis(name, "eigenvalue λ", limits, symlog=Symlog(spectra.linear, limits, 0.5), at=tuple(ticks))

    above, below = [], []
    values = [mean.T for mean in means]
    maps = _maps(panels, runs, eigenvalues(1), edges, values, "share in a bin", logarithmic=True)
    for run, panel, shares in zip(runs, maps, spectra.shares, strict=True):
        times, edge = run.along("time"), run.edge_along(SHARPNESS).astype(float)
        curves = [Curve(_SHARPNESS, times, run.along(SHARPNESS).astype(float), named=False)]
        if np.isfinite(edge).any():
            look = THRESHOLD | {"color": run_look(run.run)["color"]}
            curves.append(Curve(Key(INK, "", "", look), times, edge, named=False))
        above.append(replace(panel, curves=curves))
        below.append(_ends(shares, edges, bottom, named=not below))
    top = data_limits(ordinates(curve for curves in below for curve in curves), logarithmic=True)
    limits = (bottom, 1.0 if top is None else top[1])
    share = Axis("share in a bin", "share in a bin", limits, limits, logarithmic=True)
    words = "distribution of the eigenvalues at the start and at the end"
    beneath = [Panel("spectrum-ends", words, words, eigenvalues(2), share, curves) for curves in below]
    return [*above, replace(beneath[0], legend={"loc": "upper right"}), *beneath[1:]]


def _mapped(panels: TrajectoryPanels, name: str, *, most: int = 4) -> list[RecordedRun]:
    """Return the flow, if it recorded the quantity, and of the other runs that did those that are spread over all."""
    runs = [run for run in panels.shown.ordered if np.isfinite(run.along(name)).any()]
    flow = [run for run in runs[:1] if run.run.is_flow]
    return [*flow, *subsample(runs[len(flow) :], most - len(flow))]


def _maps(
    panels: TrajectoryPanels,
    runs: Sequence[RecordedRun],
    y: Axis,
    edges: np.ndarray,
    values: Sequence[np.ndarray],
    label: str,
    *,
    logarithmic: bool,
) -> list[Panel]:
    """Return the map of each run, with a column for each of its records, from halfway to the record before.

    The maps share one scale of colours, which is logarithmic where `logarithmic` says so and all values are positive.
    """
    finite = np.concatenate([some[np.isfinite(some)] for some in values])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    logarithmic = logarithmic and low > 0
    limits = (low, max(high, 1.001 * low)) if logarithmic else (low, high)
    x, words, maps = replace(panels.time, linear=(0.0, panels.view.end), logarithmic=False), f"{label} over time", []
    for run, some in zip(runs, values, strict=True):
        times = run.along("time")
        between = (times[1:] + times[:-1]) / 2
        sides = np.concatenate([times[:1], between, times[-1:] if len(times) > 1 else times[-1:] + 1])
        mesh = Mesh(sides, edges, some, label, limits, logarithmic)
        maps.append(Panel("map", words, words, x, y, (), title=run.run.label, mesh=mesh))
    return maps


def _ends(
    shares: Float[np.ndarray, "records vectors bins"], edges: np.ndarray, bottom: float, *, named: bool
) -> list[Curve]:
    """Return the shares at the first and the last record that is known, with the error of an estimate."""
    known, curves, sides = np.flatnonzero(shares.sum(axis=(1, 2)) > 0), [], np.repeat(edges, 2)[1:-1]
    for key, record in ((_START, known[0]), (_END, known[-1])):
        mean, count = shares[record].mean(axis=0), shares.shape[1]
        level = np.repeat(np.maximum(mean, bottom), 2)
        area = (np.full(len(sides), bottom), level) if key is _START else (None, None)
        curves.append(Curve(key, sides, level, *area, line=key is _END, named=named))
        if count > 1:
            error = shares[record].std(axis=0, ddof=1) / count**0.5
            low, high = (np.repeat(np.maximum(mean + side * error, bottom), 2) for side in (-1, 1))
            curves.append(Curve(key, sides, level, low, high, line=False, named=False, band={"alpha": 0.25}))
    return curves
