"""Whether a data set that was read keeps to the schema of columns of runs."""

import json
import reprlib
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import (
    BOUNDS,
    CRITICAL,
    CURVATURE,
    DYNAMICS,
    FAILED,
    LEARNING_RATE,
    MEASURES,
    NOT_ASKED,
    RECORD,
    RUN,
    THRESHOLD,
)
from ..dynamics import Outcome

if TYPE_CHECKING:
    import xarray


def faults_of_texts(dataset: "xarray.Dataset", *, longest: int = 10_000) -> Iterator[str]:
    """Yield in words what speaks against the names, texts and attributes of any data set that flowsim wrote.

    They are printed and drawn, which takes any time for those that are `longest` and more, and some hold JSON.
    """
    for name, variable in dataset.variables.items():
        what = reprlib.repr(name)
        texts = {key: variable.attrs[key] for key in ("long_name", "units", "symbol", "drawn") if key in variable.attrs}
        if not isinstance(name, str) or not name.isprintable() or len(name) > longest:
            yield f"a variable is called {what}"
        for key, text in texts.items():
            if not isinstance(text, str) or len(text) > longest:
                yield f"{key} of {what} is {reprlib.repr(text)}, where it is a text of at most {longest} letters"
        brackets = ((letter == "{") - (letter == "}") for letter in texts.get("symbol", ""))
        if max(accumulate(brackets), default=0) > 20:  # Matplotlib calls itself some times for each
            yield f"the symbol of {what} has more than 20 brackets in each other"
        if "symbol" in texts and "long_name" not in texts:
            yield f"{what} has a symbol, and no long_name"
        if not isinstance(variable.attrs.get("logarithmic", 1), int | np.integer):
            yield f"logarithmic of {what} is {reprlib.repr(variable.attrs['logarithmic'])}, where it is 0 or 1"
        rows = _from_json(variable.attrs.get("rows", "[]"))
        if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
            yield f"rows of {what} is no list of names"
        if variable.dtype.kind in "OU" and any(len(str(text)) > longest for text in variable.values.flat):
            yield f"{what} has a text of more than {longest} letters"
    attrs = {
        name: _from_json(dataset.attrs[name]) for name in ("failures", "scenario", "sweep") if name in dataset.attrs
    }
    failures, scenario = attrs.get("failures", []), attrs.get("scenario", {})
    if not isinstance(failures, list) or not all(
        isinstance(cell, dict) and all(isinstance(cell.get(key), str) for key in ("cell", "message"))
        for cell in failures
    ):
        yield "failures is no list of cells with messages"
    if not isinstance(scenario, dict):
        yield "scenario is no object of JSON"
    sweep = attrs.get("sweep", {"over": {}, "repetitions": 1})
    if not isinstance(sweep, dict) or not isinstance(sweep.get("repetitions"), int):
        yield "sweep has no number of repetitions"
    elif not isinstance(over := sweep.get("over"), dict) or not all(isinstance(axis, list) for axis in over.values()):
        yield "sweep has no lists of values that it goes through"


def _from_json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def faults_of_trajectories(dataset: "xarray.Dataset") -> Iterator[str]:
    """Yield in words what speaks against a data set being one of trajectories that flowsim wrote."""
    yield from _faults_of_runs(dataset)
    yield from _faults_of_numbers(dataset, (RUN, RECORD), ("time", *MEASURES))
    counts = "records", "steps", "rejected_steps", "products"
    optional = [name for name in ("gradients", "loosened", "order", "crossing_time") if name in dataset.variables]
    yield from _faults_of_numbers(dataset, (RUN,), (*counts, *optional, "outcome", "end_time"))
    yield from _faults_of_numbers(dataset, (RUN,), ("distance_to_flow", "distance_time"))
    records, most = dataset["records"].values, dataset.sizes[RECORD]
    if np.any((records < 1) | (records > most) | (records != np.round(records))):
        yield f"records is {records.tolist()} where each run has from 1 to {most}"
    for name in counts:
        if not np.all(np.isfinite(dataset[name].values)):
            yield f"{name} is {dataset[name].values.tolist()} where each is a number"
    if "gradients" in optional and np.any(np.isinf(dataset["gradients"].values)):
        yield f"gradients is {dataset['gradients'].values.tolist()} where each is a number, or NaN"
    if "solver" not in dataset.variables or dataset["solver"].dims != (RUN,):
        yield "there is no solver of each run"
    yield from _faults_of_outcomes(dataset["outcome"].values, {int(outcome) for outcome in Outcome})
    for name in (*BOUNDS, CRITICAL):
        value = dataset.attrs.get(name, 1.0)
        if np.ndim(value) or np.asarray(value).dtype.kind not in "iuf" or not 0 < float(value) < np.inf:
            yield f"{name} is {value!r}, which is no positive number"


def faults_of_sweep(dataset: "xarray.Dataset") -> Iterator[str]:
    """Yield in words what speaks against a data set being one of a sweep that flowsim wrote."""
    if "initial_risk" not in dataset or "repetition" not in dataset["initial_risk"].dims:
        yield "there is no initial_risk over repetitions"
    if RUN in dataset.dims:  # a sweep of nothing but starts, or of critical learning rates, has none
        yield from _faults_of_runs(dataset)
        dims = *map(str, dataset["initial_risk"].dims), RUN
        yield from _faults_of_numbers(dataset, dims, ("outcome", "final_risk"))
        yield from _faults_of_outcomes(dataset["outcome"].values, {FAILED, NOT_ASKED, *map(int, Outcome)})


def _faults_of_runs(dataset: "xarray.Dataset") -> Iterator[str]:
    if not dataset.sizes.get(RUN):
        yield "there are no runs"
    for name in (DYNAMICS, LEARNING_RATE):
        if name not in dataset.variables or dataset[name].dims != (RUN,):
            yield f"there is no {name} of each run"
    for name in dataset[DYNAMICS].values:
        if not isinstance(name, str) or not name.isprintable():
            yield f"a dynamics is called {name!r}"
    for name in dataset[CURVATURE].values if CURVATURE in dataset.variables else ():
        if not isinstance(name, str) or not name.isprintable():
            yield f"a curvature is called {name!r}"
    rates = dataset[LEARNING_RATE].values
    if rates.dtype.kind not in "iuf" or not np.all(np.isnan(rates) | ((rates > 0) & np.isfinite(rates))):
        yield f"learning_rate is {rates.tolist()} where each is a positive number, or NaN for a flow"
    if THRESHOLD in dataset.variables:
        yield from _faults_of_numbers(dataset, (RUN,), (THRESHOLD,))
        if CURVATURE not in dataset.variables or dataset[CURVATURE].dims != (RUN,):
            yield f"there is no {CURVATURE} of each run"


def _faults_of_numbers(dataset: "xarray.Dataset", dims: tuple[str, ...], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name not in dataset.variables:
            yield f"there is no {name}"
        found = dataset[name]
        if set(found.dims) != set(dims) or found.dtype.kind not in "iuf":
            yield f"{name} is {found.dtype} over {found.dims} where it is numbers over {dims}"
        if not found.size:
            yield f"{name} is empty"


def _faults_of_outcomes(codes: np.ndarray, known: set[int]) -> Iterator[str]:
    if codes.dtype.kind != "i" or not set(codes.ravel().tolist()) <= known:
        yield f"outcome is {codes.ravel().tolist()}, where {sorted(known)} have a meaning"
