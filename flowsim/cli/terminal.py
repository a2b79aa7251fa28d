"""The console that results are printed on, which outlives whoever reads it."""

import os
import sys

from rich.console import Console


class Terminal(Console):
    """A console that falls silent once its output is closed.

    The results are files, and tables only tell of them: `python -m flowsim a.yaml b.yaml | head -1` computes and writes
    all that it was asked for, and its exit code says how that went.
    """

    def __init__(self) -> None:
        # What is printed comes from folders and files: nothing in it is an instruction.
        super().__init__(markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on, what is still to be flushed included."""
        self.quiet = True
        discard_output()


def discard_output() -> None:
    """Have all that this process prints from now on go nowhere, also what Python flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
