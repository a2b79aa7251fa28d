"""The tables that results of the core print, registered for their classes."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ..columns import trajectory_columns
from ..comparison import Comparison, RunStatements, StatementsOfRuns
from ..dynamics import Trajectory
from ..dynamics.trajectory import is_batch
from ..formatting.presentation import register_tables
from ..kinds import reason_of
from ..theory import Claim, Statement, Statements
from .runs import tables
from .statements import claims_table, table_of_run_statements, table_of_statements


def _of_trajectory(run: Trajectory) -> Sequence[Table | Text] | None:
    if is_batch(run):
        return None
    try:
        return tables(trajectory_columns(run), "")
    except Exception as error:  # a trajectory that is looked at must not end a program
        return [Text(f"{run!r}\nno table: {reason_of(error)}")]


def _of_runs(found: Sequence[RunStatements]) -> Sequence[Table | Text]:
    return [table_of_run_statements(found, "")] if found else [Text("no statements")]


register_tables(Comparison, lambda comparison: tables(comparison.to_columns(), ""))
register_tables(Trajectory, _of_trajectory)
register_tables(Statement, lambda statement: [table_of_statements([statement])])
register_tables(Statements, lambda statements: [table_of_statements(statements)])
register_tables(RunStatements, lambda of_run: _of_runs([of_run]))
register_tables(StatementsOfRuns, _of_runs)
register_tables(Claim, lambda claim: [claims_table([claim], "")])
