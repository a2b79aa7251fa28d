"""Stored runs of several folders side by side: what differs between the scenarios, how the runs end, their curves."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from ..columns import BOUNDS, CRITICAL, RUN, read_runs
from ..formatting import finite_or_none
from ..formatting.html import as_html
from ..formatting.presentation import Shown
from ..formatting.terminal import empty_table, printable, utf8
from ..results import ResultFolder, Results, StoreError, open_results, refuse_obstacles
from ..results.reading import read_json
from ..results.store import FIGURES, PAGE, SCENARIO, SUMMARY, SWEEP, THEORY, TRAJECTORIES
from ..runtime.paths import user_path
from ..tables import ended_as_expected, remarks_of_runs, render_folders, rows, warnings_of_runs
from .figures import figures_of_folders, plot_folders
from .frame import runs_frame

if TYPE_CHECKING:
    import pandas

_KEY = "side_by_side"  # of a summary, by which a folder of ours is known
_OF_PROBLEM = ("data", "loss", "weight_decay")
_ABSENT = "–"  # of a key that a scenario does not have


@dataclass(frozen=True, repr=False, eq=False)
class SideBySide(Shown):
    """The runs from one initialization of several folders side by side.

    Printed, it is a table of the keys of the scenarios that differ, and one of the ends of all runs; so it is in a
    notebook. Nothing is computed.
    """

    results: Mapping[str, Results]
    """Those of the folders, by the names of the folders."""
    left_out: tuple[str, ...] = ()
    """Sentences about what of the folders is not put side by side."""

    def __repr__(self) -> str:
        counts = (f"{name}, {dataset.sizes[RUN]} runs" for name, dataset in self.datasets.items())
        return f"SideBySide({'; '.join(counts)})"

    @property
    def datasets(self) -> dict[str, xarray.Dataset]:
        """The data sets of runs by the names of the folders."""
        return {name: results.required("trajectories") for name, results in self.results.items()}

    @property
    def differences(self) -> dict[str, dict[str, Any]]:
        """The keys of the scenarios that are not the same everywhere, as "network.scale", and their values by folder.

        A scenario that does not have a key is not among its values, nor are results without a scenario.
        """
        return differences({name: results.scenario for name, results in self.results.items()})

    @property
    def remarks(self) -> list[str]:
        """Sentences about what has to be known of the folders to compare them."""
        without = [name for name, results in self.results.items() if not results.scenario]
        found = [f"{', '.join(without)}: no scenario is stored, so it is not known what differs"] if without else []
        problem = [key for key in self.differences if key.split(".")[0] in _OF_PROBLEM]
        if problem:
            found.append(f"The problems are not the same ({', '.join(problem)} differ): nor are their risks and minima")
        elif "seed" in self.differences:
            found.append("The seeds differ, and with them initial weights, and samples where they are drawn")
        versions = {str(results.environment.get("flowsim")) for results in self.results.values()}
        if len(versions - {"None"}) > 1:
            found.append(f"They were made by different versions of flowsim: {', '.join(sorted(versions))}")
        return [*found, *self.left_out]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What did not converge, or does not hold, of every folder, and the remarks."""
        said = [f"{name}: {words}" for name, dataset in self.datasets.items() for words in warnings_of_runs(dataset)]
        return (*said, *self.remarks)

    @property
    def complete(self) -> bool:
        """Whether all flows came to their limits and no statement fails."""
        return all(map(ended_as_expected, self.datasets.values()))

    def tables(self) -> Sequence[Table | Text]:
        """Return the table of the keys that differ, a column for each folder, and that of the ends, a row for each run.

        Where no key differs, a text says so.
        """
        shown = differences_table({name: results.scenario for name, results in self.results.items()})
        named = {printable(name): dataset for name, dataset in self.datasets.items()}
        own = [f"{name}: {said}" for name, dataset in named.items() for said in remarks_of_runs(read_runs(dataset))]
        remarks = [*own, *self.remarks]
        return [*([] if shown is None else [shown]), render_folders(named, "runs side by side", remarks)]

    def to_dataset(self) -> xarray.Dataset:
        """Return the labelled arrays of all runs over (run, record), of which `folder` is one more coordinate.

        The bounds of Theorem 2 and the critical learning rate, attributes of each folder, are arrays over run here.
        """
        return _joined(self.datasets)

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the records as a table of pandas, a row for each folder, run and record."""
        import pandas

        frames = {name: runs_frame(dataset) for name, dataset in self.datasets.items()}
        said = {key: {} for key in ("long_name", "units")}
        for name, frame in frames.items():
            frame.insert(0, "folder", name)
            for key, words in said.items():
                words.update(frame.attrs[key])
            frame.attrs.clear()  # what is of one folder
        joined = pandas.concat(frames.values(), ignore_index=True)
        joined.attrs.update(said)
        return joined

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name, the sharpness first, with the curves of all folders over each other."""
        return figures_of_folders(self.datasets)

    def plot(self, quantity: str, ax: Axes | None = None) -> Axes:
        """Draw one quantity or probe of all folders against time, and return the axes.

        Raises `ValueError`, with the names that are known, for a quantity that was not recorded.
        """
        return plot_folders(self.datasets, quantity, ax)

    def page(self) -> str:
        """Return the page as HTML. It is one file, which needs no network."""
        return self._page()

    def save(self, folder: str | Path) -> list[Path]:
        """Write page, summary and figures into `folder`, and return their paths.

        What an earlier call left there is replaced, as it can be made again, and other files stay. Raises `StoreError`
        where the folder holds something and no earlier call made it, and where it cannot be written.
        """
        folder = user_path(folder)
        refuse_foreign(folder)
        here = ResultFolder(folder, lambda: refuse_foreign(folder))
        figures = self.figures()
        runs = [{"folder": name, **_plain(row)} for name, dataset in self.datasets.items() for row in rows(dataset)]
        summary = {"folders": list(self.results), "differences": self.differences}
        summary |= {"runs": runs, "figures": list(figures)}
        with here.locked():
            paths = [here.write_summary({_KEY: summary})]
            paths += [path for name, figure in figures.items() for path in here.write_figure(name, figure)]
            return [*paths, here.write(PAGE, self._page(figures=list(figures), here=folder))]

    def _page(self, **links: Any) -> str:
        from .page import page_of_folders  # not above: it takes a moment to import

        said = {"tables": [as_html(self.tables())], "warnings": self.warnings, "complete": self.complete}
        return page_of_folders(self.results, **said, **links)


def side_by_side(*results: str | Path | Results) -> SideBySide:
    """Put the stored runs of two or more folders side by side.

    Sweeps and statements of the theory are left out, and named in `left_out`; so is a folder that holds nothing else.

    Args:
        *results: Paths of folders, or what `open_results` returns of them.

    Returns:
        The runs, which print as a table of what differs in the scenarios and one of all ends.

    Raises:
        StoreError: Where fewer than two folders hold runs from one initialization, for a folder that is given twice,
            and as `open_results` does.
        TypeError: For what is no folder.
    """
    if other := [one for one in results if not isinstance(one, str | os.PathLike | Results)]:
        raise TypeError(
            "flowsim.side_by_side takes folders of results, as flowsim.side_by_side('results/mine', 'results/other'), "
            f"got {type(other[0]).__name__}: save a comparison first, and write a star before a list of folders"
        )
    found = [one if isinstance(one, Results) else open_results(one) for one in results]
    refuse_repeated([one.folder for one in found])
    with_runs = [one for one in found if one.trajectories is not None]
    if len(with_runs) < 2:
        there = "; ".join(f"{one.folder} holds {_contents(one)}" for one in found) or "none was given"
        raise StoreError(f"two folders or more with runs from one initialization are put side by side: {there}")
    names = dict(zip((one.folder for one in found), names_of([one.folder for one in found]), strict=True))
    left_out = [
        f"{names[one.folder]}: its {what} not put side by side, and {verb} in its own report"
        for one in found
        for what, verb in _beside_runs(one)
    ]
    return SideBySide({names[one.folder]: one for one in with_runs}, tuple(left_out))


def differences(scenarios: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the keys that are not the same in all `scenarios`, as "network.scale", and their values by scenario.

    A scenario that does not have a key is not among its values; one that is empty is not known, and left out.
    """
    flat = {name: dict(_flattened(scenario)) for name, scenario in scenarios.items() if scenario}
    keys = list(dict.fromkeys(key for one in flat.values() for key in one))
    sections = list(dict.fromkeys(key.split(".")[0] for key in keys))
    different = {}
    for key in sorted(keys, key=lambda key: sections.index(key.split(".")[0])):  # those of one section together
        values = {name: one[key] for name, one in flat.items() if key in one}
        if len(values) < len(flat) or len(set(map(_as_yaml, values.values()))) > 1:
            different[key] = values
    return different


def differences_table(scenarios: Mapping[str, Mapping[str, Any]]) -> Table | Text | None:
    """Return the table of the keys that differ, a column for each scenario; a text where none does.

    `None` where fewer than two are known.
    """
    if sum(map(bool, scenarios.values())) < 2:
        return None
    different = differences(scenarios)
    if not different:
        return Text("the scenarios are the same")
    table = empty_table("what differs between the scenarios", [], gap=2)
    table.add_column("", no_wrap=True)
    for name in scenarios:
        table.add_column(printable(name))
    for key, values in different.items():
        table.add_row(printable(key), *(_as_yaml(values[name]) if name in values else _ABSENT for name in scenarios))
    return table


def _flattened(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _flattened(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _as_yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"))
    return printable(text.removesuffix("\n").removesuffix("\n...").strip())


def refuse_repeated(folders: Sequence[Path]) -> None:
    """Raise `StoreError` where one folder is given twice."""
    places: set[Path] = set()
    for folder in folders:
        if (place := folder.resolve()) in places:
            raise StoreError(f"{folder}: is given twice; give each folder once")
        places.add(place)


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return names of different folders: their own, with as many of those above as it takes to tell them apart."""
    parts = [Path(utf8(str(folder.resolve())).decode()).parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def is_side_by_side(folder: Path) -> bool:
    """Tell whether `folder` holds what `SideBySide.save` wrote, and no results of runs."""
    return bool(_stored(folder)) and not any((folder / name).exists() for name in _OTHERS)


def refuse_foreign(folder: Path) -> list[Path]:
    """Return the files in `folder` that `SideBySide.save` left; raise `StoreError` where it did not make the folder."""
    refuse_obstacles(folder)
    stored = _stored(folder)
    is_empty = not folder.is_dir() or all(path.name.startswith(".") for path in folder.iterdir())
    if not is_empty and not is_side_by_side(folder):
        raise StoreError(f"{folder}: holds something else than runs side by side; give another folder with --out")
    named = stored.get("figures")
    known = {name for name in named if isinstance(name, str)} if isinstance(named, list) else set()
    figures = [path for path in (folder / FIGURES).glob("*.*") if path.stem in known]
    return [path for path in (folder / SUMMARY, folder / PAGE, *figures) if path.exists()]


_OTHERS = (SCENARIO, TRAJECTORIES, SWEEP, THEORY)


def _stored(folder: Path) -> dict[str, Any]:
    """Return what the summary of an earlier call says, nothing where there is none."""
    try:
        stored = read_json(folder / SUMMARY).get(_KEY)
    except StoreError:
        return {}
    return stored if isinstance(stored, dict) else {}


def _beside_runs(results: Results) -> Iterator[tuple[str, str]]:
    if results.sweep is not None:
        yield "sweep is", "stands"
    if results.theory is not None:
        yield "statements of the theory are", "stand"


def _contents(results: Results) -> str:
    known = {"runs": results.trajectories, "a sweep": results.sweep, "statements of the theory": results.theory}
    return " and ".join(name for name, dataset in known.items() if dataset is not None)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if isinstance(value, str | int) else finite_or_none(value) for key, value in row.items()}


def _joined(datasets: Mapping[str, xarray.Dataset]) -> xarray.Dataset:
    sizes = {
        dim: max(dataset.sizes.get(dim, 0) for dataset in datasets.values())
        for dim in dict.fromkeys(str(dim) for dataset in datasets.values() for dim in dataset.dims)
        if dim != RUN
    }
    words = {str(name): dataset[name] for dataset in datasets.values() for name in dataset.coords}
    parts: list[xarray.Dataset] = []
    for name, dataset in datasets.items():
        count = dataset.sizes[RUN]
        padding = {dim: (0, size - dataset.sizes[dim]) for dim, size in sizes.items() if dim in dataset.dims}
        of_folder = {key: (RUN, np.full(count, dataset.attrs.get(key, np.nan), float)) for key in (*BOUNDS, CRITICAL)}
        none = {key: np.full(count, np.nan if like.dtype.kind == "f" else "") for key, like in words.items()}
        missing = {key: (RUN, none[key], like.attrs) for key, like in words.items() if key not in dataset.coords}
        named = {"folder": (RUN, [name] * count, {"long_name": "folder of the results", "units": "1"})}
        parts.append(dataset.pad(padding).assign(of_folder).assign_coords(missing | named).drop_attrs(deep=False))
    return xarray.concat(parts, RUN, data_vars="all", coords="minimal", compat="override", join="outer")
