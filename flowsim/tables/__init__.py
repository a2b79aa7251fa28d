"""The tables of runs, of their models, probes and statements, and their numbers for a file; made from columns."""

from . import views as views  # how each class of results of the core prints itself
from .models import model_rows as model_rows, models_table as models_table
from .runs import (
    ended_as_expected as ended_as_expected,
    remarks_of_runs as remarks_of_runs,
    render as render,
    render_folders as render_folders,
    rows as rows,
    summary as summary,
    tables as tables,
    warnings_of_runs as warnings_of_runs,
)
from .statements import (
    claims_summary as claims_summary,
    claims_table as claims_table,
    table_of_run_statements as table_of_run_statements,
    table_of_statements as table_of_statements,
    warnings_of_claims as warnings_of_claims,
)
