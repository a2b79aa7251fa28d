"""What Appendix C says of nonlinear networks on noisy data, where it shows no plot, and what the sweep finds."""

import numpy as np
import xarray

from ...dynamics import Outcome
from ...report.sweeps import runs
from ...report.sweeps.intervals import median
from ...results.runs import Run
from ...theory import Claim, listed, unmeasured

# At the edge S swings about 2/η from step to step, by a tenth of it in most runs.
_REACHED = 0.9
_OVERFITS = 0.1


def over_edge(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Return S·η/2 after training, over (scale, repetition), NaN for runs that diverged."""
    return runs.final(dataset, run, "sharpness") / run.threshold


def noisy_claims(dataset: xarray.Dataset) -> list[Claim]:
    """Return the claims about all descents of a sweep over the scale."""
    return [_every_cell(dataset), _every_run(dataset), _larger_rates(dataset), _fits_noise(dataset)]


def _every_cell(dataset: xarray.Dataset) -> Claim:
    text = "the sharpness reaches 2/η, for every learning rate and scale"
    expected = f"median of S·η/2 after training at least {_REACHED:g} at every scale"
    medians = {run.name: median(over_edge(dataset, run)).values for run in runs.descents(dataset)}
    medians = {name: values[np.isfinite(values)] for name, values in medians.items()}
    medians = {name: values for name, values in medians.items() if len(values)}
    if not medians:
        return unmeasured(text, expected, "every run diverged")
    parts = [
        f"{name}: {(values >= _REACHED).sum()} of {len(values)} scales, {values.min():.3g} to {values.max():.3g}"
        for name, values in medians.items()
    ]
    numbers = {f"{name}, share": float(np.mean(values >= _REACHED)) for name, values in medians.items()}
    numbers |= {f"{name}, least": float(values.min()) for name, values in medians.items()}
    holds = all(values.min() >= _REACHED for values in medians.values())
    return Claim(text, expected, "; ".join(parts), holds, numbers)


def _every_run(dataset: xarray.Dataset) -> Claim:
    text = "it does so in every run"
    expected = f"S·η/2 after training at least {_REACHED:g}, in all runs that did not diverge"
    shares = _shares(dataset)
    if not shares:
        return unmeasured(text, expected, "every run diverged")
    lost = sum(int(runs.diverged(dataset, run).sum()) for run in runs.descents(dataset))
    stuck = sum(int((runs.outcomes(dataset, run) == Outcome.STATIONARY).sum()) for run in runs.descents(dataset))
    measured = f"{listed(shares, '.0%')} of the runs; {lost} diverged, {stuck} ended where ∇R = 0 at no minimum"
    return Claim(text, expected, measured, min(shares.values()) == 1, {**shares, "diverged": lost, "stationary": stuck})


def _larger_rates(dataset: xarray.Dataset) -> Claim:
    text = "the larger the learning rate, the more runs get there: the lower 2/η, the sooner S is there"
    expected = f"share of the runs with S·η/2 at least {_REACHED:g} rises with η"
    shares = _shares(dataset)
    if len(shares) < 2:
        return unmeasured(text, expected, "fewer than two learning rates")
    return Claim(text, expected, listed(shares, ".0%"), bool(np.all(np.diff(list(shares.values())) > 0)), shares)


def _fits_noise(dataset: xarray.Dataset) -> Claim:
    text = "the network fits the noise, in which the paper suspects the reason"
    expected = f"median risk after training below {_OVERFITS:g} of that of the best linear regressor, at every scale"
    best = dataset["minimal_risk"]
    ratios = {run.name: median(runs.final(dataset, run, "risk")) / best for run in runs.descents(dataset)}
    largest = {name: float(values.max()) for name, values in ratios.items() if values.notnull().any()}
    if not largest:
        return unmeasured(text, expected, "every run diverged")
    return Claim(text, expected, f"at most {listed(largest)}", max(largest.values()) < _OVERFITS, largest)


def _shares(dataset: xarray.Dataset) -> dict[str, float]:
    """Return of every learning rate the share of the runs that end at 2/η, of those that did not diverge."""
    ends = {run.name: over_edge(dataset, run) for run in runs.descents(dataset)}
    kept = {name: values.values[values.notnull().values] for name, values in ends.items()}
    return {name: float(np.mean(values >= _REACHED)) for name, values in kept.items() if len(values)}
