"""Tables of any sweep, and which of its runs a number is about."""

from .table import (
    sweep_summary as sweep_summary,
    sweep_table as sweep_table,
    sweep_tables as sweep_tables,
    warnings_of_sweep as warnings_of_sweep,
)
