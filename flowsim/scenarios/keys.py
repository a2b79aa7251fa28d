"""Which keys a scenario may have, which depends on the kinds that it chooses."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic.fields import FieldInfo

from ..kinds import Chosen, KeyPath, Section, UnknownKindError, named_in
from ..kinds.registry import OUTSIDE
from .scenario import Scenario

AXES = ("sweep", "over")


def keys(section: KeyPath, content: Any) -> dict[str, FieldInfo]:
    """Return the keys that may stand in `section` of a scenario with this plain `content`.

    In a section with a `kind` they are those of that kind, and of every registered one where there is none of that
    name.
    """
    names = [part for part in section if isinstance(part, str)]
    if tuple(names[:2]) == AXES:
        return axes(content)
    fields = dict(Scenario.model_fields)
    inside, entered = content, None
    for part in section:
        if isinstance(part, str):
            inside, entered = inside.get(part) if isinstance(inside, dict) else None, fields.get(part)
        elif isinstance(inside, list | tuple):
            inside = inside[part] if part < len(inside) else None
        models = _models(entered, inside) if entered is not None else ()
        fields = {key: field for model in models for key, field in model.model_fields.items()}
    return fields


def axes(content: Any) -> dict[str, FieldInfo]:
    """Return what a sweep may run over: the single values of the sections with a kind, and of the flow."""
    found = {key: Scenario.model_fields[key] for key in ("seed", "precision")}
    for name, field in Scenario.model_fields.items():
        for model in _swept(name, field, content):
            unswept = getattr(model, "unswept", ())
            found |= {f"{name}.{key}": inner for key, inner in model.model_fields.items() if key not in unswept}
    return found


def choices() -> dict[str, Chosen]:
    """Return what may be chosen in the sections with a kind, by their names."""
    return {name: chosen for name, field in Scenario.model_fields.items() if (chosen := choice(field))}


def choice(field: FieldInfo) -> Chosen | None:
    """Return what may be chosen in a field, None where it has no kinds."""
    return next((mark for mark in field.metadata if isinstance(mark, Chosen)), None)


def choice_of_entries(field: FieldInfo) -> Chosen | None:
    """Return what may be chosen in the entries of a field that is a list, None where they have no kinds."""
    marks = (mark for entry in get_args(field.annotation) for mark in get_args(entry)[1:])
    return next((mark for mark in marks if isinstance(mark, Chosen)), None)


def sections() -> dict[str, tuple[type[Section], ...]]:
    """Return the sections of a scenario by their names, of every registered kind where there are several."""
    return {name: found for name, field in Scenario.model_fields.items() if (found := _models(field, None))}


def homes() -> dict[str, str]:
    """Return for every key of a scenario where it stands; of one in several sections, the first is its home."""
    inner = {
        key: f"{name}.{key}"
        for name, models in reversed(sections().items())
        for model in models
        for key in model.model_fields
        if key != "kind"  # at home in two sections
    }
    return {name: name for name in Scenario.model_fields} | inner


def named_kinds(name: str, content: Any) -> Iterator[Any]:
    """Yield the names of the kinds that section `name` of a plain scenario chooses, in itself and in its sweep."""
    content = content if isinstance(content, dict) else {}
    if name in content:
        yield choices()[name].named(content[name])
    over: Any = content
    for part in AXES:
        over = over.get(part) if isinstance(over, dict) else None
    values = over.get(f"{name}.kind") if isinstance(over, dict) else None
    yield from values if isinstance(values, list | tuple) else ()


def own_kinds(scenario: Scenario, descents: Iterable[str]) -> list[str]:
    """Return the kinds of a user's own, my_module:MyKind, in runs of a scenario with descents of these kinds."""
    kinds = {getattr(scenario, name).kind for name in choices()} | {entry.kind for entry in scenario.record}
    kinds |= set(descents)
    kinds |= {name for section in (scenario.data, scenario.network, scenario.flow) for name in named_in(section)}
    return sorted(kind for kind in kinds if re.fullmatch(OUTSIDE, kind))


def _swept(name: str, field: FieldInfo, content: Any) -> Iterator[type[Section]]:
    chosen = choice(field)
    if chosen is None:
        yield from _models(field, None) if name == "flow" else ()
        return
    yield from chosen.registered().values()
    for kind in named_kinds(name, content):
        yield from _known(chosen, kind)


def _models(field: FieldInfo, content: Any) -> tuple[type[Section], ...]:
    """Return the sections that may stand in a field with this plain `content`, that of the field or of an entry."""
    chosen = choice(field) or choice_of_entries(field)
    if chosen is None:
        return tuple(_sections_in(field.annotation))
    return _known(chosen, chosen.named(content)) or tuple(chosen.registered().values())


def _known(chosen: Chosen, kind: Any) -> tuple[type[Section], ...]:
    try:
        return (chosen.recipe(kind),) if isinstance(kind, str) else ()
    except UnknownKindError:  # which is said where the section is checked
        return ()


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections that an annotation speaks of, inside unions and lists too."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for member in get_args(annotation):
        yield from _sections_in(member)
