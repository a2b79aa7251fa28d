"""How tables look in a terminal."""

from collections.abc import Sequence

from rich import box
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
