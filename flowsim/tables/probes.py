"""What the probes of a scenario measured at the ends of its runs: the columns of a table, and numbers for a file."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from ..columns import MEASURES, RECORD, LabelledArrays, RecordedRun
from ..comparison.centres import COLUMNS, DISTANCE
from ..comparison.measure import COLUMNS as LIMITS
from ..formatting import finite_or_none, format_number
from ..formatting.terminal import empty_table

Ends = dict[str, np.ndarray]
_FINAL = "final_"
ROWS = {"layers": "layer", "matrices": "matrix"}
"""What a row of a map over time is, by how a label says that it is drawn."""
_LIMITS = tuple(label.name for label in LIMITS)


def probe_names(dataset: LabelledArrays) -> tuple[str, ...]:
    """Return the names of the probes that were recorded beside what every run records.

    Of a sweep, those of which a number is known at the end of any run. Left out is what no table shows by itself.
    """
    probes = [name for name in map(str, dataset) if "symbol" in dataset[name].attrs and name not in _LIMITS]
    names = [name for name in probes if dataset[name].attrs.get("drawn") != "nothing"]
    if RECORD not in dataset.sizes:
        ends = {name.removeprefix(_FINAL): dataset[name].values for name in names if name.startswith(_FINAL)}
        names = [name for name, values in ends.items() if values.dtype.kind != "f" or not np.isnan(values).all()]
    return tuple(name for name in names if name not in MEASURES)


def own_probes(dataset: LabelledArrays) -> tuple[str, ...]:
    """Return the names of the probes that a user asked for: without what models and limits record beside them."""
    taken = {label.name for label in COLUMNS} if DISTANCE.name in dataset else set()
    return tuple(name for name in probe_names(dataset) if name not in taken)


def overlaid_probes(datasets: Iterable[LabelledArrays]) -> tuple[str, ...]:
    """Return the probes of several data sets that are drawn over each other: those of which no map is drawn."""
    found = ((name, dataset[name].attrs) for dataset in datasets for name in own_probes(dataset))
    return tuple(dict.fromkeys(name for name, attributes in found if attributes.get("drawn") not in ROWS))


def file_name(probe: str) -> str:
    """Return the name of the figure of a probe."""
    return re.sub(r"\W+", "_", probe)


def ends_of(run: RecordedRun, names: Sequence[str]) -> Ends:
    """Return what the probes measured at the end of a run."""
    return {name: run.along(name)[-1] for name in names}


def table_of_ends(
    title: str,
    places: Sequence[str],
    rows: Sequence[tuple[list[str], Ends]],
    names: Sequence[str],
    dataset: LabelledArrays,
    remarks: Sequence[str] = (),
) -> Table:
    """Return a table with a row for each of `rows`: where it belongs, under `places`, and what probes measured."""
    meanings = []
    for name in names:
        meaning = str(dataset[name if name in dataset else _FINAL + name].attrs["long_name"])
        meanings.append(f"{name}: {meaning.removesuffix(', at the end of the run')}")
    table = empty_table(f"{title}: probes at the end" if title else "probes at the end", [*meanings, *remarks], gap=2)
    for place in places:
        table.add_column(place, no_wrap=True)
    for name in names:
        table.add_column("\n".join(name.split("_")), justify="right", no_wrap=True)
    for where, ends in rows:
        table.add_row(*where, *(_shown(ends[name]) for name in names))
    return table


def plain(ends: Ends) -> dict[str, Any]:
    """Return the numbers in the types of JSON, lists of them for arrays; `None` for what is not finite."""
    return {name: np.vectorize(finite_or_none, otypes=[object])(values).tolist() for name, values in ends.items()}


def _shown(values: np.ndarray, most: int = 4) -> str:
    """Return the numbers of an array, or the least and the largest where there are more than `most`."""
    numbers = np.ravel(values)
    if len(numbers) > most:
        ends = (format_number(float(number), 3) for number in (np.min(numbers), np.max(numbers)))
        return " … ".join(ends) + f" ({len(numbers)})"
    return " ".join(format_number(float(number), 3) for number in numbers)
