"""Figures that a scenario asks for by name: the kind of thing that they are, and how they stand in a scenario."""

import importlib.util
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ..kinds import Registry, UnknownKindError, is_kind_of, reason_of
from ..kinds.recipes import validation_error

if TYPE_CHECKING:
    import matplotlib.figure

    from ..theory import Claim
    from .results import Results


class Figure(ABC):
    """A figure of stored results, which a scenario asks for as `figure: my_module:MyFigure`.

    To add one, write a subclass that can be made without arguments, with a `name` and `draw`; whatever it shows stands
    in the stored data sets. Import Matplotlib inside `draw`, so that a scenario can be checked without it.
    """

    name: ClassVar[str]
    """What its files are called, without suffix."""

    @abstractmethod
    def draw(self, results: "Results") -> "matplotlib.figure.Figure":
        """Return the figure, from the data sets of `results` alone."""

    def validation_errors(self, scenario: Any) -> Iterable[PydanticCustomError]:
        """Return why `scenario` does not make what the figure shows, each a `validation_error`; by default nothing."""
        return ()

    def claims(self, results: "Results") -> "Sequence[Claim]":
        """Return the claims of the figure with the numbers measured; by default none."""
        return ()


def _is_figure(kind: Any) -> bool:
    return is_kind_of(Figure)(kind) and isinstance(getattr(kind, "name", None), str)


FIGURES: Registry[type[Figure]] = Registry(
    "a figure", accepts=_is_figure, expected="a subclass of flowsim.results.Figure with a name and draw"
)


def figures_of(names: Iterable[str] | None) -> tuple[Figure, ...]:
    """Return the figures of these names. Raises `UnknownKindError` for a name without one."""
    return tuple(FIGURES[name]() for name in names or ())


def figure_errors(names: Iterable[str] | None, scenario: Any) -> Iterator[PydanticCustomError]:
    """Yield why `scenario` does not make what the figures of these names show."""
    for name, figure in zip(names or (), figures_of(names), strict=True):
        try:
            found = list(figure.validation_errors(scenario))
        except Exception as error:  # whatever the code of a user does
            found = [_unusable(name, "say what it refuses", error)]
        yield from found


def _unusable(name: str, ability: str, error: Exception) -> PydanticCustomError:
    return validation_error(
        found=f"{name!r}, which cannot {ability} ({reason_of(error)})",
        expected="a subclass of flowsim.results.Figure that is made without arguments",
        write="figure: null, or mend it",
        at=(),
    )


def _as_names(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if value is None or isinstance(value, list | tuple):
        return value
    home = importlib.util.find_spec("flowsim.papers")
    folders = home.submodule_search_locations if home else None
    shipped = ", ".join(f"flowsim.papers.{module.name}" for module in pkgutil.iter_modules(folders)) if folders else ""
    raise validation_error(
        found=f"{value!r}",
        expected="the place of a figure, or a list of them" + (f" (flowsim has those of {shipped})" if shipped else ""),
        write="figure: my_module:MyFigure",
    )


def _known(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    files: set[str] = set()
    for name in names or ():
        try:
            figure = FIGURES[name]()
        except UnknownKindError as error:
            raise validation_error(found=error.found, expected=error.expected, write=error.write) from None
        except Exception as error:  # whatever the code of a user does
            raise _unusable(name, "be made without arguments", error) from None
        if figure.name in files:
            raise validation_error(
                found=f"two figures called {figure.name}", expected="different names", write="one of them"
            )
        files.add(figure.name)
    return names


FigureNames = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...] | None,
    Field(strict=False),
    BeforeValidator(_as_names),
    AfterValidator(_known),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]
"""One figure or several, by their names; `None` for none."""
