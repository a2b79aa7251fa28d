"""Sections of YAML: what every one of them obeys, the kinds of value they hold, and their validation errors."""

import json
import os
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

MOST_NUMBERS = 2_000_000_000  # 16 GB in float64: an array beyond this is a typing error, not an experiment
KeyPath = tuple[str | int, ...]


def validation_error(*, found: str, expected: str, write: str, at: KeyPath = ()) -> PydanticCustomError:
    """Return the error of a rule that spans several values; `at` is the key to blame, seen from the section."""
    context = {"found": found, "expected": expected, "write": write, "at": at}
    return PydanticCustomError("refused", "found {found}; expected {expected}; write {write}", context)


def too_large(found: str, what: str, at: KeyPath) -> PydanticCustomError:
    """Return the validation error of more numbers than a computer holds, for which `what` is to blame."""
    return validation_error(
        found=found, expected=f"at most {MOST_NUMBERS}", write=f"a smaller number for {what}", at=at
    )


def within(section: KeyPath, errors: Iterable[PydanticCustomError]) -> Iterator[PydanticCustomError]:
    """Yield the errors of a section as seen from the section around it."""
    for error in errors:
        context = error.context or {}
        yield validation_error(**{**context, "at": (*section, *context["at"])})


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `values`, of which none may stand there twice."""
    once = Counter(values)
    if len(once) < len(values):
        repeated = next(value for value, count in once.items() if count > 1)
        write = json.dumps(list(once)) if len(once) <= 20 else "every entry once"
        raise validation_error(found=f"{repeated!r} twice", expected="no repetitions", write=write)
    return values


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


# Comes before a strict int: 3.0 is a whole number; 3.5, true and "3" are not.
WHOLE = BeforeValidator(_whole)

Count = Annotated[int, Field(ge=1), WHOLE]
CountOrZero = Annotated[int, Field(ge=0), WHOLE]
Depth = Annotated[int, Field(ge=1, le=100_000, examples=[10]), WHOLE]
Scale = Annotated[float, Field(ge=0, le=1e30, examples=[0.5])]
Condition = Annotated[float, Field(ge=1, le=1e12)]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_names),
    AfterValidator(distinct),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
FileName = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]  # as `user_path`, but not rewritten


class Section(BaseModel):
    """The rules of every section: no unknown key, no change after reading, no silent conversion, no NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield why the values do not go together, each a `validation_error`; the first is raised."""
        yield from ()

    @model_validator(mode="after")
    def _raise_validation_errors(self) -> "Section":
        for error in self.validation_errors():
            raise error
        return self


class Recipe(Section):
    """What YAML says of one kind of something: the fields are its options, and its methods make the thing.

    Options are numbers, words, true or false, and tuples of them, annotated and documented; a kind that has some
    which no sweep may run over names them in `unswept`.
    """

    unswept: ClassVar[frozenset[str]] = frozenset()

    kind: str = Field(default="", examples=["my_module:MyKind"])
    """The name of the kind: a registered one, or the place of one's own, as my_module:MyKind."""

    @model_validator(mode="before")
    @classmethod
    def _lists_as_tuples(cls, options: Any) -> Any:
        # YAML has lists and a frozen model has tuples: the container alone is lax, its entries stay strict.
        if not isinstance(options, dict):
            return options
        tuples = {key for key, field in cls.model_fields.items() if _admits_tuples(field.annotation)}
        return {key: tuple(value) if key in tuples and type(value) is list else value for key, value in options.items()}


def _admits_tuples(annotation: Any) -> bool:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _admits_tuples(members[0])
    if origin in (typing.Union, types.UnionType):
        return any(map(_admits_tuples, members))
    return annotation is tuple or origin is tuple
