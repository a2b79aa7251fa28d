"""Ctrl-C, SIGTERM and SIGHUP end a command alike, also while it is still being imported."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

from .errors import print_error

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
        os._exit(_say_that_ended(number))

    with _handled_by(end):
        yield


@contextmanager
def ending_held() -> Iterator[None]:
    """Hold those signals back meanwhile: the first of them acts at the end, the others are dropped.

    For what is made or given back wholly or not at all: an exception in the middle of that leaves processes behind, or
    locks. Signals act in the main thread, and nothing is held in another.
    """
    held: list[int] = []
    try:
        with _handled_by(lambda number, frame: held.append(number)):
            yield
    finally:
        if held:
            signal.raise_signal(held[0])


_Handler = Callable[[int, FrameType | None], None]
_acting: list[_Handler] = []  # the innermost last; changed in the main thread alone


def _act(number: int, frame: FrameType | None) -> None:
    _acting[-1](number, frame)


@contextmanager
def _handled_by(end: _Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # no other may set handlers
        yield
        return
    with nullcontext() if _acting else _installed():
        outer = len(_acting)
        try:
            _acting.append(end)
            yield
        finally:
            del _acting[outer:]


@contextmanager
def _installed() -> Iterator[None]:
    """Have `_act` handle those signals meanwhile; what comes while that is set up or taken away acts afterwards."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    late: list[int] = []
    _acting.append(lambda number, frame: late.append(number))
    try:
        for number in before:
            signal.signal(number, _act)
        yield
    finally:
        try:
            for number in reversed(before):  # SIGINT last: its own handler raises, and would leave the others
                signal.signal(number, before[number])
        finally:
            _acting.clear()
        if late:
            signal.raise_signal(late[0])


def exit_code(run: Callable[[], int]) -> int:
    """Return the exit code that `run` returns, or 128 + n, said on standard error, where signal n ends it."""
    with ending_signals():
        try:
            return run()
        except BaseException as error:
            interrupt = interrupt_behind(error)
            if interrupt is None:
                raise
            return _say_that_ended(interrupt.number if isinstance(interrupt, Ended) else signal.SIGINT)


def interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the earliest interrupt among an error and those that were being handled when it was raised.

    What an interrupt leaves in disorder may raise anything: `threading.Condition.wait`, for instance, RuntimeError
    ("release unlocked lock"). `compare` raises an interrupt of its own.
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
    print_error(f"flowsim: {how}; {kept}; {again}")
    return 128 + number
