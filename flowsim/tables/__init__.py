"""How numbers and tables look, in a terminal and on a page; what stands in them is asked of those who know it."""

from .fitting import fitted as fitted
from .html import as_html as as_html, table_as_html as table_as_html
from .numbers import finite_or_none as finite_or_none, format_number as format_number
from .terminal import empty_table as empty_table, printable as printable, printed as printed
