"""A progress bar with the time left, on a terminal or in a notebook."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console as Console
from rich.progress import BarColumn, Progress as Bars, TaskID, TextColumn, TimeRemainingColumn

from .progress import Progress, ProgressReporter


@contextmanager
def show_progress_bar(console: Console, name: str = "", *, drawings_per_second: int = 4) -> Iterator[ProgressReporter]:
    """Show a bar for one stage of the work after the other; nothing on a console that is no terminal.

    The speed from which the time left follows is that of the whole stage, not of its last moments: parts of a sweep
    may take half a minute each. A drawing takes a millisecond or two from the work itself.
    """
    if not console.is_terminal:
        yield ProgressReporter(None)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(24), TextColumn("{task.fields[part]}"))
    options = {"console": console, "transient": True, "refresh_per_second": drawings_per_second}
    with Bars(*columns, TimeRemainingColumn(), speed_estimate_period=math.inf, **options) as bars:
        yield ProgressReporter(_Bar(bars, bars.add_task(name, total=None, part=""), name))


class _Bar:
    """The callback that moves the bar at every event."""

    def __init__(self, bars: Bars, task: TaskID, name: str):
        self._bars, self._task, self._name, self._stage = bars, task, name, None

    def __call__(self, event: Progress) -> None:
        fraction = event.fraction
        shown = {
            "completed": fraction or 0.0,
            "total": None if fraction is None else 1.0,
            "part": "" if fraction is None else f"{fraction:4.0%}",
        }
        if event.stage != self._stage:  # another task: the time left of one says nothing of the next
            self._stage = event.stage
            self._bars.remove_task(self._task)
            self._task = self._bars.add_task(": ".join(filter(None, (self._name, event.stage))), **shown)
        self._bars.update(self._task, **shown)
