"""Which runs of a sweep a number is about: its grid, its dynamics, and the runs that came to an end."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray

from ...columns import FAILED, FLOW as FLOW, NOT_ASKED, RUN, CriticalStatus, Run, place_of, runs_of as runs_of
from ...dynamics import Outcome

REPETITION = "repetition"
_AS_ASKED = [outcome for outcome in Outcome if outcome.as_asked]
_SETTLED = [outcome for outcome in Outcome if outcome.settled]


def grid(dataset: xarray.Dataset) -> tuple[str, ...]:
    """Return the names of the dimensions that the sweep went over, in its order."""
    return tuple(str(name) for name in dataset["initial_risk"].dims if name != REPETITION)


def cells(dataset: xarray.Dataset, names: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], xarray.Dataset]]:
    """Yield every combination of the values of dimensions `names`, with the part of the data set that belongs to it."""
    sizes = [dataset.sizes[name] for name in names]
    for index in np.ndindex(*sizes):
        part = dataset.isel(dict(zip(names, index, strict=True)))
        yield {name: part[name].item() for name in names}, part


def flows(dataset: xarray.Dataset) -> tuple[Run, ...]:
    """Return the gradient flow, where the sweep has it."""
    return tuple(run for run in runs_of(dataset) if run.is_flow)


def descents(dataset: xarray.Dataset) -> tuple[Run, ...]:
    """Return gradient descent with every learning rate of the sweep, from the smallest to the largest."""
    return tuple(run for run in runs_of(dataset) if run.is_descent)


def others(dataset: xarray.Dataset) -> tuple[Run, ...]:
    """Return every run but the gradient flow: gradient descent, and other dynamics."""
    return tuple(run for run in runs_of(dataset) if not run.is_flow)


def outcomes(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Return the outcome of `run` from every start, `NOT_ASKED` or `FAILED` where there is none."""
    return _of(dataset, run, "outcome")


def asked(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Tell of every start whether `run` was asked for and did not fail."""
    return ~outcomes(dataset, run).isin([NOT_ASKED, FAILED])


def diverged(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Tell of every start whether `run` diverged."""
    return outcomes(dataset, run) == Outcome.DIVERGED


def settled(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Tell of every start whether `run` came to stand still: at its limit, or where a step changes nothing."""
    return outcomes(dataset, run).isin(_SETTLED)


def converged(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Tell of every start whether `run` reached its limit."""
    return outcomes(dataset, run) == Outcome.CONVERGED


def as_asked(dataset: xarray.Dataset, run: Run) -> xarray.DataArray:
    """Tell of every start whether `run` stopped where it was told to, short of its limit."""
    return outcomes(dataset, run).isin(_AS_ASKED)


def unconverged(dataset: xarray.Dataset) -> int:
    """Return the number of flows that reached neither their limit nor what they were to stop at.

    Those that could not be computed are failures.
    """
    fine = [*(outcome for outcome in Outcome if outcome.as_expected), NOT_ASKED, FAILED]
    return sum(int((~outcomes(dataset, run).isin(fine)).sum()) for run in flows(dataset))


def failures(dataset: xarray.Dataset) -> list[dict[str, str]]:
    """Return the cells that could not be computed, each with its coordinates and what happened."""
    return json.loads(dataset.attrs.get("failures", "[]"))


def final(dataset: xarray.Dataset, run: Run, quantity: str) -> xarray.DataArray:
    """Return `quantity` at the end of `run` from every start: at the limit of the flow, after training for others.

    It is NaN for runs that diverged or were not asked for, and for flows that came neither to rest nor to what they
    were to stop at.
    """
    counted = settled(dataset, run) | as_asked(dataset, run) if run.is_flow else ~diverged(dataset, run)
    return _of(dataset, run, name_at_end(dataset, quantity)).where(counted & asked(dataset, run))


def name_at_end(dataset: xarray.Dataset, quantity: str) -> str:
    """Return under which name a quantity at the end is stored: one of the whole run, as its steps, has no prefix."""
    return f"final_{quantity}" if f"final_{quantity}" in dataset else quantity


def knows(dataset: xarray.Dataset, quantity: str) -> bool:
    """Tell whether `quantity` is a number at the start of any run."""
    return f"initial_{quantity}" in dataset and bool(np.isfinite(dataset[f"initial_{quantity}"]).any())


def critical_rates(dataset: xarray.Dataset) -> xarray.DataArray:
    """Return the critical learning rate of every initialization, the geometric middle of its bracket, repetitions last.

    It is NaN where the search did not determine it.
    """
    product = dataset["critical_learning_rate_lower"] * dataset["critical_learning_rate_upper"]
    return (product**0.5).transpose(..., REPETITION)


def critical_statuses(dataset: xarray.Dataset) -> dict[CriticalStatus, int]:
    """Return from how many initializations the search for a critical learning rate ended in each way that occurred."""
    codes = dataset["critical_status"].values if "critical_status" in dataset else np.empty(0)
    return {status: count for status in CriticalStatus if (count := int((codes == status).sum()))}


def progress_measure(dataset: xarray.Dataset) -> str:
    """Return the quantity that measures progress: the squared distance, else the excess risk, else the risk.

    Where several regressors minimize the risk, the distance to one of them does not measure progress.
    """
    measures = ("squared_distance", "excess_risk") if has_unique_optimum(dataset) else ("excess_risk",)
    return next((quantity for quantity in measures if knows(dataset, quantity)), "risk")


def has_unique_optimum(dataset: xarray.Dataset) -> bool:
    """Tell whether one regressor alone minimizes the risk at every point of the grid, as far as that is stored."""
    return "covariance_nullity" not in dataset or not dataset["covariance_nullity"].any()


def scenario(dataset: xarray.Dataset) -> dict[str, Any]:
    """Return the scenario of the sweep as it stands in the attributes."""
    return json.loads(dataset.attrs.get("scenario", "{}"))


def _of(dataset: xarray.Dataset, run: Run, quantity: str) -> xarray.DataArray:
    return dataset[quantity].isel({RUN: place_of(dataset, run)}, drop=True)
