"""Tables and figures of any sweep."""

from .figures import draw_quantity as draw_quantity, sweep_figures as sweep_figures
from .table import sweep_summary as sweep_summary, sweep_table as sweep_table, sweep_tables as sweep_tables
