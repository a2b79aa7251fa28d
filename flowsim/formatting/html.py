"""Tables as HTML, which takes its colours from the page around it."""

import io
from collections.abc import Iterable
from html import escape

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Lines are drawn in the colour of the text, and nothing has a background: so it is legible on dark and on light.
_CELL = "padding:0.15em 0.7em 0.15em 0;vertical-align:top"
_HEADER = "padding:0.15em 0.7em 0.15em 0;vertical-align:bottom;border-bottom:1px solid"
_LEFT, _RIGHT = "text-align:left", "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"


def as_html(shown: Iterable[Table | Text]) -> str:
    """Return tables, and what is said below them, as one piece of HTML, in their order."""
    return "\n".join(table_as_html(one) if isinstance(one, Table) else f"<p>{_inline(one)}</p>" for one in shown)


def table_as_html(table: Table) -> str:
    """Return a table as HTML: a `<figure>` that holds the `<table>`, its title as `<caption>`, and the remarks below.

    Every column that has a name has a header cell of scope "col"; rows that the terminal divides by a line are a
    `<tbody>` of their own. It stands by itself, without a style sheet, and takes its colours from the page.
    """
    header, rows = [], [""] * len(table.rows)
    for column in table.columns:
        side = _RIGHT if column.justify == "right" else f"{_LEFT};white-space:nowrap" if column.no_wrap else _LEFT
        # The lines of a name are broken for a terminal, and pushed down to the last line of the head.
        words = " ".join(_inline(column.header).replace("<br/>", " ").split())
        style = f'style="{_HEADER};{side}"'
        header.append(f'<th scope="col" {style}>{words}</th>' if words else f"<td {style}></td>")
        for number, cell in enumerate(column.cells):
            rows[number] += f'<td style="{_CELL};{side}">{_inline(cell)}</td>'
    title, remarks = _inline(table.title), _inline(table.caption)
    body = ["<tbody>"]
    for number, (row, cells) in enumerate(zip(table.rows, rows, strict=True), 1):
        body.append(f"<tr>{cells}</tr>")
        if row.end_section and number < len(rows):
            body.append('</tbody>\n<tbody style="border-top:1px solid">')
    return "\n".join(
        [
            '<figure style="margin:1em 0;overflow-x:auto">',
            '<table style="border-collapse:collapse">',
            *([f'<caption style="{_LEFT};font-weight:bold">{title}</caption>'] if title else []),
            f"<thead><tr>{''.join(header)}</tr></thead>",
            *body,
            "</tbody>",
            "</table>",
            *([f"<figcaption>{remarks}</figcaption>"] if remarks else []),
            "</figure>",
        ]
    )


def _inline(cell: object) -> str:
    """Return text as it stands within an element: bold and dim as such, its lines broken where they are."""
    if cell is None:
        return ""
    text = cell.copy() if isinstance(cell, Text) else Text(str(cell))
    text.stylize(text.style)  # what renders a text without parts of their own styles leaves its style out
    marked = []
    for segment in text.render(Console(file=io.StringIO())):
        said = escape(segment.text).replace("\n", "<br/>")
        if segment.style is not None and segment.style.bold:
            said = f"<strong>{said}</strong>"
        if segment.style is not None and segment.style.dim:
            said = f'<span style="opacity:0.7">{said}</span>'
        marked.append(said)
    return "".join(marked)
