"""Stored data sets become documents: tables, summaries and figures of runs, of sweeps, and of the theory."""

from ..formatting.html import as_html as as_html, table_as_html as table_as_html
from ..formatting.terminal import fitted as fitted, printed as printed
from ..results import FIGURES as FIGURES, Figure as Figure
from ..tables import (
    claims_summary as claims_summary,
    claims_table as claims_table,
    render as render,
    rows as rows,
    summary as summary,
    table_of_run_statements as table_of_run_statements,
    table_of_statements as table_of_statements,
    tables as tables,
)
from ..theory import Claim as Claim
from .document import (
    Document as Document,
    document as document,
    save as save,
    save_sweep as save_sweep,
    sweep_shown as sweep_shown,
)
from .figures import (
    distance_figure as distance_figure,
    figures as figures,
    sharpness_figure as sharpness_figure,
    squared_distance_figure as squared_distance_figure,
    sweep_figures as sweep_figures,
    theory_figures as theory_figures,
)
from .frame import statements_frame as statements_frame
from .side_by_side import SideBySide as SideBySide, side_by_side as side_by_side
from .style import STYLE as STYLE
from .sweeps import (
    sweep_summary as sweep_summary,
    sweep_table as sweep_table,
)
from .theory_table import (
    theory_summary as theory_summary,
    theory_tables as theory_tables,
)
from .views import StoredRuns as StoredRuns, StoredSweep as StoredSweep  # and how each class of results shows itself
