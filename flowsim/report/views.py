"""How every class of results shows itself: registered here, as what prints and draws stands above what it shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from ..comparison import Comparison, RunStatements, StatementsOfRuns, edge_statements
from ..dynamics import Trajectory
from ..dynamics.trajectory import is_batch
from ..formatting import encodable
from ..formatting.presentation import Shown, register_view
from ..kinds import reason_of
from ..results import ResultFolder, Results
from ..results.runs import read_runs
from ..results.trajectories import dataset_of
from ..runtime.paths import user_path
from ..sweeps.sweep import Sweep
from ..theory import Claim, Statement, Statements
from .document import Document, document, save, save_sweep, sweep_shown, write_sweep
from .figures import figures, plot_runs, plot_sweep, sweep_figures
from .frame import runs_frame, statements_frame, sweep_frame
from .side_by_side import SideBySide
from .statements_table import claims_table, table_of_run_statements
from .sweeps import runs
from .table import tables
from .theory_table import table_of_statements

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
        ends = (f"{run.run.name} {run.outcome.name.lower().replace('_', ' ')}" for run in shown.runs)
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

    def tables(self) -> Sequence[Table | Text] | None:
        if is_batch(self.run):
            return None
        try:
            return self._stored().tables()
        except Exception as error:  # a trajectory that is looked at must not end a program
            reason = reason_of(error)
            return [Text(f"{self.run!r}\nno table: {reason}")]

    def to_dataset(self, attrs: Mapping[str, Any] | None = None) -> xarray.Dataset:
        if is_batch(self.run):
            raise ValueError(
                f"this is of one run outside of jax.jit, found {self.run!r}: take one out of a batch by "
                "jax.tree.map(lambda leaf: leaf[0], runs), or look at the arrays"
            )
        return dataset_of(self.run, attrs=attrs)

    def _stored(self) -> StoredRuns:
        return StoredRuns(self.to_dataset())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored(), name)


@dataclass(frozen=True)
class _ResultsView:
    results: Results

    @property
    def comparison(self) -> StoredRuns | None:
        return None if self.results.trajectories is None else StoredRuns(self.results.trajectories)

    @property
    def swept(self) -> StoredSweep | None:
        return None if self.results.sweep is None else StoredSweep(self.results.sweep)

    def tables(self) -> Sequence[Table | Text]:
        return self._document().tables

    def figures(self) -> dict[str, Figure]:
        return self._document().figures

    def _document(self) -> Document:
        return document(self.results, self.results.folder.resolve().name)


@dataclass(frozen=True)
class _StatementsView:
    statements: Iterable[Statement]

    def tables(self) -> Sequence[Table]:
        return [table_of_statements(tuple(self.statements))]

    def to_dataframe(self) -> "pandas.DataFrame":
        return statements_frame(tuple(self.statements))


@dataclass(frozen=True)
class _StatementsOfRunsView:
    found: Sequence[RunStatements]

    def tables(self) -> Sequence[Table | Text]:
        return [table_of_run_statements(self.found, "")] if self.found else [Text("no statements")]

    def to_dataframe(self) -> "pandas.DataFrame":
        about = [
            (one, {"dynamics": of.run.dynamics, "learning_rate": of.run.learning_rate})
            for of in self.found
            for one in of.statements
        ]
        return statements_frame([one for one, _ in about], [run for _, run in about])


@dataclass(frozen=True)
class _ClaimView:
    claim: Claim

    def tables(self) -> Sequence[Table]:
        return [claims_table([self.claim], "")]


for stored in (StoredRuns, StoredSweep, SideBySide):
    register_view(stored, lambda runs: runs)
register_view(Comparison, lambda comparison: StoredRuns(comparison.to_dataset()))
register_view(Sweep, lambda sweep: StoredSweep(sweep.dataset))
register_view(Trajectory, _TrajectoryView)
register_view(Results, _ResultsView)
register_view(Statement, lambda statement: _StatementsView((statement,)))
register_view(Statements, _StatementsView)
register_view(RunStatements, lambda of_run: _StatementsOfRunsView((of_run,)))
register_view(StatementsOfRuns, _StatementsOfRunsView)
register_view(Claim, _ClaimView)
