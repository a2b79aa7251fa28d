"""Tables and figures of a comparison."""

from .dataset import dataset as dataset
from .figures import (
    distance_figure as distance_figure,
    figures as figures,
    sharpness_figure as sharpness_figure,
    squared_distance_figure as squared_distance_figure,
)
from .style import STYLE as STYLE
from .table import render as render, rows as rows, summary as summary
from .theory_figures import theory_figures as theory_figures
from .theory_table import theory_summary as theory_summary, theory_tables as theory_tables
