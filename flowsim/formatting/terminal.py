"""Tables for the terminal, fitted to its width: names on fewer lines, wrapped text, and columns below each other."""

import copy
import io
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from .encoding import encodable, output_encodings

_CONSOLE = Console(file=io.StringIO(), width=10_000, markup=False, emoji=False)  # wider than any table
# `box.SIMPLE_HEAD`, for which Rich would take a box with bars between the columns where there is no "─".
_ASCII_HEAD = box.Box(str(box.SIMPLE_HEAD).replace("─", "-"), ascii=True)


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
    """Return the text of a table, or of the remarks below one, without colours, as standard output can hold it.

    Args:
        table: The table or text.
        width: How many columns of characters it may take. By default as many as the terminal has, but 80 at least and
            160 at most; 100 where there is no terminal, as in a notebook or a pipe.

    Returns:
        The text.
    """
    stream = io.StringIO()
    wide = min(max(shutil.get_terminal_size(fallback=(100, 0)).columns, 80), 160) if width is None else width
    # Or, in a notebook, rich would show the table itself.
    console = Console(file=stream, width=wide, force_jupyter=False, color_system=None, markup=False, emoji=False)
    console.print(fitted(table, wide, output_encodings()))
    return stream.getvalue().rstrip("\n")


def printable(text: str) -> str:
    """Return a text that comes from outside with a mark for every character that would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def utf8(text: str) -> bytes:
    """Return a text in UTF-8, whatever the encoding of the system is.

    Where that is not UTF-8, Python holds the bytes of a file's name that it cannot decode as lone surrogates.
    """
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
    except UnicodeEncodeError:  # surrogates of another origin
        return text.encode("utf-8", "replace")


def fitted(table: Table | Text, width: int, encodings: Collection[str] = ()) -> RenderableType:
    """Return a table as it is printed in so many columns, title above and remarks below; a text as it is.

    No line of it ends in blanks. The lines of a column's name join where there is room. Where the table is too wide all
    the same, columns of text are wrapped between words, the widest first; and where that is not enough, columns go
    below each other, those that say which row is which, up to the one without a name, again and again.

    Args:
        table: The table or text.
        width: How many columns of characters there are.
        encodings: Names of encodings, to whose characters the text is limited (`encodable`).

    Returns:
        What Rich prints.
    """
    if isinstance(table, Text):
        return _Trimmed(_limited(table, encodings))
    title, remarks = _limited(table.title, encodings), _limited(table.caption, encodings)
    # As the encodings can hold it before it is laid out: "eta" is wider than "η".
    bare = copy.copy(table)
    bare.title = bare.caption = None  # which rich would wrap to the width of the columns
    bare.columns = [
        replace(
            column,
            header=encodable(printable(str(column.header)), encodings),
            _cells=[_limited(cell, encodings) for cell in column.cells],
        )
        for column in table.columns
    ]
    if encodable("─", encodings) != "─":
        bare.box = _ASCII_HEAD

    most = max(len(str(column.header).split("\n")) for column in bare.columns)
    named = (_with_names(bare, bare.columns, lines) for lines in range(1, 1 + most))
    pieces = next(([one] for one in named if _natural(one) <= width), [])
    if not pieces:
        wrapped = _wrapped(_with_names(bare, bare.columns, most), width)
        pieces = [wrapped] if _natural(wrapped) <= width else _below_each_other(bare, width)
    parts: list[RenderableType] = [Text(str(title), style="table.title")] if title is not None and str(title) else []
    parts += [*pieces, *([remarks] if remarks is not None and str(remarks) else [])]
    return _Trimmed(Group(*parts))


def _limited(text: Any, encodings: Collection[str]) -> Any:
    """Return text without control characters, as the encodings can hold it; one that changes loses its parts' styles.

    Every text that is printed passes here: names and messages of stored results may hold what steers a terminal.
    """
    if text is None:
        return None
    spelled = encodable(printable(str(text)), encodings)
    return text if spelled == str(text) else Text(spelled, text.style if isinstance(text, Text) else "")


@dataclass(frozen=True)
class _Trimmed:
    """What it holds, without blanks at the ends of its lines."""

    inside: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.inside, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()


def _with_names(table: Table, columns: Sequence[Column], lines: int) -> Table:
    """Return the table with these columns, their names as narrow as so many lines allow, and on one ground."""
    names = [_joined(str(column.header).strip("\n").split("\n"), lines) for column in columns]
    most = max(map(len, names))
    made = copy.copy(table)
    made.columns = [
        replace(column, header="\n" * (most - len(name)) + "\n".join(name))
        for column, name in zip(columns, names, strict=True)
    ]
    return made


def _joined(words: Sequence[str], lines: int) -> list[str]:
    if lines == 1 or len(words) <= lines:
        return [" ".join(words)] if lines == 1 else list(words)
    splits = ([" ".join(words[:first]), *_joined(words[first:], lines - 1)] for first in range(1, len(words)))
    return min(splits, key=lambda split: max(map(len, split)))


def _natural(table: Table) -> int:
    return Measurement.get(_CONSOLE, _CONSOLE.options, table).maximum


def _wrapped(table: Table, width: int) -> Table:
    """Return the table with its columns of text so narrow that it fits, but none narrower than its longest word."""
    cells = [
        [Measurement.get(_CONSOLE, _CONSOLE.options, cell) for cell in (column.header, *column.cells)]
        for column in table.columns
    ]
    least = np.array([max(cell.minimum for cell in column) for column in cells])
    most = np.array([max(cell.maximum for cell in column) for column in cells])
    least = np.where([column.no_wrap for column in table.columns], most, least)
    room = width - (_natural(table) - most.sum())
    levels = np.arange(least.max(), most.max() + 1)
    fits = [level for level in levels if np.clip(level, least, most).sum() <= room]
    widths = np.clip(max(fits, default=0), least, most).tolist()
    made = copy.copy(table)
    made.columns = [
        replace(column, width=None if column.no_wrap else size)
        for column, size in zip(table.columns, widths, strict=True)
    ]
    return made


def _below_each_other(table: Table, width: int) -> list[RenderableType]:
    """Return the table in pieces, each with the columns that say which row is which, and as many others as fit."""
    names = [str(column.header).strip() for column in table.columns]
    labels = 1 + (names.index("") if "" in names else 0)
    pieces, shown = [], list(table.columns[:labels])
    for column in table.columns[labels:]:
        wider = _with_names(table, [*shown, column], len(names))
        if len(shown) > labels and _natural(wider) > width:
            pieces.append(shown)
            shown = list(table.columns[:labels])
        shown.append(column)
    named = [_with_names(table, columns, len(names)) for columns in (*pieces, shown)]
    return [piece if _natural(piece) <= width else _wrapped(piece, width) for piece in named]
