"""A scenario as text for people: every key with what it means, and those that are left out with their defaults."""

import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..kinds import Chosen, KeyPath, Named, Section
from ..scenarios.keys import AXES, choice, choice_of_entries, keys

WIDTH = 100
_INDENT = "  "


def commented(content: Mapping[str, Any], remarks: Mapping[str, str]) -> str:
    """Return the YAML text of a scenario with this plain `content`, in lines of at most `WIDTH` columns.

    What keys mean is their description in the schema. Keys that are left out stand there as `#key: default`, and to
    take the # away changes nothing. `remarks` are for the keys of the whole, and that under "" for the beginning.
    """
    beginning = [said for said in (*remarks.get("", "").split("\n\n"), _HOW_TO_READ) if said]
    heading = "\n#\n".join("\n".join(_comment(said, "")) for said in beginning)
    return "\n".join([heading, *_section((), content, content, remarks)]) + "\n"


_HOW_TO_READ = "Lines #key: value are options that are left out, with their defaults: without the # they are set."


def _section(path: KeyPath, inside: Any, content: Any, remarks: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a section whose plain content is `inside`, in a scenario with this `content`."""
    for key, field in keys(path, content).items():
        if not path:
            yield ""
        remark = "" if path else remarks.get(key, "")
        if key in inside:
            yield from _written((*path, key), field, inside[key], content, remark)
        else:
            yield from _left_out((*path, key), field, content)


def _written(path: KeyPath, field: FieldInfo, value: Any, content: Any, remark: str) -> Iterator[str]:
    indent = _INDENT * (len(path) - 1)
    yield from _comment(_meaning(path, field, value, content), indent)
    yield from _comment(remark, indent)
    if path == AXES:
        yield f"{indent}{path[-1]}:"
        for axis, values in value.items():
            yield from _lines({axis: values}, indent + _INDENT)
    elif isinstance(value, dict) and (fields := keys(path, content)):
        yield f"{indent}{path[-1]}:"
        # A section without keys would be read as null.
        yield from _section(path, value or {next(iter(fields)): default_of(next(iter(fields.values())))}, content, {})
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        yield f"{indent}{path[-1]}:"
        for key, inner in keys((*path, 0), content).items():
            said = _meaning((*path, 0, key), inner, PydanticUndefined, content)
            yield from _comment(f"{key}: {said}", indent + _INDENT)
        for entry in value:
            yield from _lines([entry], indent + _INDENT)
    else:
        yield from _lines({path[-1]: value}, indent)


def _left_out(path: KeyPath, field: FieldInfo, content: Any) -> Iterator[str]:
    indent, default = _INDENT * (len(path) - 1), field.get_default(call_default_factory=True)
    if isinstance(default, Section) and choice(field) is None:
        yield from _comment(_meaning(path, field, PydanticUndefined, content), indent)
        yield f"{indent}#{path[-1]}:"
        yield from _section(path, {}, content, {})
        return
    said, hint = default_of(field), ""
    if field.examples and _plain(field.examples[0]) != said:
        hint = f"For instance {_as_yaml(field.examples[0])}."
    yield from _comment(f"{_meaning(path, field, PydanticUndefined, content)} {hint}", indent)
    yield f"{indent}#{path[-1]}: {_as_yaml(said)}"


def default_of(field: FieldInfo) -> Any:
    """Return the default of a field as YAML writes it."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "default" in extra:
        return extra["default"]
    return _plain(field.get_default(call_default_factory=True))


def _meaning(path: KeyPath, field: FieldInfo, value: Any, content: Any) -> str:
    """Return what a key means, of a kind what that kind is, which there are, and the default where another is written.

    `value` is what is written for it, `PydanticUndefined` where it is left out.
    """
    chosen = choice(field)
    if path[-1] == "kind" and (around := _choice_at(path[:-1])):
        return f"{_described(around, value)} {_sentence(around.expected())}"
    said = [field.description or ""]
    if chosen is not None and isinstance(value, str):
        said.append(_described(chosen, value))
    if not isinstance(value, dict):
        said.append(_which(field))
    if value is not PydanticUndefined and not field.is_required() and not isinstance(value, dict | list):
        said += [] if value == default_of(field) else [f"Default: {_as_yaml(default_of(field))}."]
    return " ".join(filter(None, said))


def _choice_at(path: KeyPath) -> Chosen | None:
    field = keys(path[:-1], {}).get(str(path[-1])) if path else None
    return None if field is None else choice(field)


def _described(chosen: Chosen, name: str) -> str:
    """Return what a kind is, in the first paragraph of its own words."""
    text = inspect.getdoc(chosen.recipe(name)) or ""
    return f"{name}: {text.partition(chr(10) * 2)[0]}" if text else ""


def _which(field: FieldInfo) -> str:
    """Return which words may stand in a field, where only some may."""
    marks = (choice(field), choice_of_entries(field), *field.metadata, *_marks_of_entries(field))
    for mark in marks:
        if isinstance(mark, Chosen | Named):
            return _sentence(mark.expected())
    words = [word for part in (field.annotation, *get_args(field.annotation)) for word in _words(part)]
    return f"One of {', '.join(words)}." if words else ""


def _marks_of_entries(field: FieldInfo) -> list[Any]:
    return [mark for entry in get_args(field.annotation) for mark in get_args(entry)[1:]]


def _words(annotation: Any) -> list[str]:
    return [str(word) for word in get_args(annotation)] if get_origin(annotation) is Literal else []


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _comment(text: str, indent: str) -> list[str]:
    mark = f"{indent}# "
    wide = {"width": WIDTH, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(" ".join(text.split()), initial_indent=mark, subsequent_indent=mark, **wide)


def _lines(value: Any, indent: str) -> list[str]:
    """Return the lines of one key with its value, or of one entry of a list, in brackets where it has several."""
    dump = {"sort_keys": False, "allow_unicode": True, "width": WIDTH - len(indent) - 4, "default_flow_style": None}
    if isinstance(value, dict):
        ((key, inner),) = value.items()
        text = f"{key}: {_as_yaml(inner)}"
    else:
        text = f"- {_as_yaml(value[0])}"
    if len(indent) + len(text) > WIDTH:
        text = yaml.safe_dump(value, **dump).rstrip()
    return [indent + line for line in text.splitlines()]


def _as_yaml(value: Any) -> str:
    """Return the text of a value in one line."""
    options = {"sort_keys": False, "allow_unicode": True, "default_flow_style": True, "width": math.inf}
    return yaml.safe_dump([_plain(value)], **options).strip()[1:-1]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value
