"""Ctrl-C, SIGTERM and SIGHUP end the command line alike, from its first moment on.

The first import of the package, as importing JAX takes a second or two in which a signal may come already.
"""

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType

# SIGHUP comes when a terminal is closed, and is unknown to Windows.
ENDING = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
# What is cleared away after a signal is not disturbed by a second one, which often follows: of the kind, or another.
_SECONDS_OF_GRACE = 5.0


class Ended(KeyboardInterrupt):
    """A signal, known by its number, which asks the process to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def said_of(number: int) -> str:
    """Return what is said of an end by a signal, and how to go on."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    return (
        f"flowsim: {how}; files written so far are whole, the others are missing; "
        "run the same again, and what is stored is not computed again"
    )


@contextmanager
def raised() -> Iterator[None]:
    """Have the signals that ask the process to end raise `Ended` in the main thread meanwhile.

    Signals that are ignored, as under nohup, stay so.
    """
    latest = -math.inf

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal latest
        before, latest = latest, time.monotonic()
        if latest - before > _SECONDS_OF_GRACE:
            raise Ended(number)

    before = {number: signal.getsignal(number) for number in _heard()}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heard() -> list[signal.Signals]:
    """Return the signals that a handler could be set for here, and are not ignored."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """End while there is nothing to clear away yet."""
    with suppress(OSError):
        over = "\r" if os.isatty(2) else ""  # the shorter line that says there that the command line starts
        os.write(2, f"{over}{said_of(number)}\n".encode())
    os._exit(128 + number)


def is_command_line() -> bool:
    """Tell whether this process is `python -m flowsim` or the script `flowsim`, and not one of its workers."""
    as_module = ("-m", "flowsim") in pairwise(sys.orig_argv) and sys.argv[0] == "-m"
    return (as_module or Path(sys.argv[0]).stem == "flowsim") and multiprocessing.parent_process() is None


if is_command_line():
    for _number in _heard():
        signal.signal(_number, _end_at_once)
