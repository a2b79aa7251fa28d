"""The numbers of a sweep: as rows, as a table for the terminal, as a summary for a file, and as warnings."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import xarray
from rich.table import Table

from ...columns import CriticalStatus, Run
from ...formatting import finite_or_none, format_number, with_entries
from ...formatting.terminal import empty_table
from ...tables.probes import plain, probe_names, table_of_ends
from ..panels import subsample
from . import runs
from .intervals import median

_MEDIANS = "Medians over the runs that did not diverge; of GF, over its limits and the ends that were asked for"


def sweep_rows(dataset: xarray.Dataset) -> list[dict[str, Any]]:
    """Return the numbers of every combination of the grid and every run, the flow first.

    Each row holds the values of the grid by name, `method`, `learning_rate` (`None` for the flow), `runs` (asked for
    and not failed), `converged`, `settled` (converged, or at rest where rounding holds it), `as_asked` and `diverged`
    (shares of the runs), `progress`, the median of the squared distance, or of the excess risk or the risk where that
    is what is known, `sharpness` (median), `over_threshold` (that over 2/η, or over the edge of stability in its place)
    and `over_lower_bound`; `probes` holds what a scenario's own probes measured at the end. Medians are over the runs
    that did not diverge, of the flow over its limits.
    """
    grid = runs.grid(dataset)
    known = [(run, _ends_of(dataset, run), _probed(dataset, run)) for run in runs.runs_of(dataset)]
    rows = []
    for index in np.ndindex(*(dataset.sizes[name] for name in grid)):
        values = {name: dataset[name].values[place].item() for name, place in zip(grid, index, strict=True)}
        for run, ends, probed in known:
            numbers = {name: column[index].item() for name, column in ends.items()}
            of_run = {"method": run.name, "learning_rate": run.learning_rate, **numbers}
            rows.append({**values, **of_run, "probes": {name: column[index] for name, column in probed.items()}})
    return rows


def _ends_of(dataset: xarray.Dataset, run: Run) -> dict[str, np.ndarray]:
    """Return how many runs there were of a run, and the shares and medians of `sweep_rows`, each over the grid."""
    asked = runs.asked(dataset, run)
    count = asked.sum(runs.REPETITION)
    ended = {
        "converged": runs.converged(dataset, run),
        "settled": runs.settled(dataset, run),
        "as_asked": runs.as_asked(dataset, run),
        "diverged": runs.diverged(dataset, run),
    }
    sharpness = median(runs.final(dataset, run, "sharpness"))
    lower = dataset.get("sharpness_lower_bound", xarray.DataArray(math.nan))
    found = {
        "runs": count,
        **{name: (which & asked).sum(runs.REPETITION) / count.where(count > 0) for name, which in ended.items()},
        "progress": median(runs.final(dataset, run, runs.progress_measure(dataset))),
        "sharpness": sharpness,
        "over_threshold": sharpness / (run.threshold if run.learning_rate else math.nan),
        "over_lower_bound": sharpness / lower.where(lower > 0),
    }
    return {name: values.transpose(*runs.grid(dataset)).values for name, values in found.items()}


def _probed(dataset: xarray.Dataset, run: Run) -> dict[str, np.ndarray]:
    """Return what every probe measured at the end of a run, over the grid and the axes of the probe: medians."""
    ends = {name: runs.final(dataset, run, name) for name in probe_names(dataset)}
    return {name: median(values).transpose(*runs.grid(dataset), ...).values for name, values in ends.items()}


def sweep_table(dataset: xarray.Dataset, title: str) -> Table:
    """Return the table for the terminal, of at most 24 rows: a choice of learning rates and combinations of the grid.

    Both are spread evenly over all there are, which the summary holds.

    Args:
        dataset: The data set of the sweep.
        title: What stands above it.

    Returns:
        The table.
    """
    return sweep_tables(dataset, title)[0]


def _table_of(dataset: xarray.Dataset, title: str, shown: list[dict[str, Any]], every: int) -> Table:
    names, measure = runs.grid(dataset), runs.progress_measure(dataset)
    of_descent = all(run.has_edge_of_descent for run in runs.others(dataset))
    three, four = partial(format_number, digits=3), partial(format_number, digits=4)
    columns = (
        *((name.replace("_", " "), name, _shown) for name in names),
        ("", "method", str),
        ("runs", "runs", str),
        ("settled", "settled", _percent),
        ("stopped\nas asked", "as_asked", _percent),
        ("diverged", "diverged", _percent),
        (measure.replace("_", "\n"), "progress", three),
        ("S", "sharpness", four),
        ("S /\n(2/η)" if of_descent else "S /\nedge", "over_threshold", three),
        ("S /\nlower\nbound", "over_lower_bound", three),
    )
    table = empty_table(title, _remarks(dataset, len(shown), every))
    columns = with_entries(columns, shown)
    for header, _, _ in columns:
        table.add_column(header, justify="right" if header else "left", no_wrap=True)
    for row in shown:
        table.add_row(*(form(row[key]) for _, key, form in columns), end_section=row["last"])
    return table


def sweep_tables(dataset: xarray.Dataset, title: str) -> tuple[Table, ...]:
    """Return all tables for the terminal: that of the runs, and that of a scenario's own probes where it has some."""
    every = sweep_rows(dataset)
    shown = _chosen(every, max(1, len(runs.runs_of(dataset))))
    first = _table_of(dataset, title, shown, len(every))
    return (first, _probes_table(dataset, title, shown, len(every))) if probe_names(dataset) else (first,)


def _probes_table(dataset: xarray.Dataset, title: str, shown: list[dict[str, Any]], every: int) -> Table:
    """Return the table of what probes measured at the end, with the rows of the other table."""
    names, probes = runs.grid(dataset), probe_names(dataset)
    rows = [([*(_shown(row[name]) for name in names), row["method"]], row["probes"]) for row in shown]
    places = [*(name.replace("_", " ") for name in names), ""]
    return table_of_ends(title, places, rows, probes, dataset, _about_rows(len(shown), every))


def _chosen(
    every: list[dict[str, Any]], count: int, *, most_rows: int = 24, least_combinations: int = 4
) -> list[dict[str, Any]]:
    """Return the rows to print, each with `last`: whether it is the last of its combination of the grid."""
    if not every:
        return []
    combinations = [every[start : start + count] for start in range(0, len(every), count)]
    most = max(min(len(combinations), least_combinations), most_rows // count)
    of_each = most_rows // min(most, len(combinations))
    chosen = [subsample(group, of_each) for group in subsample(combinations, most)]
    return [{**row, "last": row is group[-1]} for group in chosen for row in group]


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.0%}"


def _shown(value: Any) -> str:
    return format_number(value, 4) if isinstance(value, float) else str(value)


def _about_rows(shown: int, every: int) -> list[str]:
    if not every:
        return ["Neither the flow nor a learning rate was asked for: no run to tell of"]
    return [_MEDIANS] + ([f"{shown} of {every} rows; all are in summary.json"] if shown < every else [])


def _remarks(dataset: xarray.Dataset, shown: int, every: int) -> list[str]:
    remarks = _about_rows(shown, every)
    if "critical_learning_rate_lower" in dataset:
        rates = runs.critical_rates(dataset)
        named = {
            "Critical learning rate, the largest that reaches the minimum from an initialization": rates,
            "Critical learning rate over 1/(La‖w*‖^(2−2/L))": rates * dataset["sharpness_lower_bound"] / 2,
        }
        for name, values in named.items():
            if len(known := values.values[np.isfinite(values.values)]):
                low, middle, high = (format_number(value, 3) for value in np.quantile(known, [0, 0.5, 1]).tolist())
                remarks.append(f"{name}: median {middle}, from {low} to {high}")
    return remarks


def sweep_summary(dataset: xarray.Dataset) -> dict[str, Any]:
    """Return all rows in the types of JSON, and the critical learning rates where they were searched for.

    For every combination of the grid `critical` holds the median, least and most critical learning rate of its
    initializations, the `ratio` of the median to 1/(La‖w*‖^(2−2/L)), and how many searches ended with which `status`.
    """
    rows: list[dict[str, Any]] = [
        {name: finite_or_none(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in sweep_rows(dataset)
    ]
    for row in rows:
        if probes := row.pop("probes"):
            row["probes"] = plain(probes)
    summary: dict[str, Any] = {
        "grid": {name: dataset[name].values.tolist() for name in runs.grid(dataset)},
        "progress": runs.progress_measure(dataset),
        "rows": rows,
    }
    if "critical_learning_rate_lower" in dataset:
        summary["critical"] = [_critical(values, part) for values, part in runs.cells(dataset, runs.grid(dataset))]
    return summary


def _critical(values: dict[str, Any], part: xarray.Dataset) -> dict[str, Any]:
    found = runs.critical_rates(part)
    middle = median(found).item()
    predicted = 2 / part["sharpness_lower_bound"].item()
    statuses = runs.critical_statuses(part)
    return {
        **values,
        "status": {status.name: count for status, count in statuses.items()},
        "median": finite_or_none(middle),
        "least": finite_or_none(found.min().item()),
        "most": finite_or_none(found.max().item()),
        "one_over_La": finite_or_none(predicted),
        "ratio": finite_or_none(middle / predicted),
    }


def warnings_of_sweep(dataset: xarray.Dataset, *, most: int = 10) -> Iterator[str]:
    """Yield what a sweep lacks.

    That is cells that failed, flows that did not reach their limit, and critical learning rates that are unknown.
    """
    failures = runs.failures(dataset)
    for failure in failures[:most]:
        yield f"failed: {failure['cell']}: {failure['message']}"
    if (more := len(failures) - most) > 0:
        yield f"failed: {more} more, which are in summary.json"
    if unconverged := runs.unconverged(dataset):
        yield f"{unconverged} flows did not reach their limit"
    statuses = runs.critical_statuses(dataset)
    for status, count in statuses.items():
        if status is not CriticalStatus.DETERMINED:
            initializations = f"{count} of {sum(statuses.values())} initializations"
            yield f"no critical learning rate is determined from {initializations}: {status.meaning}"
