"""The messages about a scenario that breaks the schema: what was found, what is expected, what to write.

Of a key that a scenario does not have, they name the key that was probably meant.
"""

import re
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

from ..kinds.recipes import UNKNOWN_KIND, KeyPath
from .document import OPTION, Document, Override, ScenarioError, complaint, dotted, parse
from .keys import AXES, choice, choices, homes, keys, place_of, value_at
from .remedies import (
    NUMBER,
    as_yaml,
    first_accepted,
    is_accepted,
    is_ambiguous,
    meanings,
    nearest,
    replaced,
    respelled,
    suggestion,
    without,
)


def complaints(error: ValidationError, document: Document, *, axes: Iterable[str] = (), most: int = 50) -> list[str]:
    """Return a line for each of the first errors that pydantic found in `document`, and how many more there are.

    The values of `axes` are those of a sweep, and are mended where the sweep lists them.
    """
    errors = error.errors(include_url=False)
    findings = [
        # The key to blame may stand deeper than the section that found the error.
        _Finding((*item["loc"], *item.get("ctx", {}).get("at", ())), item, document, frozenset(axes))
        for item in errors[:most]
    ]
    # A misspelled key is both unknown and missing: it is reported once.
    unknown = [finding.path for finding in findings if finding.kind == "extra_forbidden"]
    meant = {next(places_meant(document.value, path), None) for path in unknown}
    # And a list with a wrong entry is not wrong a second time as a list.
    outer = {finding.path[:n] for finding in findings for n in range(1, len(finding.path))}
    lines = [f.describe() for f in findings if f.path not in outer and not (f.kind == "missing" and f.path in meant)]
    if more := len(errors) - len(findings):
        wording = {"expected": "none", "write": "first what these lines say"}
        lines.append(complaint(document.position(()), (), found=f"{more} more errors", **wording))
    return lines


def custom_complaint(error: PydanticCustomError, document: Document) -> str:
    """Return the message of a validation error of flowsim's own, which blames a key of the whole scenario."""
    context = error.context or {}
    return complaint(document.position(context["at"]), context["at"], **{part: context[part] for part in _PARTS})


def alternatives(write: str, path: KeyPath, content: Any) -> Iterator[tuple[str, dict[KeyPath, Any]]]:
    """Yield what a rule about `path` says to write, one alternative after the other.

    Each is its text, and the values at their paths in the scenario that it describes: none where it is prose, such as
    "fewer samples".
    """
    for text in write.split(", or "):
        values: dict[KeyPath, Any] = {}
        for part in text.split(" and "):
            key, colon, value = part.partition(": ")
            bare = part[0] in "[{" or (not colon and re.fullmatch(r"[\w.:]+", part))
            place = path if bare else place_of(key, path, content) if re.fullmatch(r"[\w.]+", key) else None
            with suppress(ScenarioError):
                if place is not None and (bare or colon):
                    values[place] = parse(part if bare else value, lambda line: "").value
        yield text, values


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


@dataclass(frozen=True)
class _Finding:
    """One error of pydantic's, and the path of what is wrong in the document."""

    path: KeyPath
    error: Any
    document: Document
    axes: frozenset[str]

    @property
    def kind(self) -> str:
        return self.error["type"]

    @property
    def value(self) -> Any:
        written = value_at(self.document.value, self.path)
        # Numbers that {start, stop, count} stands for are not written anywhere.
        return self.error["input"] if written is None else written

    @property
    def key(self) -> str:
        """The key that is concerned; for an entry of a list, that of the list."""
        return next(part for part in reversed(self.path) if isinstance(part, str))

    @property
    def place(self) -> KeyPath:
        """The path of this key."""
        return self.path[: len(self.path) - self.path[::-1].index(self.key)]

    @property
    def siblings(self) -> dict[str, FieldInfo]:
        return keys(self.place[:-1], self.document.value)

    @property
    def choices(self) -> list[str]:
        """The words that may stand here, where only some may."""
        entries = get_args(self.siblings[self.key].annotation)
        return [str(word) for entry in entries for word in (entry, *get_args(entry)) if isinstance(word, str | int)]

    def describe(self) -> str:
        position, context = self.document.position(self.path), self.error.get("ctx", {})
        if self.path[: len(AXES)] == AXES and len(self.path) > len(AXES) and self.key not in self.siblings:
            return unknown_key(self.document, self.place)
        if self.kind in ("refused", UNKNOWN_KIND):
            found, expected = context["found"], context["expected"]
        elif self.kind == "extra_forbidden" or self.key not in self.siblings:
            return unknown_key(self.document, self.path)
        else:
            found = "nothing" if self.kind == "missing" else _describe_value(self.value)
            expected = self._expected()
        return complaint(position, self.path, found=found, expected=expected, write=self._remedy(position))

    def _expected(self) -> str:
        if self.kind not in _EXPECTED:  # what pydantic says of a rule that is not one of ours
            return self.error["msg"].removeprefix("Input should be ").removeprefix("Value error, ").splitlines()[0]
        expected = _EXPECTED[self.kind].format(**self.error.get("ctx", {}), choices=", ".join(self.choices))
        if not self.kind.endswith("_type"):
            return expected
        words = (True, False, None) if expected == "a section of keys" else (None,)
        also = [as_yaml(word) for word in words if first_accepted(self.document.value, self.place, [word])]
        return " or ".join([", ".join([expected, *also[:-1]]), *also[-1:]])

    def _remedy(self, position: str) -> str:
        """Return what to write: of what may be meant, the first that the scenario accepts."""
        content = self.document.value
        advice = self.error.get("ctx", {}).get("write", "")
        if not self.path:  # of the scenario as a whole
            return advice
        tried = list(alternatives(advice, self.path, content)) if advice else []
        if ".".join(map(str, self.place)) in self.axes:
            axis = (*AXES, ".".join(map(str, self.place)))
            entries = self._entries(axis, [values[self.path] for _, values in tried if self.path in values])
            return suggestion(content, position, axis, axis, entries) if entries else advice
        section = self.path[:-1] if self.kind == UNKNOWN_KIND and self.path[-1] == "kind" else self.path
        if not advice or isinstance(self.value, str):
            likeliest = [value for value in self._meanings() if repr(value) != repr(self.value)]
            accepted = first_accepted(content, self.place, likeliest, most=1 + is_ambiguous(self.value))
            if accepted:
                texts = [suggestion(content, position, self.path, self.place, value) for value in accepted]
                quoted = isinstance(self.value, str) and re.fullmatch(NUMBER, self.value)
                return ", or ".join(texts) + ", without quotes" * bool(quoted)
        texts: list[str] = []
        for text, values in tried:
            mended = content
            for place, value in values.items():
                mended = replaced(mended, place, value)
            if not values:
                texts.append(text)
            elif is_accepted(mended, section):
                options = [suggestion(content, position, self.path, *value) for value in values.items()]
                texts.append(" and ".join(options) if position.startswith(OPTION) or text[0] in "[{" else text)
        if self.kind == UNKNOWN_KIND and not (texts and any(values for _, values in tried)):
            texts = [suggestion(content, position, self.path, *self._kind(section))]
        elif not texts or advice.endswith("my_module:MyKind") or not any(values for _, values in tried):
            values = first_accepted(content, self.place, self._examples())
            examples = [suggestion(content, position, self.path, self.place, value) for value in values]
            prose = texts and not advice.endswith("my_module:MyKind")
            return ", such as ".join([", or ".join(texts), *examples]) if prose else [*examples, advice][0]
        return ", or ".join(texts)

    def _meanings(self) -> Iterator[Any]:
        """Yield what the value may mean, as the value of its key: for an entry of a list, whole lists."""
        if not self.kind.endswith(("_type", "literal_error", "refused", UNKNOWN_KIND)):
            return  # nothing is written, or a value of the right type
        field, whole = self.siblings.get(self.key, FieldInfo()), value_at(self.document.value, self.place)
        of_entry = list(meanings(self.value, field))
        of_entry[:0] = self._words(self.value)
        chosen = choice(field)
        if chosen is not None and isinstance(self.value, str) and self.value in chosen.registry:
            of_entry.insert(0, chosen.example(self.value))
        if self.kind == "string_type":
            of_entry.insert(0, str(self.value))
        if self.path == self.place:
            yield from of_entry
            return
        yield from meanings(whole, field)
        index = self.path[len(self.place)]
        if isinstance(whole, list) and isinstance(index, int):
            yield from ([*whole[:index], value, *whole[index + 1 :]] for value in of_entry)

    def _words(self, value: Any) -> list[str]:
        """Return the words that `value` may mean, where only some may stand here: float32 for 32."""
        if self.kind != "literal_error":
            return []
        return [*filter(None, [nearest(str(value), self.choices)]), *(w for w in self.choices if str(value) in w)]

    def _entries(self, axis: KeyPath, likeliest: list[Any]) -> list[Any]:
        """Return the values of an axis of the sweep, each as what it may mean; else an example."""
        content, field = self.document.value, self.siblings.get(self.key, FieldInfo())
        whole = value_at(content, axis)
        whole = whole if isinstance(whole, list) and len(whole) <= 50 else []
        mended = [
            first_accepted(content, self.place, [v, *self._words(v), *likeliest, *meanings(v, field)]) for v in whole
        ]
        numbers = [value for value in meanings(whole, field) if isinstance(value, list) and value != whole]
        lists = [*numbers, [value[0] for value in mended if value], *([value] for value in self._examples())]
        return next(iter(first_accepted(content, axis, lists)), [])

    def _examples(self) -> Iterator[Any]:
        field = self.siblings.get(self.key, FieldInfo())
        of_axis = self.place[:2] == AXES and len(self.place) > len(AXES)
        written, chosen = value_at(self.document.value, self.place), choice(field)
        if chosen is not None and isinstance(written, dict) and written.get("kind") in chosen.registry:
            yield chosen.example(written["kind"])
        yield from ([example] if of_axis else example for example in field.examples or ())
        if isinstance(field.default, str | int | float | tuple | None) and field.default is not PydanticUndefined:
            yield list(field.default) if isinstance(field.default, tuple) else field.default

    def _kind(self, section: KeyPath) -> tuple[KeyPath, Any]:
        """Return a path and a value in place of a kind that is missing or unknown: one that takes the other keys."""
        content, near = self.document.value, self.error["ctx"]["examples"]
        names = self.error["ctx"]["names"] or ["my_module:MyKind"]
        written = value_at(content, section)
        if not isinstance(written, dict):
            examples = () if isinstance(section[-1], int) else self.siblings[self.key].examples or ()
            return section, next(iter(first_accepted(content, section, [*near, *examples, *names])), names[0])
        nested = [(name, value) for name, value in written.items() if name in names]
        values = [{"kind": name, **(value if isinstance(value, dict) else {})} for name, value in nested]
        examples = keys(section[:-1], content).get(str(section[-1]), FieldInfo()).examples
        values += [
            *near,
            *({**written, "kind": name} for name in names),
            *(examples or ()),
            *({"kind": n} for n in names),
        ]
        value = next(iter(first_accepted(content, section, values)), {**written, "kind": names[0]})
        if isinstance(value, dict) and value == {**written, "kind": value.get("kind")}:
            return (*section, "kind"), value["kind"]
        return section, value


def _describe_value(value: Any) -> str:
    """Return what `value` is, in the words of YAML."""
    if isinstance(value, str):
        return f"the text {reprlib.repr(value)}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a section of keys"
    return as_yaml(value) if value is None or isinstance(value, bool) else reprlib.repr(value)


_SWEPT = ("sweep", "descent")
_PARTS = ("found", "expected", "write")
_EXPECTED = {
    "missing": "a value, for which there is no default",
    "literal_error": "one of {choices}",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a section of keys",
    "model_type": "a section of keys",
    "model_attributes_type": "a section of keys",
    "finite_number": "a finite number",
    "greater_than": "more than {gt:.12g}",
    "greater_than_equal": "at least {ge:.12g}",
    "less_than": "less than {lt:.12g}",
    "less_than_equal": "at most {le:.12g}",
    "string_too_short": "text that is not empty",
    "too_short": "at least {min_length} entry",
}
