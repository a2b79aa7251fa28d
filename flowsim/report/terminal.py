"""How tables look in a terminal."""

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def empty_table(title: str, remarks: Sequence[str], *, gap: int = 1) -> Table:
    """Return a table without columns: `remarks` below it line by line, and `gap` spaces between columns."""
    return Table(
        title=Text(title),
        caption=Text("\n".join(remarks), style="not dim not italic"),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap, 0, 0),
    )


def printed(table: Table, width: int = 100) -> str:
    """Return the text of a table, without colours."""
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue().rstrip("\n")


def table_as_html(table: Table, width: int = 100) -> str:
    """Return a table as a piece of HTML for a notebook."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(table)
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>')
