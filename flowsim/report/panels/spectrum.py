"""The spectrum of the Hessian along runs, in bins, and its panel, which goes through time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...columns import RecordedRun
from ...dynamics import Outcome
from ...formatting import format_number
from .panel import Axis, Curve, Panel, data_limits, subsample
from .trajectories import TrajectoryPanels

NODES, WEIGHTS, RESIDUALS = "spectrum_nodes", "spectrum_weights", "spectrum_residuals"


@dataclass(frozen=True)
class Spectra:
    """The share of the spectrum in each bin along runs: `shares` of each run, (records, vectors, bins).

    The `edges` of the bins stand on an axis that is linear up to `linear` about zero, and logarithmic beyond.
    """

    shares: tuple[Float[np.ndarray, "records vectors bins"], ...]
    edges: Float[np.ndarray, " bins+1"]
    linear: float

    @classmethod
    def of(cls, runs: Sequence[RecordedRun], bins: int = 60) -> "Spectra":
        """Return the shares in about so many bins, which all runs have in common.

        What lies beyond them, of runs that diverged, is in none: there are others, which stay in view.
        """
        measures = [_measures(run) for run in runs]
        calm = [one for run, one in zip(runs, measures, strict=True) if run.outcome is not Outcome.DIVERGED] or measures
        largest = max(float(np.nanmax(np.abs(nodes))) for nodes, _, _ in calm) or 1.0
        linear = 1e-3 * largest
        edges = _edges(min(float(np.nanmin(nodes)) for nodes, _, _ in calm), largest, linear, bins)
        return cls(tuple(_shares(*measure, edges) for measure in measures), edges, linear)

    @property
    def means(self) -> list[Float[np.ndarray, "records bins"]]:
        """The means over the random vectors, NaN where a bin is empty."""
        return [np.where(found.mean(axis=1) > 0, found.mean(axis=1), np.nan) for found in self.shares]

    @property
    def bottom(self) -> float:
        """Half the least share of all, where an axis of shares may begin."""
        return 0.5 * float(np.nanmin(np.concatenate(self.means)))

    def ticks(self, *, step: int) -> list[float]:
        """Return zero and few powers of ten, every `step`-th, to both sides of it."""
        most = np.floor(np.log10(1e3 * self.linear) + 1e-9)
        powers = 10.0 ** np.arange(most, np.log10(self.linear) + 0.5, -step)[::-1]
        return [*-powers[::-1], 0.0, *powers]


def spectrum_panel(panels: TrajectoryPanels, *, light: int = 60_000, frames: int = 200) -> Panel | None:
    """Return the panel of the share of the spectrum in each bin, which changes with time; `None` where none is known.

    Each run has at most so many `frames`, evenly taken, and all together at most `light` numbers.
    """
    keyed = [(key, run) for key, run in panels.keyed_runs if np.isfinite(run.along(NODES)).any()]
    if not keyed:
        return None
    spectra = Spectra.of([run for _, run in keyed])
    edges, linear, bottom = spectra.edges, spectra.linear, spectra.bottom
    most = int(np.clip(light // (len(keyed) * len(edges)), 2, frames))
    middles = (edges[1:] + edges[:-1]) / 2
    curves = []
    for (key, run), mean in zip(keyed, spectra.means, strict=True):
        known = np.flatnonzero(np.isfinite(mean).any(axis=1))
        kept = np.array(subsample(known.tolist(), most), int)
        rows = np.nan_to_num(mean[kept])
        if len(kept):
            curves.append(Curve(key, _place(middles, linear), rows[-1], times=run.along("time")[kept], frames=rows))
    ticks = [tick for tick in spectra.ticks(step=1) if edges[0] <= tick <= edges[-1]]
    name = "eigenvalue λ of the Hessian"
    x = Axis(
        name,
        name,
        (float(_place(edges[0], linear)), float(_place(edges[-1], linear))),
        ticks=tuple(format_number(tick, 3) for tick in ticks),
        at=tuple(float(_place(tick, linear)) for tick in ticks),
        places=tuple(format_number(float(middle), 4) for middle in middles),
    )
    every = np.concatenate([np.ravel(curve.frames) for curve in curves])
    log = data_limits(every[every > 0], logarithmic=True)
    y = Axis("share in a bin", "share in a bin", (0.0, 1.05 * float(every.max())), log and (bottom, log[1]), True)
    said = "share of the eigenvalues in each bin at the time of the slider"
    told = (("eigenvalue about", "place"), ("share", "share"))
    return Panel("spectrum", "Spectrum of the Hessian", said, x, y, curves, told=told)


def _place(values: float | np.ndarray, linear: float) -> np.ndarray:
    """Return where values stand on an axis that is linear up to `linear` about zero, and logarithmic beyond."""
    return np.sign(values) * np.log1p(np.abs(values) / linear)


def _measures(run: RecordedRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes, residuals and weights, (records, vectors, nodes) all: of all eigenvalues no residuals.

    Where a run has none, nodes are NaN and weights zero.
    """
    nodes = run.along(NODES).astype(float)
    nodes = nodes.reshape(len(nodes), -1, nodes.shape[-1])
    known = np.isfinite(nodes)
    if WEIGHTS in run.part and np.isfinite(run.along(WEIGHTS)).any():
        weights = np.where(known, run.along(WEIGHTS), 0)
        return nodes, run.along(RESIDUALS), np.where(weights > 1e-12, weights, 0)  # less is rounding
    return nodes, np.zeros(nodes.shape), known / np.maximum(known.sum(axis=-1, keepdims=True), 1)


def _edges(least: float, largest: float, linear: float, bins: int) -> np.ndarray:
    """Return edges of bins that are nearly even on the axis of the figure, zero in the middle of one of them."""

    low, high = float(_place(min(least, 0.0), linear)), float(_place(largest, linear))
    width = (high - low) / bins
    steps = np.arange(np.floor(low / width - 0.5), np.ceil(high / width + 0.5) + 1)
    places = (steps + 0.5) * width
    return np.sign(places) * linear * np.expm1(np.abs(places))


def _shares(
    nodes: np.ndarray, residuals: np.ndarray, weights: np.ndarray, edges: np.ndarray
) -> Float[np.ndarray, "records vectors bins"]:
    """Return the share of the spectrum in each bin, of each random vector.

    What a node stands for is spread evenly over its residual to both sides, at most halfway to the next nodes.
    """
    halves = (nodes[..., 1:] - nodes[..., :-1]) / 2
    beyond = np.full((*nodes.shape[:-1], 1), np.inf)
    below = nodes - np.minimum(residuals, np.concatenate([beyond, halves], axis=-1))
    above = nodes + np.minimum(residuals, np.concatenate([halves, beyond], axis=-1))
    shares = []
    for low, high, mass in zip(below, above, np.where(np.isfinite(nodes), weights, 0), strict=True):
        low, high = np.clip(low, edges[0], None)[..., None], np.clip(high, None, edges[-1])[..., None]
        # A node without a width is on the side of an edge that it stands on.
        width = np.where(high > low, high - low, 1.0)
        passed = np.where(high > low, np.clip((edges - low) / width, 0, 1), edges > low)
        shares.append(np.diff(np.einsum("vn,vne->ve", mass, np.nan_to_num(passed)), axis=-1))
    return np.stack(shares)
