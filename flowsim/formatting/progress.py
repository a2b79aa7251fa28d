"""The progress of long work, as events that go to a progress bar or to a callback of one's own."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Timer
from typing import TYPE_CHECKING

from .encoding import encodable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars, TaskID


class Progress(str):
    """An event: which stage of some work is running, and how much of it is done.

    An event is also a text, such as "gradient flow: 40%" (at the beginning of a stage the name of the stage alone), so
    that any function of a text is a callback, `print` among them.
    """

    stage: str
    """What is running."""
    done: float
    """How much of it is done."""
    total: float | None
    """How much there is to do; `None` where that is not known. It may change, as where a run ends early."""
    unit: str
    """In what both are counted; without one they are fractions."""
    compiling: bool
    """Whether JAX has begun to trace and compile a program: until the next event nothing is done."""

    def __new__(
        cls, stage: str, done: float = 0.0, total: float | None = None, unit: str = "", *, compiling: bool = False
    ) -> "Progress":
        """Return the event."""
        text = stage
        if compiling:
            text += ": compiling"
        elif done and total:
            text += f": {done:.12g} of {total:.12g} {unit}" if unit else f": {done / total:.0%}"
        event = str.__new__(cls, encodable(text))  # `print` is a callback
        event.stage, event.done, event.total, event.unit, event.compiling = stage, done, total, unit, compiling
        return event

    @property
    def fraction(self) -> float | None:
        """The fraction that is done, from 0 to 1; `None` where the total is not known."""
        if self.total is None:
            return None
        return min(max(self.done / self.total, 0.0), 1.0) if self.total > 0 else 1.0

    def renamed(self, stage: str) -> "Progress":
        """Return the event of the work that this is a part of, which calls the part `stage`."""
        return Progress(stage, self.done, self.total, self.unit, compiling=self.compiling)

    def while_compiling(self) -> "Progress":
        """Return the event that a program is compiled at this point of the work."""
        return Progress(self.stage, self.done, self.total, self.unit, compiling=True)


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class ProgressReporter:
    """Passes events on to a `callback`; `None` for nobody."""

    callback: ProgressCallback | None

    def __call__(self, event: Progress) -> None:
        """Report an event."""
        if self.callback is not None:
            self.callback(event)

    def during(self, stage: str) -> bool | ProgressCallback:
        """Return the argument `progress` for a part of this work, whose events are reported as those of `stage`."""
        callback = self.callback
        return False if callback is None else lambda event: callback(event.renamed(stage))


def check_progress(progress: object) -> None:
    """Raise `TypeError` for what is neither True, False, `None` nor a function."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            "progress must be True for a bar, None for one at a prompt, False, or a function of a flowsim.Progress, "
            f"got {progress!r}"
        )


@contextmanager
def report_progress(progress: bool | ProgressCallback | None, *, patience: float = 2.0) -> Iterator[ProgressReporter]:
    """Provide the reporter of some work: to nobody, to a callback, or for True to a bar with the time left.

    The bar is drawn on standard error, where that is a terminal, or in a notebook (which needs ipywidgets); it is gone
    when the work ends, and elsewhere nothing is written. `None` shows it where someone types commands and waits, for
    work of more than `patience` seconds that is no part of other work. Raises `TypeError` for what is neither True,
    False, `None` nor a function.
    """
    check_progress(progress)
    waited_for = progress is None and not _within_work.get() and _is_interactive()
    token = _within_work.set(True)
    try:
        if progress is True or waited_for:
            from rich.console import Console

            with show_progress_bar(Console(stderr=True), after=patience if waited_for else 0.0) as report:
                yield report
        else:
            yield ProgressReporter(progress or None)
    finally:
        _within_work.reset(token)


_within_work: ContextVar[bool] = ContextVar("within_work", default=False)


def _is_interactive() -> bool:
    """Tell whether this is a session at a prompt of Python or IPython, or a notebook that can show a bar; no test."""
    if not hasattr(sys, "ps1") or "PYTEST_CURRENT_TEST" in os.environ:
        return False
    return "ipykernel" not in sys.modules or find_spec("ipywidgets") is not None


@contextmanager
def show_progress_bar(
    console: "Console", name: str = "", *, after: float = 0.0, drawings_per_second: int = 4
) -> Iterator[ProgressReporter]:
    """Show a bar for one stage of the work after the other, if it takes more than `after` seconds.

    On a console that is neither a terminal nor a notebook's there is nothing.
    The speed from which the time left follows is that of the whole stage, not of its last moments: parts of a sweep
    may take half a minute each. A drawing takes a millisecond or two from the work itself.
    """
    # Not above: rich takes a moment to import.
    from rich.progress import BarColumn, Progress as Bars, TextColumn, TimeRemainingColumn

    if not (console.is_terminal or console.is_jupyter):
        yield ProgressReporter(None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(24), TextColumn("{task.fields[part]}"))
    options = {"console": console, "transient": True, "refresh_per_second": drawings_per_second}
    if after > 0:  # it comes in the middle of a call, which may have begun to print
        options |= {"redirect_stdout": False, "redirect_stderr": False}
    bars = Bars(*columns, TimeRemainingColumn(), speed_estimate_period=math.inf, **options)
    reporter = ProgressReporter(_Bar(bars, bars.add_task(name, total=None, part=""), name))
    starter = Timer(after, bars.start)  # a thread, as nothing is reported while a program is compiled
    starter.daemon = True
    try:
        if after > 0:
            starter.start()
        else:
            bars.start()
        yield reporter
    finally:
        starter.cancel()
        if starter.ident is not None:
            starter.join()
        if bars.live.is_started:
            bars.stop()


class _Bar:
    """The callback that moves the bar at every event."""

    def __init__(self, bars: "Bars", task: "TaskID", name: str):
        self._bars, self._task, self._name, self._stage = bars, task, name, None

    def __call__(self, event: Progress) -> None:
        fraction = None if event.compiling else event.fraction
        said = "compiling" if event.compiling else ""
        shown = {
            "completed": fraction or 0.0,
            "total": None if fraction is None else 1.0,
            "part": said if fraction is None else f"{fraction:4.0%}",
        }
        if event.stage != self._stage:  # another task: the time left of one says nothing of the next
            self._stage = event.stage
            self._bars.remove_task(self._task)
            self._task = self._bars.add_task(": ".join(filter(None, (self._name, event.stage))), **shown)
        self._bars.update(self._task, **shown)
