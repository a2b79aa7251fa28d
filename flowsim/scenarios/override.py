"""What `--set` options and the axes of a sweep make of a document: which keys there are depends on the kinds chosen."""

from collections.abc import Iterable
from typing import Any

from ..kinds.recipes import KeyPath
from .document import Document, Override
from .keys import choices, keys


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


def _copy_sections(value: Any) -> Any:
    """Return a copy of nested mappings, of which overrides change entries."""
    return {key: _copy_sections(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _leave_out_foreign_keys(section: dict[str, Any], path: KeyPath, kind: Any) -> None:
    before, after = (keys(path, {path[0]: {"kind": name}}) for name in (section.get("kind"), kind))
    for key in set(section).intersection(before):
        # `features` is a number for one kind of data and names for another: same word, different key.
        if key not in after or before[key].annotation != after[key].annotation:
            del section[key]
