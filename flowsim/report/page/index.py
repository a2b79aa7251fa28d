"""The templates of pages, which stand beside this file, and the page that leads to the pages of several results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

_HERE = Path(__file__).parent
MARK = '<meta name="generator" content="flowsim">'
"""What tells a page of ours from others."""


def template(name: str) -> Template:
    """Return a template in which text is text: what a name or a message holds is never taken for HTML."""
    loader = FileSystemLoader(_HERE)
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return found.get_template(name)


def text_of(name: str) -> str:
    """Return a style sheet, or a script, as it stands."""
    return (_HERE / name).read_text(encoding="utf-8")


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
    headline = (
        f"{said}, all ended as expected" if not lacking else f"{said}, of which {lacking} did not end as expected"
    )
    return template("index.html").render(
        entries=entries, headline=headline, lacking=lacking, style=Markup(text_of("page.css")), mark=Markup(MARK)
    )
