"""The words that may stand first on the command line."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from ..scenarios import ScenarioError
from .check import CHECK
from .new import NEW
from .redraw import REPORT
from .template import templates
from .word import Word

WORDS: dict[str, Word] = {word.name: word for word in (REPORT, NEW, CHECK)}


def refuse_mistyped(words: Sequence[str]) -> None:
    """Raise `ScenarioError` where the first of `words` is no file, and was probably to be a word or a template."""
    first = words[0] if words else "-"
    if first.startswith("-") or Path(first).suffix or Path(first).exists():
        return
    near = difflib.get_close_matches(first.casefold(), WORDS, n=1)
    if near:
        write = " ".join([near[0], *words[1:]])
    elif first in templates():
        write = f"new {first}"
    else:
        return
    expected = f"a scenario file (YAML), or a word: {', '.join(WORDS)}"
    raise ScenarioError(f"{first}: found no such file; expected {expected}; write python -m flowsim {write}")
