"""What is asked about progressive sharpening along the gradient flow, each with the numbers measured."""

import itertools

import numpy as np

from ...theory import Claim, unmeasured
from .measures import Course, by_cell

_EXACT = 1e-6
# The risk falls from this part of its fall to that.
_FALL = (0.05, 0.95)


def sharpening_claims(courses: list[Course]) -> list[Claim]:
    """Return the claims about flows from several scales, at several depths."""
    return [
        _integral(courses),
        _rises_from_small_scales(courses),
        _from_the_start(courses),
        _smaller_is_stronger(courses),
        _deeper_is_stronger(courses),
        _while_the_risk_falls(courses),
    ]


def _integral(courses: list[Course]) -> Claim:
    text = "the integral of dS/dt = −⟨∇S, ∇R⟩ over time is the change of S"
    expected = f"within {_EXACT:g} of the largest S between records, where the top eigenvector turns by 18° or less"
    smooth = np.concatenate([one.errors[one.continues] for one in courses] or [np.empty(0)])
    others = np.concatenate([one.errors[~one.continues] for one in courses] or [np.empty(0)])
    if not len(smooth):
        return unmeasured(text, expected, "no flow moved")
    worst = float(smooth.max())
    measured = f"at most {worst:.2g} in {len(smooth)} stretches"
    if len(others):
        measured += f"; at most {others.max():.2g} in the {len(others)} in which it turns further"
    numbers = {"largest": worst, "stretches": len(smooth), "turns": len(others)}
    return Claim(text, expected, measured, worst <= _EXACT, numbers)


def _rises_from_small_scales(courses: list[Course]) -> Claim:
    text = "flows from a small scale end sharper than they start, and flows from a large one flatter"
    expected = "S(∞) > S(0) in every flow from the smallest scale, and in less than half of those from the largest"
    if not courses:
        return unmeasured(text, expected, "no flow moved")
    scales = [one.scale for one in courses]
    small = [one.sharpens for one in courses if one.scale == min(scales)]
    large = [one.sharpens for one in courses if one.scale == max(scales)]
    every = [one.sharpens for one in courses]
    measured = (
        f"{sum(small)} of {len(small)} at {min(scales):g}, {sum(large)} of {len(large)} at {max(scales):g}; "
        f"{np.mean(every):.0%} of all {len(every)}"
    )
    numbers = {"smallest": float(np.mean(small)), "largest": float(np.mean(large)), "all": float(np.mean(every))}
    return Claim(text, expected, measured, bool(all(small) and np.mean(large) < 0.5), numbers)


def _from_the_start(courses: list[Course]) -> Claim:
    text = "where the sharpness rises, it does so from the start"
    expected = "dS/dt > 0 at t = 0 in more than half of the flows with S(∞) > S(0)"
    rising = [one for one in courses if one.sharpens]
    if not rising:
        return unmeasured(text, expected, "no flow ends sharper than it starts")
    first = np.mean([one.rate[0] > 0 for one in rising])
    least = np.median([one.sharpness.min() / one.sharpness[0] for one in rising])
    measured = f"{first:.0%} of {len(rising)}; S falls first, to {least:.3g} of S(0) in the median"
    return Claim(text, expected, measured, bool(first > 0.5), {"share": float(first), "least": float(least)})


def _smaller_is_stronger(courses: list[Course]) -> Claim:
    text = "the smaller the scale, the stronger the sharpening, at every depth"
    expected = "median of max S/S(0) falls with the scale until it is 1"
    cells = by_cell(courses, lambda one: one.rise)
    rows = {depth: list(row.values()) for depth, row in cells.items() if len(row) > 1}
    if not rows:
        return unmeasured(text, expected, "fewer than two scales")
    falls = all(later < earlier or later == 1 for row in rows.values() for earlier, later in itertools.pairwise(row))
    measured = ", ".join(f"L = {depth}: {row[0]:.3g} to {row[-1]:.3g}" for depth, row in rows.items())
    numbers = {f"L = {depth}, scale {scale:g}": rise for depth, row in cells.items() for scale, rise in row.items()}
    return Claim(text, expected, measured, falls, numbers)


def _deeper_is_stronger(courses: list[Course]) -> Claim:
    text = "the deeper the network, the stronger the sharpening, at the smallest scale"
    expected = "median of max S/S(0) rises with the depth"
    smallest = min((one.scale for one in courses), default=np.nan)
    cells = by_cell([one for one in courses if one.scale == smallest], lambda one: one.rise)
    rises = {depth: row[smallest] for depth, row in cells.items()}
    if len(rises) < 2:
        return unmeasured(text, expected, "fewer than two depths")
    holds = all(after > before for before, after in itertools.pairwise(rises.values()))
    numbers = {f"L = {depth}": rise for depth, rise in rises.items()}
    return Claim(text, expected, ", ".join(f"{name}: {rise:.3g}" for name, rise in numbers.items()), holds, numbers)


def _while_the_risk_falls(courses: list[Course]) -> Claim:
    low, high = _FALL
    text = "the sharpness rises fastest while the risk falls, neither on the plateau before nor in the approach after"
    expected = f"part of the fall that is done where dS/dt peaks, median of flows with S(∞) > S(0): {low} to {high}"
    rising = [one for one in courses if one.sharpens]
    if not rising:
        return unmeasured(text, expected, "no flow ends sharper than it starts")
    done = np.array([one.fallen_at_peak for one in rising])
    middle = float(np.median(done))
    inside = float(np.mean((done >= low) & (done <= high)))
    measured = f"{middle:.3g}, from {done.min():.3g} to {done.max():.3g}; {inside:.0%} of {len(done)} within"
    numbers = {"median": middle, "least": float(done.min()), "most": float(done.max()), "within": inside}
    return Claim(text, expected, measured, low <= middle <= high, numbers)
