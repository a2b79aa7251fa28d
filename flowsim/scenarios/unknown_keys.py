"""The message about a key that a scenario does not have, with the key that was probably meant."""

import re
from collections.abc import Iterator
from typing import Any

from ..kinds.recipes import KeyPath
from .document import Document, Override, complaint, dotted
from .keys import AXES, choices, homes, keys, value_at
from .remedies import first_accepted, meanings, nearest, respelled, suggestion, without

_SWEPT = ("sweep", "descent")


def unknown_key(document: Document, path: KeyPath, *, override: Override | None = None) -> str:
    """Return the message about the key at the end of `path`, the first unknown one of those that an `override` has."""
    position, content = override.position if override else document.position(path), document.value
    inside = override.path[len(path) :] if override else ()
    known = keys(path[:-1], content)
    expected = f"one of {', '.join(known)}" if known else f"no keys inside {dotted(path[:-1])}"
    value, content = override.value if override else value_at(content, path), without(content, path)
    if not known:  # an option for a key inside of a value
        content, places = without(content, path[:-1]), [path[:-1]]
    else:
        places = list(places_meant(content, path, inside))
    trials = [*_of_sweep(content, path, value), *((place, [value]) for place in places)]
    for as_written in (True, False):  # rather another key with this value than with another
        for place, values in trials if as_written else trials[:1]:
            field = keys(place[:-1], content).get(str(place[-1]))
            if field is None:
                continue
            meant = values if as_written else [*meanings(value, field), *(field.examples or ())]
            if accepted := first_accepted(content, place, meant):
                write = suggestion(content, position, path, place, accepted[0])
                write = write if len(write) <= 300 else f"the key {dotted(place)} in its place"
                return complaint(position, path, found="an unknown key", expected=expected, write=write)
    write = "nothing in its place"
    if len(path) == 2 and (chosen := choices().get(str(path[0]))):  # an option of other kinds
        others = [name for name, recipe in chosen.registered().items() if path[1] in recipe.model_fields]
        sections = [chosen.example(name) | {path[1]: value} for name in others]
        accepted = first_accepted(content, path[:1], sections, most=len(sections))
        texts = [suggestion(content, position, path, path[:1], section) for section in accepted]
        write = ", or ".join([*texts, write])
    return complaint(position, path, found="an unknown key", expected=expected, write=write)


def places_meant(content: Any, path: KeyPath, inside: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the paths of keys that may be meant by an unknown one at the end of `path`, the likeliest first."""
    *section, key = (*path[:-1], str(path[-1]))
    known = keys(path[:-1], content)
    if path[:2] == AXES:
        yield from ((*AXES, axis) for axis in respelled([key], known))
        yield from ((*AXES, axis) for axis in [homes().get(key)] if axis in known)
        words = tuple(key.split("."))
    else:
        words = tuple(re.findall(r"[^\W\d]\w*", ".".join(map(str, (*path, *inside)))))
        yield from ((*section, other, *inside) for other in respelled([key], known))
        yield from ((*section, other, *inside) for other in respelled(re.findall(r"[^\W\d]\w*", key), known))
    if len(words) == 1 and words[0] != key and words[0] in homes():
        yield tuple(homes()[words[0]].split("."))
    if len(words) > 1 and all(word in keys(words[:depth], content) for depth, word in enumerate(words)):
        yield words  # network/scale, network[scale], a key with a dot
    if path == ("kind",):  # which is not indented
        yield from ((name, "kind") for name in choices() if value_at(content, (name,)) is None)
    if key in homes() and path[:2] != AXES:
        yield (*homes()[key].split("."), *inside)
    if near := nearest(key, known):
        yield (*section, near, *inside)
    if near := nearest(key, homes()):
        home = homes()[near]
        if path[:2] != AXES:
            yield (*home.split("."), *inside)
        elif home in known:
            yield (*AXES, home)


def _of_sweep(content: Any, path: KeyPath, values: Any) -> Iterator[tuple[KeyPath, list[Any]]]:
    """Yield the axes, or entries of sweep.descent, that an axis over a section or over a key of descent may mean."""
    if path[:2] != AXES:
        return
    if isinstance(values, dict):  # over: {network: {scale: [0.3, 0.5]}}
        yield from (((*AXES, f"{path[-1]}.{key}"), [inner]) for key, inner in values.items())
    section, _, key = str(path[-1]).rpartition(".")
    for option in respelled([key], keys(_SWEPT, content)) if section in ("", "descent", "sweep.descent") else ():
        example: dict[str, Any] = {"learning_rates": [0.005, 0.02], "steps": 4000}
        values = values if isinstance(values, list) else [values]
        entries = [values] if option == "learning_rates" else values
        listed = [*(value_at(content, _SWEPT) or ()), *({**example, option: entry} for entry in entries)]
        yield _SWEPT, [listed, [{**example, option: entries[0]}]]
