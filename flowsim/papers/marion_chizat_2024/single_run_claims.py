"""Claims of Figures 1c, 1d, 4c and 4d: the edge of stability, along single runs."""

import numpy as np
import xarray

from ...results.recorded import RecordedRun, recorded
from ...theory import Claim, beside_sweep

_EDGE = (0.9, 1.1)
_LAST = 2 / 3


def single_run_claims(trajectories: xarray.Dataset) -> list[Claim]:
    """Return the claims about the smallest and the largest learning rate of single runs beside the flow."""
    descents = [run for run in recorded(trajectories).by_rate if run.run.is_descent]
    if len(descents) < 2:
        return []
    return beside_sweep([_stays_below(descents[0]), _meets_edge(descents[-1])])


def _stays_below(descent: RecordedRun) -> Claim:
    along = _over_threshold(descent)
    text = f"{descent.run.name} never meets 2/η"
    largest = float(np.nanmax(along))
    return Claim(text, "largest S/(2/η) along the run below 1", f"{largest:.3g}", largest < 1, {"largest": largest})


def _meets_edge(descent: RecordedRun) -> Claim:
    along = _over_threshold(descent)
    times = descent.along("time").astype(float)
    late, largest = times >= _LAST * times[-1], float(np.nanmax(along))
    last = along[late]
    mean, least, most = _time_mean(times[late], last), float(np.nanmin(last)), float(np.nanmax(last))
    low, high = _EDGE
    return Claim(
        text=f"with {descent.run.name} the sharpness rises to 2/η and stays there",
        expected=f"S/(2/η) reaches 1, and its mean over the last third is {low} to {high}",
        measured=f"largest {largest:.3g}; last third: mean {mean:.3g}, from {least:.3g} to {most:.3g}",
        holds=largest >= 1 and low <= mean <= high,
        numbers={"largest": largest, "mean_of_last_third": mean, "least": least, "most": most},
    )


def _time_mean(times: np.ndarray, values: np.ndarray) -> float:
    """Return the mean over time, for records that need not be evenly spaced."""
    return float(np.trapezoid(values, times) / np.ptp(times)) if len(times) > 1 else float(values[0])


def _over_threshold(descent: RecordedRun) -> np.ndarray:
    """Return S·η/2 at the records of the run.

    Where the sharpness swings from step to step, only a run that was recorded at every step shows it.
    """
    return descent.along("sharpness").astype(float) * descent.run.learning_rate / 2
