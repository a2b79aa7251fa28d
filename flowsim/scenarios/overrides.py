"""Values in place of those of a scenario: `--set` options, and the values of a point of a sweep."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..kinds import KeyPath
from .document import Document, ScenarioError, complaint, parse
from .keys import AXES, choices, keys


@dataclass(frozen=True)
class Override:
    """A value that takes the place of one in the file: `--set network.scale=0.3`."""

    path: tuple[str, ...]
    value: Any
    place: str


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Read overrides written `key.path=VALUE`, the value in YAML: `descent.learning_rates=[0.1, 0.2]`.

    Raises `ScenarioError` for what has no value, is not YAML, or is set twice. Whether there is such a key depends on
    the scenario.
    """
    overrides: dict[tuple[str, ...], Override] = {}
    for text in texts:
        override = _parse_override(text)
        if override.path in overrides:
            found = f"a second value, after {overrides[override.path].place}"
            wording = {"found": found, "expected": "one value for a key", "write": "one of the two"}
            raise ScenarioError(complaint(override.place, override.path, **wording))
        overrides[override.path] = override
    return tuple(overrides.values())


def _parse_override(text: str) -> Override:
    place = f"--set {text if text.isprintable() else repr(text)}"
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if path[:2] == AXES and len(path) > 3:
        path = (*AXES, ".".join(path[2:]))
    if not equals or not value.strip():
        write = f"{key.strip()}=VALUE, with null for no value"
        raise ScenarioError(complaint(place, found="no value", expected="KEY=VALUE", write=write))
    return Override(path, parse(value, lambda line: place).value, place)


def override(document: Document, overrides: Iterable[Override]) -> Document:
    """Return the document with other values. A key that another `kind` does not have is left out."""
    value, places = _copy_sections(document.value), dict(document.places)
    # Sections before their keys, kinds before the keys that depend on them: the order given does not matter.
    for given in sorted(overrides, key=lambda given: (len(given.path), given.path[-1] != "kind")):
        *sections, key = given.path
        holder = value
        for section in sections:
            holder = _enter(holder, section)
            places.setdefault((section,), given.place)
        if not isinstance(holder, dict):
            continue  # the file has no section here, which is reported with its line
        if key == "kind":
            _leave_out_foreign_keys(holder, tuple(sections), given.value)
        holder[key] = _copy_sections(given.value)
        places = {path: place for path, place in places.items() if path[: len(given.path)] != given.path}
        places[given.path] = given.place
    return Document(value, places)


def _copy_sections(value: Any) -> Any:
    """Return a copy of nested mappings, of which overrides change entries."""
    return {key: _copy_sections(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _enter(holder: Any, section: str) -> Any:
    """Return what stands in a section of `holder`, which is made if need be, or None where there can be none."""
    if not isinstance(holder, dict):
        return None
    if isinstance(holder.get(section), str) and section in choices() and choices()[section].word:
        holder[section] = {"kind": holder[section]}  # a kind without options, written as its name alone
    return holder.setdefault(section, {})


def _leave_out_foreign_keys(section: dict[str, Any], path: KeyPath, kind: Any) -> None:
    before, after = (keys(path, {path[0]: {"kind": name}}) for name in (section.get("kind"), kind))
    for key in set(section).intersection(before):
        # `features` is a number for one kind of data and names for another: same word, different key.
        if key not in after or before[key].annotation != after[key].annotation:
            del section[key]
