"""The templates of pages, which stand beside this file."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

_HERE = Path(__file__).parent


def template(name: str) -> Template:
    """Return a template in which text is text: what a name or a message holds is never taken for HTML."""
    loader = FileSystemLoader(_HERE)
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return found.get_template(name)


def text_of(name: str) -> str:
    """Return a style sheet, or a script, as it stands."""
    return (_HERE / name).read_text(encoding="utf-8")
