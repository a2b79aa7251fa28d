"""A word that stands first on the command line, in place of a scenario file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A thing to do other than to run scenarios.

    `usage` is the word with what may follow, `summary` says in one line what it does, and `act` is called with the
    words that follow, and returns the exit code. Each stands in a file of its own, and is entered in `words.py`.
    """

    usage: str
    summary: str
    act: Callable[[Sequence[str]], int]

    @property
    def name(self) -> str:
        """The word itself."""
        return self.usage.split()[0]
