"""The messages about a scenario that breaks the schema: what was found, what is expected, what to write."""

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
from .document import OPTION, Document, ScenarioError, complaint, parse
from .keys import AXES, choice, keys, place_of, value_at
from .remedies import (
    NUMBER,
    as_yaml,
    first_accepted,
    is_accepted,
    is_ambiguous,
    meanings,
    nearest,
    replaced,
    suggestion,
)
from .unknown_keys import places_meant, unknown_key


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
