"""The messages about a scenario that breaks the schema: what was found, what is expected, what to write."""

import difflib
import math
import reprlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from ..kinds import UNKNOWN_KIND, KeyPath
from .document import Document, complaint, dotted
from .keys import AXES, choices, homes, keys, value_at


def unknown_key(position: str, path: KeyPath, known: Collection[str]) -> str:
    """Return the message about the key at the end of `path`, in a section that has the keys `known`."""
    expected = f"one of {', '.join(known)}" if known else f"no keys inside {dotted(path[:-1])}"
    return complaint(position, path, found="an unknown key", expected=expected, write=_remedy_for_unknown(path, known))


def complaints(error: ValidationError, document: Document, *, most: int = 50) -> list[str]:
    """Return a line for each of the first errors that pydantic found in `document`, and how many more there are."""
    errors = error.errors(include_url=False)
    findings = [
        # The key to blame may stand deeper than the section that found the error.
        _Finding((*item["loc"], *item.get("ctx", {}).get("at", ())), item, document)
        for item in errors[:most]
    ]
    # A misspelled key is both unknown and missing: it is reported once.
    meant = {
        (*finding.path[:-1], _remedy_for_unknown(finding.path, finding.siblings))
        for finding in findings
        if finding.kind == "extra_forbidden"
    }
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


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` is probably meant to be, in whatever case it is written."""
    folded = {choice.casefold(): choice for choice in choices}
    return next((folded[near] for near in difflib.get_close_matches(word.casefold(), folded, n=1)), None)


@dataclass(frozen=True)
class _Finding:
    """One error of pydantic's, and the path of what is wrong in the document."""

    path: KeyPath
    error: Any
    document: Document

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
    def siblings(self) -> dict[str, FieldInfo]:
        return keys(self.path[: self.path.index(self.key)], self.document.value)

    @property
    def choices(self) -> list[str]:
        """The words that may stand here, where only some may."""
        entries = get_args(self.siblings[self.key].annotation)
        return [str(word) for entry in entries for word in (entry, *get_args(entry)) if isinstance(word, str | int)]

    def describe(self) -> str:
        position, context = self.document.position(self.path), self.error.get("ctx", {})
        if self.kind == "extra_forbidden":
            return unknown_key(position, self.path, self.siblings)
        if self.kind in ("refused", UNKNOWN_KIND):
            return complaint(position, self.path, **{part: context[part] for part in _PARTS})
        if self.key not in self.siblings:
            return unknown_key(position, self.path, self.siblings)
        found = "nothing" if self.kind == "missing" else _describe_value(self.value)
        if self.kind in _EXPECTED:
            expected = _EXPECTED[self.kind].format(**context, choices=", ".join(self.choices))
        else:  # what pydantic says of a rule that is not one of ours
            message = self.error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            expected = message.splitlines()[0]
        return complaint(position, self.path, found=found, expected=expected, write=self._remedy() or self._example())

    def _remedy(self) -> str | None:
        """Return what to write in place of a value of another type, where that is known."""
        value = self.value
        if self.kind == "literal_error":
            near = nearest(str(value), self.choices)
            return near and f"{self.key}: {near}"
        if self.kind in ("int_type", "float_type"):
            return self._number_in_text()
        if self.kind == "string_type":
            return None if isinstance(value, list | dict | None) else f'"{value}", in quotes'
        if self.kind == "tuple_type" and not isinstance(value, dict | None):
            return _as_yaml({self.key: [value]})[1:-1]
        return None

    def _number_in_text(self) -> str | None:
        try:
            number = float(self.value) if isinstance(self.value, str) else math.nan
        except ValueError:
            return None
        if not math.isfinite(number) or (self.kind == "int_type" and not number.is_integer()):
            return None
        return f"{self.key}: {int(number) if number.is_integer() else number}, without quotes"

    def _example(self) -> str:
        field = self.siblings[self.key]
        if field.examples:
            example, of_axis = field.examples[0], self.path[:2] == AXES and len(self.path) > len(AXES)
            return _as_yaml({self.key: [example] if of_axis else example})[1:-1]
        return f"{self.key}: {'VALUE' if field.is_required() else _as_yaml([field.default])[1:-1]}"


def _describe_value(value: Any) -> str:
    """Return what `value` is, in the words of YAML."""
    if isinstance(value, str):
        return f"the text {reprlib.repr(value)}"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a section of keys"
    return _as_yaml([value])[1:-1] if value is None or isinstance(value, bool) else reprlib.repr(value)


def _as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf).strip()


def _remedy_for_unknown(path: KeyPath, known: Collection[str]) -> str:
    key, section = str(path[-1]), str(path[0])
    if not known:
        return f"a value for {dotted(path[:-1])}"
    if len(path) == 2 and section in choices():
        for name, recipe in choices()[section].registered().items():
            if key in recipe.model_fields:
                return f"kind: {name}, which has it, or leave it out"
    if key in homes():
        return f"it as {homes()[key]}"
    if near := nearest(key, known):
        return near
    near = nearest(key, homes())
    return f"it as {homes()[near]}" if near else "one of these, or leave it out"


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
