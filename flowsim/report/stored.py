"""What a stored data set shows of itself: its table, its figures, one quantity drawn, and what other libraries read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from ..comparison import StatementsOfRuns, edge_statements
from ..formatting.presentation import Shown
from ..results import ResultFolder
from ..results.recorded import recorded
from .document import save, save_sweep, sweep_shown, write_sweep
from .figures import figures
from .frame import runs_frame, sweep_frame
from .plot import plot_runs, plot_sweep
from .sweep_figures import sweep_figures
from .sweeps import runs
from .table import tables

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False, eq=False)
class StoredRuns(Shown):
    """Runs from one initialization as their data set has them, of a live comparison or read from a folder.

    It answers as a `Comparison` does. Networks, weights and paths are not stored: they are where the runs were made.
    """

    dataset: xarray.Dataset
    title: str = ""

    def __repr__(self) -> str:
        shown = recorded(self.dataset)
        ends = (f"{run.run.name} {run.outcome.name.lower().replace('_', ' ')}" for run in shown.runs)
        return f"StoredRuns({'; '.join(ends)})"

    def tables(self) -> Sequence[Table | Text]:
        """Return the tables of the command line."""
        return tables(self.dataset, self.title)

    @property
    def statements(self) -> StatementsOfRuns:
        """What is said of the descents at the edge of stability and of their models, checked: see `edge_statements`."""
        return edge_statements(self.dataset)

    def to_dataset(self) -> xarray.Dataset:
        """Return the labelled arrays over (run, record)."""
        return self.dataset

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the records as a table of pandas, a row for each run and record.

        Beside what was recorded there are `run`, a number, `dynamics`, `learning_rate`, NaN for the flow, and `record`;
        of an array of numbers each is a column, name_0, name_1, …. `attrs` has `long_name` and `units` of the columns
        by name, and the attributes of the data set.
        """
        return runs_frame(self.dataset)

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name: "squared_distance", "sharpness", and beside descents "distance"."""
        return figures(self.dataset)

    def plot(self, quantity: str, ax: Axes | None = None) -> Axes:
        """Draw one quantity or probe against time into `ax`, or into new axes of pyplot, and return the axes.

        Raises `ValueError`, with the names that are known, for what was not recorded.
        """
        return plot_runs(self.dataset, quantity, ax)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the data set, the summary and the figures into `folder`, and return their paths.

        Raises `StoreError` where the folder holds other results, which `overwrite` gives up, and where it cannot be
        written.
        """
        return save(self.dataset, Path(folder), overwrite=overwrite)


@dataclass(frozen=True, repr=False, eq=False)
class StoredSweep(Shown):
    """A sweep as its data set has it: it answers as a `Sweep` does."""

    dataset: xarray.Dataset
    title: str = ""

    def __repr__(self) -> str:
        sizes = " × ".join(f"{self.dataset.sizes[name]} {name}" for name in runs.grid(self.dataset)) or "one point"
        shown = ", ".join(run.name for run in runs.runs_of(self.dataset))
        count, failed = self.dataset.sizes[runs.REPETITION], len(self.failures)
        said = [sizes, f"{count} repetition{'s' if count > 1 else ''}", f"runs {shown}"]
        return f"StoredSweep({'; '.join([*said, *([f'{failed} cells failed'] if failed else [])])})"

    def tables(self) -> Sequence[Table | Text]:
        """Return the tables of the command line, and what the sweep lacks."""
        return sweep_shown(self.dataset, self.title)

    @property
    def failures(self) -> list[dict[str, str]]:
        """The cells that could not be computed, each with its coordinates and what happened."""
        return runs.failures(self.dataset)

    def to_dataset(self) -> xarray.Dataset:
        """Return the labelled arrays over (grid, repetition, run)."""
        return self.dataset

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the ends as a table of pandas, a row for each point of the grid, repetition and run.

        `outcome` is its name, "NOT_ASKED" for a run that was not asked for or failed. Of an array of numbers each is a
        column, name_0, name_1, …. `attrs` has `long_name` and `units` of the columns by name, and the attributes of the
        data set.
        """
        return sweep_frame(self.dataset)

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name: "sharpness", how far runs came, and where a run diverged, "divergence"."""
        return sweep_figures(self.dataset)

    def plot(self, quantity: str, ax: Axes | None = None, *, at: Mapping[str, Any] | None = None) -> Axes:
        """Draw one quantity at the ends of the runs along the first axis of the sweep, and return the axes.

        It is drawn into `ax`, or into new axes of pyplot. `at` gives the values of the other axes by name, as
        {"depth": 10}; the first where it does not. Raises `ValueError`, with what is known, for names and values that
        are not there.
        """
        return plot_sweep(self.dataset, quantity, ax, at)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the data set, the summary and the figures into `folder`, and return their paths.

        Raises `StoreError` where the folder holds other results, which `overwrite` gives up, and where it cannot be
        written.
        """
        return save_sweep(self.dataset, Path(folder), overwrite=overwrite)

    def write(self, here: ResultFolder) -> list[Path]:
        """Write the data set, the summary and the figures into a folder that is held for the sweep."""
        return write_sweep(self.dataset, here)
