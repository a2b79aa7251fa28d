"""What a data set of results has to hold, so that what is drawn and printed of it can rely on that."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dynamics import Outcome
from .quantities import MEASURES, NOT_ASKED
from .runs import DYNAMICS, LEARNING_RATE, RUN
from .store import SWEEP, THEORY, TRAJECTORIES
from .theory_dataset import theory_from_dataset

if TYPE_CHECKING:
    import xarray

_BOUNDS = ("sharpness_lower_bound", "sharpness_upper_bound", "critical_learning_rate")


def what_is_wrong(file: str, dataset: "xarray.Dataset") -> str | None:
    """Return in words why the data set in `file` is none that flowsim wrote, `None` where nothing speaks against it."""
    faults = {TRAJECTORIES: _of_trajectories, SWEEP: _of_sweep, THEORY: _of_theory}[file]
    return next(faults(dataset), None)


def _of_trajectories(dataset: "xarray.Dataset") -> Iterator[str]:
    yield from _of_runs(dataset)
    yield from _of_numbers(dataset, (RUN, "record"), ("time", *MEASURES))
    yield from _of_numbers(dataset, (RUN,), ("records", "outcome", "steps", "end_time"))
    records, most = dataset["records"].values, dataset.sizes["record"]
    if np.any((records < 1) | (records > most) | (records != np.round(records))):
        yield f"records is {records.tolist()} where each run has from 1 to {most}"
    yield from _of_outcomes(dataset["outcome"].values, {int(outcome) for outcome in Outcome})
    for name in _BOUNDS:
        if name in dataset.attrs and not _is_positive(dataset.attrs[name]):
            yield f"{name} is {dataset.attrs[name]!r}, which is no positive number"


def _of_sweep(dataset: "xarray.Dataset") -> Iterator[str]:
    yield from _of_runs(dataset)
    if "initial_risk" not in dataset or "repetition" not in dataset["initial_risk"].dims:
        yield "there is no initial_risk over repetitions"
    yield from _of_numbers(dataset, (*map(str, dataset["initial_risk"].dims), RUN), ("outcome", "final_risk"))
    yield from _of_outcomes(dataset["outcome"].values, {NOT_ASKED, *(int(outcome) for outcome in Outcome)})
    try:
        failures = json.loads(dataset.attrs.get("failures", "[]"))
    except (TypeError, ValueError, RecursionError):
        failures = None
    if not isinstance(failures, list) or not all(isinstance(cell, dict) for cell in failures):
        yield "failures is no list of cells"


def _of_theory(dataset: "xarray.Dataset") -> Iterator[str]:
    try:
        theory_from_dataset(dataset)
    except Exception as error:  # whatever is missing, or of another kind
        yield f"{type(error).__name__}: {error}".splitlines()[0]


def _of_runs(dataset: "xarray.Dataset") -> Iterator[str]:
    if not dataset.sizes.get(RUN):
        yield "there are no runs"
    for name in (DYNAMICS, LEARNING_RATE):
        if name not in dataset.variables or dataset[name].dims != (RUN,):
            yield f"there is no {name} of each run"
    for name in dataset[DYNAMICS].values:
        if not isinstance(name, str) or not name.isprintable():
            yield f"a dynamics is called {name!r}"
    rates = dataset[LEARNING_RATE].values
    if rates.dtype.kind not in "iuf" or not np.all(np.isnan(rates) | ((rates > 0) & np.isfinite(rates))):
        yield f"learning_rate is {rates.tolist()} where each is a positive number, or NaN for a flow"


def _of_numbers(dataset: "xarray.Dataset", dims: tuple[str, ...], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name not in dataset.variables:
            yield f"there is no {name}"
        found = dataset[name]
        if set(found.dims) != set(dims) or found.dtype.kind not in "iuf":
            yield f"{name} is {found.dtype} over {found.dims} where it is numbers over {dims}"
        if not found.size:
            yield f"{name} is empty"


def _of_outcomes(codes: np.ndarray, known: set[int]) -> Iterator[str]:
    if codes.dtype.kind != "i" or not set(codes.ravel().tolist()) <= known:
        yield f"outcome is {codes.ravel().tolist()}, where {sorted(known)} have a meaning"


def _is_positive(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf" and 0 < float(value) < np.inf
