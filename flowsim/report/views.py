"""How every class of results shows itself: registered here, as what prints and draws stands above what it shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from ..comparison import Comparison, RunStatements, StatementsOfRuns
from ..dynamics import Trajectory
from ..dynamics.trajectory import is_batch
from ..formatting.presentation import register_view
from ..results import Results
from ..results.trajectories import dataset_of
from ..sweeps.sweep import Sweep
from ..theory import Claim, Statement, Statements
from .claims_table import claims_table
from .document import figures_in, tables_of
from .frame import statements_frame
from .statements_table import table_of_run_statements
from .stored import StoredRuns, StoredSweep
from .theory_table import table_of_statements

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class _TrajectoryView:
    run: Trajectory

    def tables(self) -> Sequence[Table | Text] | None:
        if is_batch(self.run):
            return None
        try:
            return self._stored().tables()
        except Exception as error:  # a trajectory that is looked at must not end a program
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
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
        return tables_of(self.results, self.results.folder.resolve().name)

    def figures(self) -> dict[str, Figure]:
        return figures_in(self.results)


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


for stored in (StoredRuns, StoredSweep):
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
