"""Formulas in Markdown, `$…$` in a line and `$$…$$` on a line of its own, become MathML, which browsers set themselves.

GitHub sets the same formulas in the sources. What it would take for Markdown is refused, as it would be torn there.
"""

import re
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from math_core import LatexError, LatexToMathML

# A formula, and the signs beside it, which are not to stand on another line.
FORMULA = r"(?<![\w\\$])(\(*)(\$\$?)(?![\s$])([^$\n]+?)(?<!\s)\2(?![\w$])([.,;:)]*)"
# An emphasis, a column of a table, an escape, another emphasis, a tag.
_MARKDOWN = re.compile(r"\*|\||\\[^A-Za-z]|(?<![A-Za-z0-9])_|<\S")
_AFTER_CODE = 185  # before escapes are read, after `code` is


def mathml(formula: str, *, display: bool) -> str:
    """Return a formula of LaTeX as MathML. Raises `ValueError` for one that cannot be read, here or on GitHub."""
    if torn := _MARKDOWN.search(formula):
        raise ValueError(
            f"${formula}$: GitHub takes {torn[0]!r} for Markdown; write \\ast for a star, \\lvert for a bar, < between "
            "blanks, w_k^\\ast with the index after the letter, and \\quad for a space"
        )
    try:
        return LatexToMathML(fancy_error=False).convert_with_local_state(formula, displaystyle=display)
    except LatexError as error:
        raise ValueError(f"${formula}$: {error}") from None


class _Formula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:
        before, dollars, formula, after = m.groups()
        found = mathml(formula, display=dollars == "$$")
        if before or after:
            found = f'<span class="formula">{before}{found}{after}</span>'
        return self.md.htmlStash.store(found), m.start(), m.end()


class Formulas(Extension):
    """The extension of Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the pattern of a formula."""
        md.inlinePatterns.register(_Formula(FORMULA, md), "formula", _AFTER_CODE)


def makeExtension(**options: Any) -> Formulas:
    """Return the extension, for Python-Markdown to find it by the name of this module."""
    return Formulas(**options)


def on_config(config: Any) -> None:
    """Add the extension to MkDocs, which finds no module beside its mkdocs.yml by name."""
    config.markdown_extensions.append(Formulas())
