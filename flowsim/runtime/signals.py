"""Ctrl-C, SIGTERM and SIGHUP end the command line alike."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGHUP comes when a terminal is closed, and is unknown to Windows.
ENDING = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(KeyboardInterrupt):
    """A signal, known by its number, which asks the process to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def message_of(number: int) -> str:
    """Return what is printed at an end by a signal, and how to go on."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    return (
        f"flowsim: {how}; files written so far are whole, the others are missing; "
        "run the same again, and what is stored is not computed again"
    )


@contextmanager
def ending_signals(seconds_of_grace: float = 5.0) -> Iterator[None]:
    """Have the signals that ask the process to end raise `Ended` in the main thread meanwhile.

    Signals that are ignored, as under nohup, stay so. A second signal, of the kind or another, often follows the first,
    and does not disturb what is cleared away meanwhile: it takes effect after `seconds_of_grace`.
    """
    latest = -math.inf

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal latest
        before, latest = latest, time.monotonic()
        if latest - before > seconds_of_grace:
            raise Ended(number)

    in_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    handlers = {number: signal.getsignal(number) for number in ENDING if in_main}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
