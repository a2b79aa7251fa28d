"""Claims of Figures 1c, 1d, 4c and 4d: the edge of stability, along single runs."""

import numpy as np

from ...comparison import Comparison, DescentBesideFlow
from .claim import Claim

_EDGE = (0.9, 1.1)


def course_claims(comparison: Comparison) -> list[Claim]:
    """Return the claims about the smallest and the largest learning rate of single runs beside the flow."""
    descents = sorted(comparison.descents, key=lambda descent: descent.learning_rate)
    if len(descents) < 2:
        return []
    return [_stays_below(descents[0]), _meets_edge(descents[-1])]


def _stays_below(descent: DescentBesideFlow) -> Claim:
    along = _over_threshold(descent)
    text = f"η = {descent.learning_rate:.3g} never meets 2/η"
    largest = float(np.nanmax(along))
    return Claim(text, "largest S/(2/η) along the run below 1", f"{largest:.3g}", largest < 1, {"largest": largest})


def _meets_edge(descent: DescentBesideFlow) -> Claim:
    along = _over_threshold(descent)
    last, largest = along[2 * len(along) // 3 :], float(np.nanmax(along))
    mean, least, most = (float(of(last)) for of in (np.nanmean, np.nanmin, np.nanmax))
    low, high = _EDGE
    return Claim(
        text=f"with η = {descent.learning_rate:.3g} the sharpness rises to 2/η and stays there",
        expected=f"S/(2/η) reaches 1, and its mean over the last third is {low} to {high}",
        measured=f"largest {largest:.3g}; last third: mean {mean:.3g}, from {least:.3g} to {most:.3g}",
        holds=largest >= 1 and low <= mean <= high,
        numbers={"largest": largest, "mean_of_last_third": mean, "least": least, "most": most},
    )


def _over_threshold(descent: DescentBesideFlow) -> np.ndarray:
    """Return S·η/2 at the records of the run, which are evenly spaced or dense at first."""
    return np.asarray(descent.trajectory.sharpness, float) * descent.learning_rate / 2
