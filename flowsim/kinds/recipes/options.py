"""The options of any class or function, as YAML may write them: its parameters, with their types and defaults."""

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import Field, create_model
from pydantic_core import PydanticCustomError

from ..registry import OUTSIDE, UnknownKindError, imported, reason_of
from .values import WHOLE, Recipe, validation_error

Recipe_ = TypeVar("Recipe_", bound="Made")

_EXAMPLES: dict[Any, Any] = {float: 1.0, int: 1, bool: True, str: "word"}
_NOTHING = inspect.Parameter.empty


class Made(Recipe):
    """A recipe whose options are the parameters of a class or function, which it calls.

    Parameters that are `given` are no options: whoever calls `make` hands them over.
    """

    makes: ClassVar[Callable[..., Any]]
    given: ClassVar[frozenset[str]] = frozenset()
    origin: ClassVar[tuple[Callable[[Any], "type[Made]"], Any]]
    """The function that makes this class of a kind, and the kind."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has no such class: it makes it of the kind, which goes by its name if that is a place.
        recipe, kind = type(self).origin
        options = {key: getattr(self, key) for key in self.model_fields_set}
        return _received, (recipe, self.kind if re.fullmatch(OUTSIDE, self.kind) else kind, options)

    def make(self, **given: Any) -> Any:
        """Call the class or function with the options, and with what it asks for of all that is given."""
        return type(self).makes(**self.options(), **{name: given[name] for name in self.given})

    def options(self) -> dict[str, Any]:
        """Return the options by their names."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "kind"}

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield the error that the class or function itself raises, where it can be called yet."""
        if not self.given:
            yield from refusal(self.make)


def _received(recipe: Callable[[Any], type[Made]], kind: Any, options: dict[str, Any]) -> Made:
    return recipe(imported(kind) if isinstance(kind, str) else kind).model_construct(**options)


def refusal(make: Callable[[], Any]) -> Iterator[PydanticCustomError]:
    """Yield the error that a kind raises for its options where it is made."""
    try:
        make()
    except Exception as error:  # whatever the code of a user does
        found = f"options that it refuses ({reason_of(error)})"
        yield validation_error(found=found, expected="options that fit it", write="others")


@cache
def recipe_of(
    kind: Callable[..., Any],
    *,
    given: frozenset[str] = frozenset(),
    base: type[Recipe_] = Made,
) -> type[Recipe_]:
    """Return the recipe that calls `kind`, a kind of `base`, with a field for each of its parameters but the `given`.

    An Equinox module or dataclass will do, and any class or function with annotated parameters. A parameter that YAML
    cannot write keeps its default. An option is described by the text below the field of the class, or by a
    `pydantic.Field` in its annotation. Raises `UnknownKindError` where there is no default.
    """
    hints: dict[str, Any] = {}
    for holder in (kind, kind.__init__) if inspect.isclass(kind) else (kind,):
        try:
            hints |= typing.get_type_hints(holder, include_extras=True)
        except Exception:  # a name that is there for type checkers alone
            hints |= getattr(holder, "__annotations__", {})
    fields: dict[str, Any] = {}
    parameters = inspect.signature(kind).parameters
    descriptions = meanings(kind) if parameters.keys() - given else {}
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in given:
            continue
        annotation = hints.get(parameter.name, type(parameter.default))
        if is_plain(annotation) and parameter.kind is not parameter.POSITIONAL_ONLY:
            # Without a description of the class the annotation may have one.
            described: dict[str, Any] = {}
            if parameter.name in descriptions:
                described["description"] = descriptions[parameter.name]
            if parameter.default is not _NOTHING:
                described |= {"default": parameter.default, "examples": [parameter.default]}
            elif annotation in _EXAMPLES:
                described["examples"] = [_EXAMPLES[annotation]]
            plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
            fields[parameter.name] = (Annotated[annotation, WHOLE] if plain is int else annotation, Field(**described))
        elif parameter.default is _NOTHING:
            raise UnknownKindError(
                f"{kind.__name__!r}, whose parameter {parameter.name} YAML cannot write",
                "parameters that are annotated as numbers, words, true or false, or tuples of them, or have defaults",
                f"a class of your own that chooses {parameter.name}",
            )
    made = create_model(kind.__name__, __base__=base, __doc__=inspect.getdoc(kind), **fields)
    made.makes, made.given = staticmethod(kind), given & parameters.keys()
    made.origin = partial(recipe_of, given=given, base=base), kind
    return made


def meanings(kind: Callable[..., Any]) -> dict[str, str]:
    """Return the text below each field of a class and of those that it is derived from, by the names of the fields.

        class Huber(Loss):
            delta: float = 1.0
            '''Where the loss goes over from a square to a straight line.'''

    A function has none, nor has a class of which Python does not know the text.
    """
    texts: dict[str, str] = {}
    for holder in reversed(kind.__mro__) if inspect.isclass(kind) else ():
        if holder.__module__ == "builtins" or not inspect.get_annotations(holder):
            continue
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(holder))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # typed into a prompt, or made by a program
            continue
        for field, below in pairwise(getattr(body, "body", ())):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, str)
                and text.strip()
            ):
                texts[field.target.id] = inspect.cleandoc(text)
    return texts


def is_plain(annotation: Any) -> bool:
    """Return whether YAML can write every value of a type: numbers, words, true, false and null, and tuples of them."""
    if annotation in (int, float, bool, str, type(None)) or get_origin(annotation) is Literal:
        return True
    if get_origin(annotation) is Annotated:
        return is_plain(get_args(annotation)[0])
    if get_origin(annotation) in (typing.Union, types.UnionType, tuple):
        return all(member is Ellipsis or is_plain(member) for member in get_args(annotation))
    return False
