"""Stored data sets as tables of pandas, one row for each thing that was measured."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from ..columns import BRANCH, DYNAMICS, LEARNING_RATE, RECORD, RUN, attributes
from ..theory import Statement
from .sweeps import runs

if TYPE_CHECKING:
    import pandas


def runs_frame(dataset: xarray.Dataset) -> "pandas.DataFrame":
    """Return a data set of trajectories with a row for each run and record: see `StoredRuns.to_dataframe`."""
    import pandas

    counts = dataset["records"].values
    rows = np.repeat(np.arange(len(counts)), counts), np.concatenate([np.arange(count) for count in counts])
    columns = {
        RUN: rows[0],
        DYNAMICS: dataset[DYNAMICS].values.astype(str)[rows[0]],
        LEARNING_RATE: dataset[LEARNING_RATE].values[rows[0]],
        RECORD: rows[1],
    }
    if BRANCH in dataset.coords:
        columns[BRANCH] = dataset[BRANCH].values[rows[0]]
    said = {name: dict(dataset[name].attrs) for name in (DYNAMICS, LEARNING_RATE, BRANCH) if name in columns}
    for name in dataset:
        if dataset[name].dims[:2] == (RUN, RECORD):
            for column, values in _split(str(name), dataset[name].values[rows]):
                columns[column], said[column] = values, dict(dataset[name].attrs)
    return _described(pandas.DataFrame(columns), said, dataset)


def sweep_frame(dataset: xarray.Dataset) -> "pandas.DataFrame":
    """Return a sweep with a row for each point, repetition and run: see `StoredSweep.to_dataframe`."""
    import pandas

    axes = (*runs.grid(dataset), runs.REPETITION, RUN)
    places = np.indices([dataset.sizes[name] for name in axes]).reshape(len(axes), -1)
    index = dict(zip(axes, places, strict=True))
    columns: dict[str, Any] = {name: _values(dataset, name)[index[name]] for name in axes[:-1]}
    columns |= {name: _values(dataset, name)[index[RUN]] for name in (DYNAMICS, LEARNING_RATE)}
    said = {name: dict(dataset[name].attrs) if name in dataset.coords else attributes(name) for name in columns}
    for name, variable in dataset.data_vars.items():
        own = [axis for axis in axes if axis in variable.dims]
        values = variable.transpose(*own, ...).values[tuple(index[axis] for axis in own)]
        rows = values if own else np.broadcast_to(values, (places.shape[1], *values.shape))
        for column, entries in _split(str(name), rows):
            columns[column], said[column] = entries, dict(variable.attrs)
    flags = attributes("outcome")
    names = dict(zip(flags["flag_values"].tolist(), flags["flag_meanings"].split(), strict=True))
    columns["outcome"] = np.array([names[code] for code in columns["outcome"].astype(int).tolist()])
    return _described(pandas.DataFrame(columns), said, dataset)


def statements_frame(
    found: Sequence[Statement], about: Sequence[Mapping[str, Any]] | None = None
) -> "pandas.DataFrame":
    """Return statements as a table of pandas.

    Args:
        found: The statements.
        about: What each is about, by name: columns that stand in front.

    Returns:
        A row for each statement: name, claim, sides, margin, verdict, note.
    """
    import pandas

    rows = [
        {
            **known,
            "name": one.name,
            "claim": one.claim,
            "smaller": _number(one.sides[0]),
            "larger": _number(one.sides[1]),
            "margin": _number(one.margin),
            "verdict": str(one.verdict),
            "unmet": one.unmet,
            "note": one.note,
            "source": one.source,
        }
        for one, known in zip(found, about or [{}] * len(found), strict=True)
    ]
    return pandas.DataFrame(rows)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _values(dataset: xarray.Dataset, name: str) -> np.ndarray:
    return dataset[name].values if name in dataset.coords else np.arange(dataset.sizes[name])


def _split(name: str, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a column for each number of an array: of `name`, with the places in the array behind it."""
    if rows.ndim == 1:
        yield name, rows
        return
    for place in np.ndindex(rows.shape[1:]):
        yield "_".join([name, *map(str, place)]), rows[(slice(None), *place)]


def _described(
    frame: "pandas.DataFrame", said: dict[str, dict[str, Any]], dataset: xarray.Dataset
) -> "pandas.DataFrame":
    """Return the table with the names and units of its columns, and what is known of the whole, in `attrs`."""
    words = {key: {name: str(of[key]) for name, of in said.items() if key in of} for key in ("long_name", "units")}
    frame.attrs.update(words | dataset.attrs)
    return frame
