"""Claims about the edge of stability: along single runs in Figures 1 and 4, and with noise in Appendix C."""

import numpy as np
import xarray

from ...columns import RecordedRun, read_runs
from ...dynamics import Outcome
from ...report.sweeps import runs
from ...report.sweeps.intervals import median
from ...theory import Claim, listed, mark_outside_sweep, unmeasured
from .measures import over_edge


def single_run_claims(trajectories: xarray.Dataset) -> list[Claim]:
    """Return the claims about the smallest and the largest learning rate of single runs beside the flow."""
    descents = [run for run in read_runs(trajectories).by_rate if run.run.is_descent]
    if len(descents) < 2:
        return []
    return mark_outside_sweep([_stays_below(descents[0]), _meets_edge(descents[-1])])


def _stays_below(descent: RecordedRun) -> Claim:
    along = _over_threshold(descent)
    text = f"{descent.run.name} never meets 2/η"
    largest = float(np.nanmax(along))
    return Claim(text, "largest S/(2/η) along the run below 1", f"{largest:.3g}", largest < 1, {"largest": largest})


def _meets_edge(descent: RecordedRun, *, low: float = 0.9, high: float = 1.1) -> Claim:
    """Return the claim that S rises to 2/η and stays there: its mean over the last third of the time is about that.

    The paper gives no tolerance; `low` to `high` is flowsim's. Single values are further off, as S oscillates.
    """
    along = _over_threshold(descent)
    times = descent.along("time").astype(float)
    last, largest = times >= 2 / 3 * times[-1], float(np.nanmax(along))
    ratios = along[last]
    mean, least, most = _time_mean(times[last], ratios), float(np.nanmin(ratios)), float(np.nanmax(ratios))
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

    Where the sharpness oscillates from step to step, only a run that was recorded at every step shows it.
    """
    return descent.along("sharpness").astype(float) * descent.run.learning_rate / 2


def noisy_claims(dataset: xarray.Dataset, *, reached: float = 0.9) -> list[Claim]:
    """Return the claims of Appendix C about all descents of a sweep over the scale.

    At the edge S oscillates about 2/η from step to step, by a tenth of it in most runs: S·η/2 of at least `reached`
    counts as having reached it.
    """
    cells, every = _every_cell(dataset, reached), _every_run(dataset, reached)
    return [cells, every, _larger_rates(dataset, reached), _fits_noise(dataset)]


def _every_cell(dataset: xarray.Dataset, reached: float) -> Claim:
    text = "the sharpness reaches 2/η, for every learning rate and scale"
    expected = f"median of S·η/2 after training at least {reached:g} at every scale"
    medians = {run.name: median(over_edge(dataset, run)).values for run in runs.descents(dataset)}
    medians = {name: values[np.isfinite(values)] for name, values in medians.items()}
    medians = {name: values for name, values in medians.items() if len(values)}
    if not medians:
        return unmeasured(text, expected, "every run diverged")
    parts = [
        f"{name}: {(values >= reached).sum()} of {len(values)} scales, {values.min():.3g} to {values.max():.3g}"
        for name, values in medians.items()
    ]
    numbers = {f"{name}, share": float(np.mean(values >= reached)) for name, values in medians.items()}
    numbers |= {f"{name}, least": float(values.min()) for name, values in medians.items()}
    holds = all(values.min() >= reached for values in medians.values())
    return Claim(text, expected, "; ".join(parts), holds, numbers)


def _every_run(dataset: xarray.Dataset, reached: float) -> Claim:
    text = "it does so in every run"
    expected = f"S·η/2 after training at least {reached:g}, in all runs that did not diverge"
    shares = _shares(dataset, reached)
    if not shares:
        return unmeasured(text, expected, "every run diverged")
    lost = sum(int(runs.diverged(dataset, run).sum()) for run in runs.descents(dataset))
    stuck = sum(int((runs.outcomes(dataset, run) == Outcome.STATIONARY).sum()) for run in runs.descents(dataset))
    measured = f"{listed(shares, '.0%')} of the runs; {lost} diverged, {stuck} ended where ∇R = 0 at no minimum"
    return Claim(text, expected, measured, min(shares.values()) == 1, {**shares, "diverged": lost, "stationary": stuck})


def _larger_rates(dataset: xarray.Dataset, reached: float) -> Claim:
    text = "the larger the learning rate, the more runs get there: the lower 2/η, the sooner S is there"
    expected = f"share of the runs with S·η/2 at least {reached:g} rises with η"
    shares = _shares(dataset, reached)
    if len(shares) < 2:
        return unmeasured(text, expected, "fewer than two learning rates")
    return Claim(text, expected, listed(shares, ".0%"), bool(np.all(np.diff(list(shares.values())) > 0)), shares)


def _fits_noise(dataset: xarray.Dataset, *, part: float = 0.1) -> Claim:
    """Return the claim that the network fits the noise: its risk is below a `part` of that of the best linear one.

    The paper gives no number; the tenth is flowsim's.
    """
    text = "the network fits the noise, in which the paper suspects the reason"
    expected = f"median risk after training below {part:g} of that of the best linear regressor, at every scale"
    best = dataset["minimal_risk"]
    ratios = {run.name: median(runs.final(dataset, run, "risk")) / best for run in runs.descents(dataset)}
    largest = {name: float(values.max()) for name, values in ratios.items() if values.notnull().any()}
    if not largest:
        return unmeasured(text, expected, "every run diverged")
    return Claim(text, expected, f"at most {listed(largest)}", max(largest.values()) < part, largest)


def _shares(dataset: xarray.Dataset, reached: float) -> dict[str, float]:
    """Return for each learning rate the share of the runs that end at 2/η, of those that did not diverge."""
    ends = {run.name: over_edge(dataset, run) for run in runs.descents(dataset)}
    kept = {name: values.values[values.notnull().values] for name, values in ends.items()}
    return {name: float(np.mean(values >= reached)) for name, values in kept.items() if len(values)}
