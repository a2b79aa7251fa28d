"""The page that leads to the pages of several results."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .templates import template, text_of

MARK = '<meta name="generator" content="flowsim">'
"""What tells a page of ours from others."""


@dataclass(frozen=True)
class Entry:
    """Results that an index leads to: the folder `name` beside it, how they came out, a figure of theirs."""

    name: str
    complete: bool
    warnings: tuple[str, ...]
    figure: str | None


def index_page(entries: Sequence[Entry]) -> str:
    """Return the page that leads to the pages of results, which stand in folders beside it."""
    said = f"{len(entries)} scenarios"
    lacking = sum(not entry.complete for entry in entries)
    headline = f"{said}, all as they should be" if not lacking else f"{said}, of which {lacking} did not all arrive"
    return template("index.html").render(
        entries=entries, headline=headline, lacking=lacking, style=Markup(text_of("page.css")), mark=Markup(MARK)
    )
