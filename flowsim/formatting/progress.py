"""What is heard of long work: one event, for a bar, a notebook or a function of one's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Progress(str):
    """What is being done, and how much of it is: `done` of `total`, in `unit`s, or as a part of the whole without one.

    It is a text too, such as "gradient flow: 40%", so that any function of a text can hear it, `print` among them. At
    the beginning of a `stage` that text is the stage alone. `total` is `None` where nothing is known of how long it
    takes, and may change on the way, as where a run ends early.
    """

    stage: str
    done: float
    total: float | None
    unit: str

    def __new__(cls, stage: str, done: float = 0.0, total: float | None = None, unit: str = "") -> "Progress":
        """Return the event."""
        event = str.__new__(cls, f"{stage}: {_counted(done, total, unit)}" if done and total else stage)
        event.stage, event.done, event.total, event.unit = stage, done, total, unit
        return event

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; `None` where that is not known."""
        return _part(self.done, self.total)

    def renamed(self, stage: str) -> "Progress":
        """Return the same as part of other work, which calls it `stage`."""
        return Progress(stage, self.done, self.total, self.unit)


def _counted(done: float, total: float, unit: str) -> str:
    return f"{done:.12g} of {total:.12g} {unit}" if unit else f"{done / total:.0%}"


def _part(done: float, total: float | None) -> float | None:
    if total is None:
        return None
    return min(max(done / total, 0.0), 1.0) if total > 0 else 1.0


Listener = Callable[[Progress], None]


@dataclass(frozen=True)
class Heard:
    """Who hears of some work, `None` for nobody."""

    listener: Listener | None

    def __call__(self, event: Progress) -> None:
        """Tell who hears."""
        if self.listener is not None:
            self.listener(event)

    def during(self, stage: str) -> bool | Listener:
        """Return the `progress` of a part of this work, which is to be heard as that of `stage`."""
        listener = self.listener
        return False if listener is None else lambda event: listener(event.renamed(stage))


def check_progress(progress: object) -> None:
    """Raise `TypeError` for what is neither True, False nor a function."""
    if not (isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"progress must be True for a bar, False, or a function of a flowsim.Progress, got {progress!r}"
        )


@contextmanager
def heard(progress: bool | Listener) -> Iterator[Heard]:
    """Provide who hears of some work: nobody, a function, or for True a bar with the time left.

    The bar is drawn on standard error, where that is a terminal, or in a notebook (which needs ipywidgets); it is gone
    when the work ends, and elsewhere nothing is written. Raises `TypeError` for what is neither True, False nor a
    function.
    """
    check_progress(progress)
    if progress is True:
        from .progress_bar import Console, shown_on  # takes a moment to import, and is only for those who look

        with shown_on(Console(stderr=True)) as shown:
            yield shown
    else:
        yield Heard(progress or None)
