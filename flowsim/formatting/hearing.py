"""Who hears of long work."""

from collections.abc import Iterator
from contextlib import contextmanager

from .progress import Heard, Listener, check_progress


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
