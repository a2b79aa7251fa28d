"""A place in a section where the name of a kind may stand."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from .registry import OUTSIDE, Registry, UnknownKindError
from .values import refusal


class Named:
    """Marks a field as the name of a kind, or as a word `besides`: `solver: Annotated[str, Named(SOLVERS, "auto")]`.

    `use` is called with the kind, to see that it can be used as it is.
    """

    def __init__(self, registry: Registry[Any], besides: str, use: Callable[[Any], Any] = lambda kind: kind):
        self._registry, self._besides, self._use = registry, besides, use

    def expected(self) -> str:
        """Return in words which names there are."""
        return self._registry.expected_names().replace("one of ", f"one of {self._besides}, ", 1)

    def validate(self, name: str, key: str) -> str:
        """Return `name`, the value of `key`.

        Raises what a section says of a name without a kind, and of a kind that cannot be used.
        """
        if name == self._besides:
            return name
        try:
            self._use(self._registry[name])
        except UnknownKindError as error:
            expected = error.expected.replace("one of ", f"one of {self._besides}, ")
            raise refusal(found=error.found, expected=expected, write=self._registry.written(key, error)) from None
        except Exception as error:  # whatever the code of a user does
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise refusal(
                found=f"{name!r}, which cannot be used as it is ({reason})",
                expected=f"{self._registry.thing} that needs no arguments and fits here",
                write=f"{key}: {self._besides}",
            ) from None
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        key = handler.field_name or "kind"
        return core_schema.no_info_after_validator_function(lambda name: self.validate(name, key), handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        outside = {"type": "string", "pattern": f"^{OUTSIDE}$", "description": f"{self._registry.thing} of your own."}
        return {"anyOf": [{"enum": [self._besides, *self._registry]}, outside]}


def named_in(section: BaseModel) -> Iterator[str]:
    """Yield the names of kinds that stand in the fields of a section, and the words besides."""
    for key, field in type(section).model_fields.items():
        if any(isinstance(mark, Named) for mark in field.metadata):
            yield getattr(section, key)
        elif any(isinstance(mark, Named) for entry in get_args(field.annotation) for mark in get_args(entry)[1:]):
            yield from getattr(section, key)
