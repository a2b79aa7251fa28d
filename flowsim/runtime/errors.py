"""The errors that a message explains in full, and standard error and output where nobody reads them."""

import os
import sys
from contextlib import suppress
from typing import TextIO


class UserError(Exception):
    """What a user gave, or has in files and folders, cannot be used: the message says where, why, and what to write.

    The command line prints it without a traceback, and ends with exit code 2.
    """


def print_error(text: str) -> None:
    """Print a line on standard error, or nothing where that is closed: the exit code reports the error as well."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Have all that is still to be printed on a stream go nowhere, including what Python flushes at its end."""
    with suppress(OSError, ValueError):  # not a file of the system, as in a notebook
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
