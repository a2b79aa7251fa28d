"""Fields of a section in which a user chooses among kinds: a recipe of any kind with its options, or a name alone."""

import json
from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from ..registry import Registry, UnknownKindError, reason_of
from .values import Recipe, validation_error

UNKNOWN_KIND = "unknown_kind"


class Chosen:
    """Marks a field as a recipe of any kind in a registry: `network: Annotated[NetworkRecipe, Chosen(NETWORKS)]`.

    `recipe` returns the recipe of what is registered, where that is not one itself. With `word`, a kind without
    options may be written as its name alone: `loss: squared_error`. With `names`, it may too, and stays a name.
    """

    def __init__(
        self,
        registry: Registry[Any],
        *,
        recipe: Callable[[Any], type[Recipe]] = lambda kind: kind,
        word: bool = False,
        names: "Named | None" = None,
    ):
        self.registry, self.word, self.names, self._recipe = registry, word or names is not None, names, recipe

    def registered(self) -> dict[str, type[Recipe]]:
        """Return the recipes of all registered kinds by their names."""
        return {name: self.recipe(name) for name in self.registry}

    def recipe(self, name: str) -> type[Recipe]:
        """Return the recipe of the kind called `name`. Raises `UnknownKindError` where there is none."""
        return self._recipe(self.registry[name])

    def example(self, name: str) -> dict[str, Any]:
        """Return a section of YAML of the kind called `name`, with examples of all options that it requires."""
        fields = self.recipe(name).model_fields
        required = {key: field.examples[0] for key, field in fields.items() if field.is_required() and field.examples}
        return {"kind": name} | required

    def named(self, value: Any) -> Any:
        """Return the name of the kind that a section of YAML chooses, whatever it is; None for none."""
        return value.get("kind") if isinstance(value, dict) else value if self.word else None

    def validate(self, value: Any) -> Recipe | str:
        """Return the recipe that `value` describes; one that is a recipe already gets its name."""
        if self.names is not None and isinstance(value, str):
            return self.names.validate(value, "kind")
        if isinstance(value, Recipe):
            name = value.kind or self.registry.name_of(type(value))
            return value if value.kind == name else value.model_copy(update={"kind": name})
        if not isinstance(value, dict) and not (self.word and isinstance(value, str)):
            raise PydanticKnownError("dict_type")
        name, options = self.named(value), value if isinstance(value, dict) else None
        try:
            if not isinstance(name, str):
                found = "nothing" if name is None else json.dumps(name, default=str)
                write = next(iter(self.registry), "my_module:MyKind")
                raise UnknownKindError(found, self.registry.expected_names(), write)
            recipe = self.recipe(name)
        except UnknownKindError as error:
            found = f"the text {error.found}" if isinstance(name, str) else error.found
            write = error.write if options is None else self.registry.written("kind", error)
            context = {"found": found, "expected": error.expected, "write": write, "at": ()}
            near = isinstance(name, str) and self.registry.nearest(name)
            context["names"], context["examples"] = list(self.registry), [self.example(near)] if near else []
            unknown = PydanticCustomError(UNKNOWN_KIND, "found {found}; expected {expected}; write {write}", context)
            details = InitErrorDetails(type=unknown, loc=() if options is None else ("kind",), input=name)
            raise ValidationError.from_exception_data("kind", [details]) from None
        return recipe.model_validate({"kind": name, **(options or {})})

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schemas: list[dict[str, Any]] = []
        for name, recipe in self.registered().items():
            made = handler(recipe.__pydantic_core_schema__)
            described = handler.resolve_ref_schema(made)
            described["properties"]["kind"] = {"const": name, "description": described.get("description", name)}
            described["required"] = ["kind", *described.get("required", ())]
            schemas.append(made)
        schemas.append({"type": "object", "properties": {"kind": self.registry.place_schema()}, "required": ["kind"]})
        if self.names is not None:
            schemas.append(self.names.json_schema())
        elif self.word:
            schemas.append(self.registry.names_schema())
        return {"oneOf": schemas}


class Named:
    """Marks a field as the name of a kind, or as a word `besides`: `solver: Annotated[str, Named(SOLVERS, "auto")]`.

    `use` is called with the kind, to see that it can be used as it is. An `entry` is the name in a list of them.
    """

    def __init__(
        self,
        registry: Registry[Any],
        *besides: str,
        use: Callable[[Any], Any] = lambda kind: kind,
        entry: bool = False,
    ):
        self._registry, self._besides, self._use, self._entry = registry, besides, use, entry

    def validate(self, name: str, key: str) -> str:
        """Return `name`, the value of `key`.

        Raises what a section says of a name without a kind, and of a kind that cannot be used.
        """
        if name in self._besides:
            return name
        try:
            self._use(self._registry[name])
        except UnknownKindError as error:
            expected = error.expected.replace("one of ", f"one of {', '.join((*self._besides, ''))}")
            write = error.write if self._entry else self._registry.written(key, error)
            raise validation_error(found=error.found, expected=expected, write=write) from None
        except Exception as error:  # whatever the code of a user does
            raise validation_error(
                found=f"{name!r}, which cannot be used as it is ({reason_of(error)})",
                expected=f"{self._registry.thing} that needs no arguments and fits here",
                write=f"{'' if self._entry else f'{key}: '}{next(iter((*self._besides, *self._registry)))}",
            ) from None
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        key = handler.field_name or "kind"
        return core_schema.no_info_after_validator_function(lambda name: self.validate(name, key), handler(source))

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a name."""
        return self._registry.names_schema(*self._besides)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.json_schema()


def named_in(section: BaseModel) -> Iterator[str]:
    """Yield the names of kinds in the fields of a section, of entries of a list too, and the other words there."""
    for key, field in type(section).model_fields.items():
        if any(isinstance(mark, Named) for mark in field.metadata):
            yield getattr(section, key)
        for mark in (mark for entry in get_args(field.annotation) for mark in get_args(entry)[1:]):
            if isinstance(mark, Chosen) and mark.names is not None:
                yield from (entry if isinstance(entry, str) else entry.kind for entry in getattr(section, key))
