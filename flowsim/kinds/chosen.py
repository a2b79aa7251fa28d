"""A place in a section where a recipe of any kind may stand: the kind is looked up, and checks its own options."""

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from .registry import OUTSIDE, Registry, UnknownKindError
from .section import Recipe

UNKNOWN_KIND = "unknown_kind"


def is_recipe_of(base: type[Recipe]) -> Callable[[Any], bool]:
    """Return the test of a registry for the recipes that are kinds of `base` and lack none of its methods."""
    return lambda kind: inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)


class Chosen:
    """Marks a field as a recipe of any kind in a registry: `network: Annotated[NetworkRecipe, Chosen(NETWORKS)]`.

    `recipe` returns the recipe of what is registered, where that is not one itself. With `word`, a kind without
    options may be written as its name alone: `loss: squared_error`.
    """

    def __init__(
        self, registry: Registry[Any], *, recipe: Callable[[Any], type[Recipe]] = lambda kind: kind, word: bool = False
    ):
        self.registry, self.word, self._recipe = registry, word, recipe

    def registered(self) -> dict[str, type[Recipe]]:
        """Return the recipes of all registered kinds by their names."""
        return {name: self.recipe(name) for name in self.registry}

    def recipe(self, name: str) -> type[Recipe]:
        """Return the recipe of the kind called `name`. Raises `UnknownKindError` where there is none."""
        return self._recipe(self.registry[name])

    def named(self, value: Any) -> Any:
        """Return the name of the kind that a section of YAML chooses, whatever it is; None for none."""
        return value.get("kind") if isinstance(value, dict) else value if self.word else None

    def expected(self) -> str:
        """Return in words which kinds there are."""
        return self.registry.expected_names()

    def validate(self, value: Any) -> Recipe:
        """Return the recipe that `value` describes; a recipe goes through, and is told its name."""
        if isinstance(value, Recipe):
            name = value.kind or self.registry.name_of(type(value))
            return value if value.kind == name else value.model_copy(update={"kind": name})
        if not isinstance(value, dict) and not (self.word and isinstance(value, str)):
            raise PydanticKnownError("dict_type")
        name = self.named(value)
        place = ("kind",) if isinstance(value, dict) else ()
        try:
            recipe = self.recipe(_word(name, self.registry))
        except UnknownKindError as error:
            raise _unknown(error, place, name, self.registry) from None
        options = value if isinstance(value, dict) else {}
        return recipe.model_validate({"kind": name, **options})

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"oneOf": list(self._json_schemas(handler))}

    def _json_schemas(self, handler: GetJsonSchemaHandler) -> Iterator[dict[str, Any]]:
        for name, recipe in self.registered().items():
            made = handler(recipe.__pydantic_core_schema__)
            described = handler.resolve_ref_schema(made)
            described["properties"]["kind"] = {"const": name, "description": described.get("description", name)}
            described["required"] = ["kind", *described.get("required", ())]
            yield made
        outside = {"type": "string", "pattern": f"^{OUTSIDE}$", "description": f"{self.registry.thing} of your own."}
        yield {"type": "object", "properties": {"kind": outside}, "required": ["kind"]}
        if self.word:
            yield {"anyOf": [{"enum": list(self.registry)}, outside]}


def _word(name: Any, registry: Registry[Any]) -> str:
    if isinstance(name, str):
        return name
    found = "nothing" if name is None else json.dumps(name, default=str)
    raise UnknownKindError(found, registry.expected_names(), next(iter(registry), "my_module:MyKind"))


def _unknown(error: UnknownKindError, place: tuple[str, ...], name: Any, registry: Registry[Any]) -> ValidationError:
    """Return the error of a kind that there is not, at its `place` in the section that names it."""
    found = f"the text {error.found}" if isinstance(name, str) else error.found
    write = registry.written("kind", error) if place else error.write
    said = {"found": found, "expected": error.expected, "write": write, "at": ()}
    made = PydanticCustomError(UNKNOWN_KIND, "found {found}; expected {expected}; write {write}", said)
    return ValidationError.from_exception_data("kind", [InitErrorDetails(type=made, loc=place, input=name)])
