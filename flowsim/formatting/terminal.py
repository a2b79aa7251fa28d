"""Tables for the terminal."""

import io
import shutil
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .fitting import fitted


def empty_table(title: str, remarks: Sequence[str], *, gap: int = 1) -> Table:
    """Return a table without columns: `remarks` below it line by line, and `gap` spaces between columns."""
    return Table(
        title=Text(printable(title)),
        caption=Text(printable("\n".join(remarks)), style="not dim not italic"),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap, 0, 0),
    )


def printed(table: Table | Text, width: int | None = None) -> str:
    """Return the text of a table, or of what is said below one, without colours, in `width` columns.

    By default as wide as the terminal, but 80 columns at least and 160 at most; 100 where there is no terminal, as in a
    notebook or a pipe.
    """
    stream = io.StringIO()
    wide = min(max(shutil.get_terminal_size(fallback=(100, 0)).columns, 80), 160) if width is None else width
    # Or, in a notebook, rich would show the table itself.
    console = Console(file=stream, width=wide, force_jupyter=False, color_system=None, markup=False, emoji=False)
    console.print(fitted(table, wide))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).rstrip("\n")


def printable(text: str) -> str:
    """Return a text that comes from outside with a mark for every character that would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)
