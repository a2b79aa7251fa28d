"""How results show themselves: they hold numbers, and rooms above register what their tables and figures are.

There are two registrations. Tables (`register_tables`) are those of `flowsim/tables/views.py` for results of the core,
and need Rich alone. Views (`register_view`), in `flowsim/report/views.py`, also draw and save: they bring Matplotlib,
xarray and pandas along. Each room is imported when something that it registers is first asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table
    from rich.text import Text

_tables: dict[type, Callable[[Any], Any]] = {}
_views: dict[type, Callable[[Any], Any]] = {}
_rooms: list[Callable[[], object]] = []


def load_rooms_by(*rooms: Callable[[], object]) -> None:
    """Have these called, one after the other, until a class is registered: each imports what registers some."""
    _rooms.extend(rooms)


def register_tables(kind: type, make: Callable[[Any], "Sequence[Table | Text] | None"]) -> None:
    """Have `make` return the tables of a result of a class, in order; `None` where there are none, as of a batch."""
    _tables[kind] = make


def register_view(kind: type, make: Callable[[Any], Any]) -> None:
    """Have `make` return the view of a result of a class.

    A view has what the class of the result offers of `to_dataframe`, `figures`, `plot`, and `save`.
    """
    _views[kind] = make


def tables_of(result: Any) -> "Sequence[Table | Text] | None":
    """Return the tables of a result, by its class or the nearest of those that it derives from."""
    return _registered(_tables, type(result))(result)


def view_of(result: Any) -> Any:
    """Return the view of a result, by its class or the nearest of those that it derives from."""
    return _registered(_views, type(result))(result)


def _registered(makers: Mapping[type, Callable[[Any], Any]], kind: type) -> Callable[[Any], Any]:
    for load in (lambda: None, *_rooms):  # again where one did not come to its end, as at Ctrl-C
        load()
        for base in kind.__mro__:
            if base in makers:
                return makers[base]
    raise TypeError(f"nothing is registered for {kind.__name__}: see flowsim.formatting.presentation")


class Shown:
    """A result that is printed as the table of the command line, and shown as a table in a notebook."""

    def __str__(self) -> str:
        from .terminal import printed  # limits its text to what standard output can hold

        tables = tables_of(self)
        return repr(self) if tables is None else "\n\n".join(map(printed, tables))

    def _repr_html_(self) -> str | None:
        from .html import as_html

        tables = tables_of(self)
        return None if tables is None else as_html(tables)


class Drawn(Shown):
    """A result of runs, which is also drawn, handed on as a table of pandas, and saved."""

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return the numbers as a table of pandas; `attrs` has `long_name` and `units` of the columns by name.

        Of runs from one initialization there is a row for each run and record: beside what was recorded `run`, a
        number, `dynamics`, `learning_rate`, NaN for the flow, and `record`. Of a sweep there is a row for the end of
        each run, by the point of the grid, repetition and run; `outcome` is its name, "NOT_ASKED" for a run that was
        not requested and "FAILED" for one that could not be computed. Of an array of numbers each is a column, name_0,
        name_1, ….
        """
        return view_of(self).to_dataframe()

    def figures(self) -> "dict[str, Figure]":
        """Return the figures by name.

        Of runs from one initialization these are "sharpness", beside descents "distance", those of probes, and how far
        runs came: "squared_distance", for networks without a regressor "excess_risk", and "risk" if its minimum is
        unknown. Of a sweep these are "sharpness", how far runs came, and where a run diverged, "divergence".
        """
        return view_of(self).figures()

    def plot(self, quantity: str, ax: "Axes | None" = None, *, at: Mapping[str, Any] | None = None) -> "Axes":
        """Draw one quantity, such as "sharpness", "risk", or a probe by its name, and return the axes.

        It is drawn into `ax`, or into new axes of pyplot, as in the figures: name and scale of the axes, the edges of
        stability, the legend. Of runs from one initialization it is drawn against time. Of a sweep it is drawn at the
        ends of the runs along the first axis of the grid, the median over the repetitions with a band from the first
        quartile to the third; `at`, for a sweep alone, gives the values of the other axes by name, as {"depth": 10},
        the first where it does not. Raises `ValueError`, with what is known, for names and values that are not there.
        """
        return view_of(self).plot(quantity, ax, **({} if at is None else {"at": at}))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the data set, the summary and the figures into `folder`, and return their paths.

        `flowsim.open_results(folder)` shows and tells all of it again; networks and the weights along the paths are not
        among it. Raises `StoreError` where the folder holds other results, which `overwrite` gives up, and where it
        cannot be written.
        """
        return view_of(self).save(folder, overwrite=overwrite)
