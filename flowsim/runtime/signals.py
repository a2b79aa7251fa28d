"""Ctrl-C, SIGTERM and SIGHUP end a command alike, also while it is still being imported."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# SIGHUP comes when a terminal is closed, and is unknown to Windows.
ENDING = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(KeyboardInterrupt):
    """A signal, known by its number, which asks the process to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


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

    with _handled_by(end):
        yield


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Have those signals end the process meanwhile, while there is nothing yet to be cleared away.

    An exception that is raised while an extension module is initialized, as those of JAX, may abort the process.
    """

    def end(number: int, frame: FrameType | None) -> None:
        code = _say_that_ended(number)
        sys.stderr.flush()
        os._exit(code)

    with _handled_by(end):
        yield


@contextmanager
def ending_held() -> Iterator[None]:
    """Hold those signals back meanwhile, and let the first of them act at the end.

    For what is made or given back wholly or not at all: an exception in the middle of that leaves processes behind, or
    locks.
    """
    held: list[int] = []
    try:
        with _handled_by(lambda number, frame: held.append(number)):
            yield
    finally:
        if held:
            signal.raise_signal(held[0])


@contextmanager
def _handled_by(end: Callable[[int, FrameType | None], None]) -> Iterator[None]:
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


def exit_code(run: Callable[[], int]) -> int:
    """Return the exit code that `run` returns, or 128 + n, said on standard error, where signal n ends it."""
    with ending_signals():
        try:
            return run()
        except BaseException as error:
            interrupt = _interrupt_behind(error)
            if interrupt is None:
                raise
            return _say_that_ended(interrupt.number if isinstance(interrupt, Ended) else signal.SIGINT)


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the first interrupt on the way to `error`, which may have been raised as another was handled.

    `compare` raises one of its own, and what an interrupt leaves in disorder may raise anything: a wait of
    `threading`, for instance, that "release unlocked lock".
    """
    found, before = None, error
    while before is not None:
        found = before if isinstance(before, KeyboardInterrupt) else found
        before = before.__context__
    return found


def _say_that_ended(number: int) -> int:
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    kept = "files written so far are whole, the others are missing"
    again = "run the same again: what is stored of a sweep is not computed again"
    print(f"flowsim: {how}; {kept}; {again}", file=sys.stderr)
    return 128 + number
