"""What the command line does while JAX and the rest are imported, which takes a second or two: it shows a line."""

import gc
import os
from contextlib import suppress

from . import signals

_LINE = b"flowsim: starting ..."
_STDERR = 2
_shown = False


def begin() -> None:
    """Say on a terminal that the command line begins; nothing is written anywhere else.

    No garbage is collected meanwhile: imports leave next to none, and to look for it is a sixth of their time.
    """
    global _shown
    gc.disable()
    with suppress(OSError):  # of an output that is closed
        if os.isatty(_STDERR):
            _shown = os.write(_STDERR, _LINE) > 0


def end() -> None:
    """Take away what `begin` wrote, before anything else is written, and collect garbage again."""
    global _shown
    gc.enable()
    with suppress(OSError):
        if _shown:
            _shown = False
            os.write(_STDERR, b"\r" + b" " * len(_LINE) + b"\r")


if signals.is_command_line():
    begin()
