"""What is asked about progressive sharpening along the gradient flow, and what is measured for it in each flow."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray
from jaxtyping import Float

from ...report.sweeps import runs
from ...theory import Claim, unmeasured
from .course import COLUMNS

Records = Float[np.ndarray, " records"]


@dataclass(frozen=True)
class SharpnessCurve:
    """The sharpness along one flow, as `SharpnessCourse` has it, without what stands behind the last record.

    `gained` is the integral of the rate since the record before, NaN at the first.
    """

    depth: int
    scale: float
    time: Records
    risk: Records
    sharpness: Records
    rate: Records
    gained: Records
    overlap: Records

    @property
    def rise(self) -> float:
        """The largest S over S(0), one at least."""
        return float(self.sharpness.max() / self.sharpness[0])

    @property
    def sharpens(self) -> bool:
        """Whether the flow ends sharper than it starts."""
        return bool(self.sharpness[-1] > self.sharpness[0])

    @property
    def fallen(self) -> Records:
        """The part of the fall of the risk, from the start to the limit, that is done."""
        return (self.risk[0] - self.risk) / (self.risk[0] - self.risk[-1])

    @property
    def fallen_at_peak(self) -> float:
        """The part of the fall of the risk that is done where S rises fastest."""
        return float(self.fallen[np.nanargmax(self.rate)])

    @property
    def continues(self) -> np.ndarray:
        """Whether the top eigenvector turns by 18° at most from point to point, between each record and the next.

        Where it turns further, |⟨u, u'⟩| < 0.95, the rate is not smooth enough for the rule that integrates it.
        """
        return self.overlap[1:] >= 0.95

    @property
    def errors(self) -> Float[np.ndarray, " intervals"]:
        """How far the integral of the rate is from the change of S between records, in parts of the largest S."""
        return np.abs(self.gained[1:] - np.diff(self.sharpness)) / self.sharpness.max()


def curves_of(sweep: xarray.Dataset) -> list[SharpnessCurve]:
    """Return the curves of a sweep over depth and scale, of every start from which the flow moved."""
    table = sweep[[f"initial_course_{name}" for name in COLUMNS]]
    table = table.stack(start=("depth", "scale", runs.REPETITION))
    columns = {name: table[f"initial_course_{name}"].transpose("start", ...).values for name in COLUMNS}
    found = []
    for row, (depth, scale, _) in enumerate(table["start"].values):
        known = np.isfinite(columns["time"][row])
        if known.any():
            series = {name: columns[name][row, known] for name in COLUMNS}
            found.append(SharpnessCurve(int(depth), float(scale), **series))
    return found


def cell_medians(
    curves: list[SharpnessCurve], measure: Callable[[SharpnessCurve], float]
) -> dict[int, dict[float, float]]:
    """Return the median of a measure over the starts of each cell: of each depth, of each scale."""
    depths, scales = sorted({one.depth for one in curves}), sorted({one.scale for one in curves})
    medians: dict[int, dict[float, float]] = {depth: {} for depth in depths}
    for depth, scale in itertools.product(depths, scales):
        values = [measure(one) for one in curves if (one.depth, one.scale) == (depth, scale)]
        if values:
            medians[depth][scale] = float(np.median(values))
    return medians


def sharpening_claims(curves: list[SharpnessCurve]) -> list[Claim]:
    """Return the claims about flows from several scales, at several depths."""
    return [
        _integral(curves),
        _rises_from_small_scales(curves),
        _from_the_start(curves),
        _smaller_is_stronger(curves),
        _deeper_is_stronger(curves),
        _while_the_risk_falls(curves),
    ]


def _integral(curves: list[SharpnessCurve], *, tolerance: float = 1e-6) -> Claim:
    """Return the claim that rate and sharpness agree, to a thousand times the tolerance of a step of the flow."""
    text = "the integral of dS/dt = −⟨∇S, ∇R⟩ over time is the change of S"
    expected = f"within {tolerance:g} of the largest S between records, where the top eigenvector turns by 18° or less"
    smooth = np.concatenate([one.errors[one.continues] for one in curves] or [np.empty(0)])
    others = np.concatenate([one.errors[~one.continues] for one in curves] or [np.empty(0)])
    if not len(smooth):
        return unmeasured(text, expected, "no flow moved")
    worst = float(smooth.max())
    measured = f"at most {worst:.2g} in {len(smooth)} stretches"
    if len(others):
        measured += f"; at most {others.max():.2g} in the {len(others)} in which it turns further"
    numbers = {"largest": worst, "stretches": len(smooth), "turns": len(others)}
    return Claim(text, expected, measured, worst <= tolerance, numbers)


def _rises_from_small_scales(curves: list[SharpnessCurve]) -> Claim:
    text = "flows from a small scale end sharper than they start, and flows from a large one flatter"
    expected = "S(∞) > S(0) in every flow from the smallest scale, and in less than half of those from the largest"
    if not curves:
        return unmeasured(text, expected, "no flow moved")
    scales = [one.scale for one in curves]
    small = [one.sharpens for one in curves if one.scale == min(scales)]
    large = [one.sharpens for one in curves if one.scale == max(scales)]
    every = [one.sharpens for one in curves]
    measured = (
        f"{sum(small)} of {len(small)} at {min(scales):g}, {sum(large)} of {len(large)} at {max(scales):g}; "
        f"{np.mean(every):.0%} of all {len(every)}"
    )
    numbers = {"smallest": float(np.mean(small)), "largest": float(np.mean(large)), "all": float(np.mean(every))}
    return Claim(text, expected, measured, bool(all(small) and np.mean(large) < 0.5), numbers)


def _from_the_start(curves: list[SharpnessCurve]) -> Claim:
    text = "where the sharpness rises, it does so from the start"
    expected = "dS/dt > 0 at t = 0 in more than half of the flows with S(∞) > S(0)"
    rising = [one for one in curves if one.sharpens]
    if not rising:
        return unmeasured(text, expected, "no flow ends sharper than it starts")
    first = np.mean([one.rate[0] > 0 for one in rising])
    least = np.median([one.sharpness.min() / one.sharpness[0] for one in rising])
    measured = f"{first:.0%} of {len(rising)}; S falls first, to {least:.3g} of S(0) in the median"
    return Claim(text, expected, measured, bool(first > 0.5), {"share": float(first), "least": float(least)})


def _smaller_is_stronger(curves: list[SharpnessCurve]) -> Claim:
    text = "the smaller the scale, the stronger the sharpening, at every depth"
    expected = "median of max S/S(0) falls with the scale until it is 1"
    cells = cell_medians(curves, lambda one: one.rise)
    rows = {depth: list(row.values()) for depth, row in cells.items() if len(row) > 1}
    if not rows:
        return unmeasured(text, expected, "fewer than two scales")
    falls = all(later < earlier or later == 1 for row in rows.values() for earlier, later in itertools.pairwise(row))
    measured = ", ".join(f"L = {depth}: {row[0]:.3g} to {row[-1]:.3g}" for depth, row in rows.items())
    numbers = {f"L = {depth}, scale {scale:g}": rise for depth, row in cells.items() for scale, rise in row.items()}
    return Claim(text, expected, measured, falls, numbers)


def _deeper_is_stronger(curves: list[SharpnessCurve]) -> Claim:
    text = "the deeper the network, the stronger the sharpening, at the smallest scale"
    expected = "median of max S/S(0) rises with the depth"
    smallest = min((one.scale for one in curves), default=np.nan)
    cells = cell_medians([one for one in curves if one.scale == smallest], lambda one: one.rise)
    rises = {depth: row[smallest] for depth, row in cells.items()}
    if len(rises) < 2:
        return unmeasured(text, expected, "fewer than two depths")
    holds = all(after > before for before, after in itertools.pairwise(rises.values()))
    numbers = {f"L = {depth}": rise for depth, rise in rises.items()}
    return Claim(text, expected, ", ".join(f"{name}: {rise:.3g}" for name, rise in numbers.items()), holds, numbers)


def _while_the_risk_falls(curves: list[SharpnessCurve], *, low: float = 0.05, high: float = 0.95) -> Claim:
    """Return the claim on when S rises fastest: after the part `low` of the risk's fall, and before the part `high`."""
    text = "the sharpness rises fastest while the risk falls, neither on the plateau before nor in the approach after"
    expected = f"part of the fall that is done where dS/dt peaks, median of flows with S(∞) > S(0): {low} to {high}"
    rising = [one for one in curves if one.sharpens]
    if not rising:
        return unmeasured(text, expected, "no flow ends sharper than it starts")
    done = np.array([one.fallen_at_peak for one in rising])
    middle = float(np.median(done))
    inside = float(np.mean((done >= low) & (done <= high)))
    measured = f"{middle:.3g}, from {done.min():.3g} to {done.max():.3g}; {inside:.0%} of {len(done)} within"
    numbers = {"median": middle, "least": float(done.min()), "most": float(done.max()), "within": inside}
    return Claim(text, expected, measured, low <= middle <= high, numbers)
