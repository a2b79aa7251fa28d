"""How numbers, tables and progress look; nothing here knows of the subject."""

from .encoding import encodable as encodable
from .numbers import (
    finite_or_none as finite_or_none,
    format_number as format_number,
    subsample as subsample,
    with_entries as with_entries,
)
from .progress import (
    Progress as Progress,
    ProgressCallback as ProgressCallback,
    ProgressReporter as ProgressReporter,
    check_progress as check_progress,
    report_progress as report_progress,
)
