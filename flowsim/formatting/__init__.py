"""How numbers, tables and progress look; nothing here knows of the subject."""

from .fitting import fitted as fitted
from .html import as_html as as_html, table_as_html as table_as_html
from .numbers import finite_or_none as finite_or_none, format_number as format_number
from .progress import (
    Heard as Heard,
    Listener as Listener,
    Progress as Progress,
    check_progress as check_progress,
    heard as heard,
)
from .terminal import empty_table as empty_table, printable as printable, printed as printed
