"""How numbers, tables and progress look; nothing here knows of the subject."""

from .fitting import fitted as fitted
from .html import as_html as as_html, table_as_html as table_as_html
from .numbers import finite_or_none as finite_or_none, format_number as format_number
from .progress import (
    Progress as Progress,
    ProgressCallback as ProgressCallback,
    ProgressReporter as ProgressReporter,
    check_progress as check_progress,
    report_progress as report_progress,
)
from .terminal import empty_table as empty_table, printable as printable, printed as printed
