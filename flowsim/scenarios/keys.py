"""Which keys a scenario may have, which depends on the kinds that it chooses, and other values for some of them."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from ..kinds import UnknownKindError
from ..kinds.recipes import Chosen, KeyPath, Section, named_in
from ..kinds.registry import OUTSIDE
from .document import AXES, Document, Override
from .scenario import Scenario


def keys(section: KeyPath, content: Any) -> dict[str, FieldInfo]:
    """Return the keys that may stand in `section` of a scenario with this plain `content`.

    In a section with a `kind` they are those of that kind, and of every registered one where there is none of that
    name.
    """
    if section[:2] == AXES:
        return _axes(content) if section == AXES else {}
    fields, entered = dict(Scenario.model_fields), None
    for depth, part in enumerate(section, start=1):
        if isinstance(part, str):  # the entries of a list have the keys of its field
            entered = fields.get(part)
        models = () if entered is None else _models(entered, value_at(content, section[:depth]))
        fields = {key: field for model in models for key, field in model.model_fields.items()}
    return fields


def value_at(content: Any, path: KeyPath) -> Any:
    """Return the value at `path` of plain `content`, None where there is nothing."""
    for part in path:
        if not isinstance(content, dict | list):
            return content  # a single name that stands for a list of one
        if isinstance(part, int) and isinstance(content, dict):
            continue  # and a single section
        known: dict[Any, Any] = content if isinstance(content, dict) else dict(enumerate(content))
        content = known.get(part)
    return content


def place_of(key: str, path: KeyPath, content: Any) -> KeyPath | None:
    """Return the path of a `key` that a message about `path` names: in that section, or the nearest around it."""
    sections = (path[:depth] for depth in range(len(path), -1, -1))
    return next(((*section, key) for section in sections if key in keys(section, content)), None)


def choices() -> dict[str, Chosen]:
    """Return what may be chosen in the sections with a kind, by their names."""
    return {name: chosen for name, field in Scenario.model_fields.items() if (chosen := choice(field))}


def choice(field: FieldInfo) -> Chosen | None:
    """Return what may be chosen in a field, None where it has no kinds."""
    return next((mark for mark in field.metadata if isinstance(mark, Chosen)), None)


def homes() -> dict[str, str]:
    """Return the full name of every key of a scenario; of one in several sections, that in the first of them.

    A key of the scenario itself comes before all.
    """
    inner = {
        key: f"{name}.{key}"
        for name, field in reversed(Scenario.model_fields.items())
        if get_origin(field.annotation) is not tuple
        for model in _models(field, None)
        for key in model.model_fields
        if key != "kind"  # at home in two sections
    }
    return inner | {name: name for name in Scenario.model_fields}


def own_kinds(scenario: Scenario, descents: Iterable[str]) -> list[str]:
    """Return the kinds of a user's own, my_module:MyKind, in runs of a scenario with descents of these kinds."""
    kinds = {getattr(scenario, name).kind for name in choices()} | {entry.kind for entry in scenario.record}
    kinds |= set(descents)
    kinds |= {name for section in (scenario.data, scenario.network, scenario.flow) for name in named_in(section)}
    return sorted(kind for kind in kinds if re.fullmatch(OUTSIDE, kind))


def override(document: Document, overrides: Iterable[Override]) -> Document:
    """Return the document with other values. A key that another `kind` does not have is left out."""
    value, positions = _copy_sections(document.value), dict(document.positions)
    # Sections before their keys, kinds before the keys that depend on them: the order given does not matter.
    for given in sorted(overrides, key=lambda given: (len(given.path), given.path[-1] != "kind")):
        *sections, key = given.path
        holder = value
        for section in sections:
            if not isinstance(holder, dict):
                break  # the file has no section here, which is reported with its line
            if isinstance(holder.get(section), str) and section in choices() and choices()[section].word:
                holder[section] = {"kind": holder[section]}  # a kind without options, written as its name alone
            holder = holder.setdefault(section, {})
        positions.setdefault(given.path[:1], given.position)
        if not isinstance(holder, dict):
            continue
        if key == "kind":
            _leave_out_foreign_keys(holder, tuple(sections), given.value)
        holder[key] = _copy_sections(given.value)
        positions = {path: position for path, position in positions.items() if path[: len(given.path)] != given.path}
        positions[given.path] = given.position
    return Document(value, positions)


def _axes(content: Any) -> dict[str, FieldInfo]:
    """Return what a sweep may run over: the single values of the sections with a kind, and of the flow."""
    found = {key: Scenario.model_fields[key] for key in ("seed", "precision", "weight_decay")}
    for name, field in Scenario.model_fields.items():
        models = _models(field, None) if name == "flow" else ()
        if chosen := choice(field):
            here, swept = value_at(content, (name,)), value_at(content, (*AXES, f"{name}.kind"))
            kinds = [chosen.named(here), *(swept if isinstance(swept, list | tuple) else ())]
            models = [*chosen.registered().values(), *(model for kind in kinds for model in _known(chosen, kind))]
        for model in models:
            unswept = getattr(model, "unswept", ())
            found |= {f"{name}.{key}": inner for key, inner in model.model_fields.items() if key not in unswept}
    return found


def _models(field: FieldInfo, content: Any) -> tuple[type[Section], ...]:
    """Return the sections that may stand in a field with this plain `content`, that of the field or of an entry."""
    of_entries = (mark for entry in get_args(field.annotation) for mark in get_args(entry)[1:])
    chosen = choice(field) or next((mark for mark in of_entries if isinstance(mark, Chosen)), None)
    if chosen is None:
        return tuple(_sections_in(field.annotation))
    return _known(chosen, chosen.named(content)) or tuple(chosen.registered().values())


def _known(chosen: Chosen, kind: Any) -> tuple[type[Section], ...]:
    try:
        return (chosen.recipe(kind),) if isinstance(kind, str) else ()
    except UnknownKindError:  # reported where the section is validated
        return ()


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections that an annotation names, inside unions and lists too."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for member in get_args(annotation):
        yield from _sections_in(member)


def _copy_sections(value: Any) -> Any:
    """Return a copy of nested mappings, of which overrides change entries."""
    return {key: _copy_sections(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _leave_out_foreign_keys(section: dict[str, Any], path: KeyPath, kind: Any) -> None:
    before, after = (keys(path, {path[0]: {"kind": name}}) for name in (section.get("kind"), kind))
    for key in set(section).intersection(before):
        # `features` is a number for one kind of data and names for another: same word, different key.
        if key not in after or before[key].annotation != after[key].annotation:
            del section[key]
