"""Tables and figures of comparisons, of sweeps, of the theory, and of the paper."""

from .dataset import dataset as dataset
from .figures import (
    distance_figure as distance_figure,
    figures as figures,
    sharpness_figure as sharpness_figure,
    squared_distance_figure as squared_distance_figure,
)
from .paper import (
    Claim as Claim,
    claims as claims,
    claims_summary as claims_summary,
    claims_table as claims_table,
    paper_figure as paper_figure,
)
from .style import STYLE as STYLE
from .sweeps import (
    sweep_figures as sweep_figures,
    sweep_summary as sweep_summary,
    sweep_table as sweep_table,
)
from .table import render as render, rows as rows, summary as summary
from .theory_figures import theory_figures as theory_figures
from .theory_table import theory_summary as theory_summary, theory_tables as theory_tables
