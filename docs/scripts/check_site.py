"""Check that the pages of a built site ask for nothing from elsewhere when they are read, and that formulas are whole.

python docs/scripts/check_site.py site
"""

import re
import sys
from pathlib import Path

# What a browser fetches by itself; a link that is followed by hand may lead anywhere.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(?:https?:)?//|@import\s+(?:url\()?["']?https?://"""
)
STYLED = re.compile(
    r"""<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=["']?(?:https?:)?//"""
)


# A star in a formula that Markdown took for emphasis: words that are meant to be emphasized stand between blanks.
EMPHASIZED = re.compile(r"\w<em>[^<]*</em>|<em>[^<]*</em>\w")

# Where a dollar is no formula: code, and what a reader does not see; and what a formula leaves that was not set.
_UNSEEN = re.compile(r"<(code|pre|script|style|title)\b.*?</\1>|<[^<>]*>", re.DOTALL)
UNSET = re.compile(r".{0,30}(?:\$|\\[A-Za-z]+).{0,30}")


def fetching(folder: Path) -> list[Path]:
    """Return the pages and styles that fetch something."""
    found = [*folder.rglob("*.html"), *folder.rglob("*.css")]
    if not found:
        raise SystemExit(f"{folder}: holds no page; build it with mkdocs build --site-dir {folder}")
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    return [path for path, text in texts.items() if FETCHED.search(text) or STYLED.search(text)]


def emphasized(folder: Path) -> list[str]:
    """Return what is emphasized in the middle of a word or a formula, with its page."""
    pages = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    return [f"{path}: {found}" for path, text in pages.items() for found in EMPHASIZED.findall(text)]


def unset(folder: Path) -> list[str]:
    """Return what was meant for a formula and was not set as one, with its page."""
    pages = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    wrong = [f"{path}: {found}" for path, text in pages.items() for found in UNSET.findall(_UNSEEN.sub("", text))]
    return wrong + [f"{path}: an error in MathML" for path, text in pages.items() if "<merror" in text]


if __name__ == "__main__":
    if left := unset(Path(sys.argv[1])):
        raise SystemExit(
            "formulas are $…$ in one line, and other dollars and backslashes stand in `code`: " + "; ".join(left)
        )
    if torn := emphasized(Path(sys.argv[1])):
        raise SystemExit("write \\* for a star in a formula: " + "; ".join(torn))
    if wrong := fetching(Path(sys.argv[1])):
        raise SystemExit("these ask for something from elsewhere: " + ", ".join(map(str, wrong)))
