"""How results are drawn, saved and handed on as tables of pandas, and how those of the lab print: registered here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from ..columns import read_runs, trajectory_columns
from ..comparison import Comparison, StatementsOfRuns, edge_statements
from ..dynamics import Trajectory
from ..formatting import encodable
from ..formatting.presentation import Shown, register_tables, register_view
from ..results import ResultFolder, Results
from ..runtime.paths import user_path
from ..sweeps.sweep import Sweep
from ..tables import tables
from ..theory import Statement, Statements
from .document import Document, document, save, save_sweep, sweep_shown, write_sweep
from .figures import figures, plot_runs, plot_sweep, sweep_figures
from .frame import runs_frame, statements_frame, sweep_frame
from .side_by_side import SideBySide
from .sweeps import runs

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False, eq=False)
class StoredRuns(Shown):
    """Runs from one initialization as their data set has them, of a live comparison or read from a folder.

    It answers as a `Comparison` does. Networks, weights and paths are not stored: they are where the runs were made.
    """

    dataset: xarray.Dataset
    """The data set of trajectories."""
    title: str = ""
    """What stands above the tables."""

    def __repr__(self) -> str:
        shown = read_runs(self.dataset)
        ends = (f"{run.run.name} {run.outcome.words}" for run in shown.runs)
        return encodable(f"StoredRuns({'; '.join(ends)})")

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
        """Return the records as a table of pandas, as `Comparison.to_dataframe`."""
        return runs_frame(self.dataset)

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name, as `Comparison.figures`."""
        return figures(self.dataset)

    def plot(self, quantity: str, ax: Axes | None = None) -> Axes:
        """Draw one quantity or probe against time, as `Comparison.plot`, and return the axes."""
        return plot_runs(self.dataset, quantity, ax)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the data set, the summary and the figures into `folder`, as `Comparison.save`; return their paths."""
        return save(self.dataset, user_path(folder), overwrite=overwrite)


@dataclass(frozen=True, repr=False, eq=False)
class StoredSweep(Shown):
    """A sweep as its data set has it: it answers as a `Sweep` does."""

    dataset: xarray.Dataset
    """The data set of the sweep."""
    title: str = ""
    """What stands above the tables."""

    def __repr__(self) -> str:
        sizes = " × ".join(f"{self.dataset.sizes[name]} {name}" for name in runs.grid(self.dataset)) or "one point"
        shown = ", ".join(run.name for run in runs.runs_of(self.dataset))
        count, failed = self.dataset.sizes[runs.REPETITION], len(self.failures)
        said = [sizes, f"{count} repetition{'s' if count > 1 else ''}", f"runs {shown}"]
        return encodable(f"StoredSweep({'; '.join([*said, *([f'{failed} cells failed'] if failed else [])])})")

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
        """Return the ends of the runs as a table of pandas, as `Sweep.to_dataframe`."""
        return sweep_frame(self.dataset)

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name, as `Sweep.figures`."""
        return sweep_figures(self.dataset)

    def plot(self, quantity: str, ax: Axes | None = None, *, at: Mapping[str, Any] | None = None) -> Axes:
        """Draw one quantity at the ends of the runs, as `Sweep.plot`, and return the axes."""
        return plot_sweep(self.dataset, quantity, ax, at)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the data set, the summary and the figures into `folder`, as `Sweep.save`; return their paths."""
        return save_sweep(self.dataset, user_path(folder), overwrite=overwrite)

    def write(self, here: ResultFolder) -> list[Path]:
        """Write the data set, the summary and the figures into a folder that is held for the sweep."""
        return write_sweep(self.dataset, here)


@dataclass(frozen=True)
class _TrajectoryView:
    run: Trajectory

    def to_dataset(self, attrs: Mapping[str, Any] | None = None) -> xarray.Dataset:
        return trajectory_columns(self.run, attrs).to_xarray()

    def __getattr__(self, name: str) -> Any:
        return getattr(StoredRuns(self.to_dataset()), name)


@dataclass(frozen=True)
class _ResultsView:
    results: Results

    @property
    def comparison(self) -> StoredRuns | None:
        return None if self.results.trajectories is None else StoredRuns(self.results.trajectories)

    @property
    def swept(self) -> StoredSweep | None:
        return None if self.results.sweep is None else StoredSweep(self.results.sweep)

    def document(self) -> Document:
        return document(self.results, self.results.folder.resolve().name)

    def figures(self) -> dict[str, Figure]:
        return self.document().figures


@dataclass(frozen=True)
class _StatementsView:
    statements: Sequence[Statement]
    about: Sequence[Mapping[str, Any]] | None = None

    def to_dataframe(self) -> "pandas.DataFrame":
        return statements_frame(self.statements, self.about)


def _view_of_run_statements(found: StatementsOfRuns) -> _StatementsView:
    pairs = [(of.run, one) for of in found for one in of.statements]
    about = [{"dynamics": run.dynamics, "learning_rate": run.learning_rate} for run, _ in pairs]
    return _StatementsView([one for _, one in pairs], about)


for stored in (StoredRuns, StoredSweep, SideBySide):
    register_tables(stored, stored.tables)
register_tables(Sweep, lambda sweep: StoredSweep(sweep.dataset).tables())
register_tables(Results, lambda results: _ResultsView(results).document().tables)
register_view(Comparison, lambda comparison: StoredRuns(comparison.to_dataset()))
register_view(Sweep, lambda sweep: StoredSweep(sweep.dataset))
register_view(Trajectory, _TrajectoryView)
register_view(Results, _ResultsView)
register_view(Statements, _StatementsView)
register_view(StatementsOfRuns, _view_of_run_statements)
