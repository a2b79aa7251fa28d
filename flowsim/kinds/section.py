"""What every section of a scenario obeys, and what YAML says of one kind of something."""

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """What every section obeys: no unknown key, no change after reading, no silent conversion, no NaN.

    A section refuses itself where values that are right one by one do not go together.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def validation_errors(self) -> Iterator[PydanticCustomError]:
        """Yield why the values do not go together, each made by `validation_error`; the first is what is said."""
        yield from ()

    @model_validator(mode="after")
    def _refuse(self) -> "Section":
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
