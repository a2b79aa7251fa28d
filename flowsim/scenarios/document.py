"""From a YAML file to plain values, each with the place where it stands; nothing in it is ever executed."""

import difflib
import re
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.reader import ReaderError

from ..kinds import KeyPath

_TAG = "tag:yaml.org,2002:"


class ScenarioError(ValueError):
    """A scenario that cannot be run; every line of it says where, what was found, and what to write."""


@dataclass(frozen=True)
class Document:
    """Plain values, and for every key path the place (file and line, or `--set` option) that set it."""

    value: Any
    places: dict[KeyPath, str]

    def place(self, path: KeyPath) -> str:
        """Return where `path` stands, or the nearest section around it that stands anywhere."""
        return next(self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places)

    def at(self, path: KeyPath) -> Any:
        """Return the value at `path`, None where there is nothing."""
        value = self.value
        for part in path:
            if not isinstance(value, dict | list):
                return value  # a single name that stands for a list of one
            known: dict[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
            value = known.get(part)
        return value


def complaint(place: str, path: KeyPath = (), *, found: str, expected: str, write: str) -> str:
    """Return the one wording of every error: place, key path, what was found, expected, and to be written."""
    key = f" {dotted(path)}:" if path else ""
    return f"{place}:{key} found {found}; expected {expected}; write {write}"


def dotted(path: KeyPath) -> str:
    """Return `path` as people write it: descent.learning_rates[1]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def printable(key: str) -> str:
    """Return `key` itself if it is a plain word, quoted and shortened if it is anything else."""
    return key if re.fullmatch(r"[\w-]{1,40}", key) else reprlib.repr(key)


def read_document(path: Path) -> Document:
    """Read one YAML file. Raises `ScenarioError` if it is absent, unreadable, too large, or no mapping."""
    document = parse(_read_text(path), lambda line: f"{path}:{line}")
    if not isinstance(document.value, dict):
        found = "an empty file" if document.value is None else "a file that holds no keys"
        raise ScenarioError(_no_scenario(document.place(()), found))
    return document


def _no_scenario(place: str, found: str) -> str:
    return complaint(place, found=found, expected="the keys of a scenario", write="at least data: and network:")


def _read_text(path: Path, *, most_bytes: int = 2**20) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ScenarioError(_unreadable(path, error)) from error
    if len(content) > most_bytes:
        raise ScenarioError(_no_scenario(str(path), f"a file of more than {most_bytes} bytes"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{content[error.start]:02x}, which is not UTF-8"
        raise ScenarioError(
            complaint(f"{path}:{line}", found=found, expected="text", write="the file in UTF-8")
        ) from error


def _unreadable(path: Path, error: Exception) -> str:
    kinds = {
        FileNotFoundError: "no such file",
        IsADirectoryError: "a folder",
        PermissionError: "no permission to read",
    }
    found = kinds.get(type(error)) or getattr(error, "strerror", None) or str(error)
    siblings = [other.name for other in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    write = str(path.parent / near[0]) if near else "the path of a YAML file that you may read"
    return complaint(str(path), found=found, expected="a scenario file", write=write)


class _Refused(Exception):
    """What YAML allows and a scenario does not."""

    def __init__(self, mark: yaml.Mark, path: KeyPath = (), **wording: str):
        super().__init__(mark, path, wording)
        self.line, self.path, self.wording = mark.line + 1, path, wording


class _Loader(yaml.SafeLoader):
    """Composes nodes under the scalar rules of YAML 1.2 (1e-3 is a number, `no` is text), and few of them."""

    yaml_implicit_resolvers: dict = {}  # noqa: RUF012  PyYAML wants a class attribute of its own to start from
    level, deepest = 0, 10

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # Looks at an event before anything is built from it: a bomb of aliases or brackets never unfolds.
        event = self.peek_event()
        forbidden = _forbidden(event)
        if self.level > self.deepest:
            forbidden = ("deeper nesting", f"at most {self.deepest} levels", "fewer brackets")
        if forbidden:
            found, expected, write = forbidden
            raise _Refused(event.start_mark, found=found, expected=expected, write=write)
        self.level += 1
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


def _forbidden(event: Any) -> tuple[str, str, str] | None:
    """Return what was found, is expected and should be written, if a scenario may not hold `event`."""
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        return "an anchor or alias", "plain values", "the value itself"
    if tag := getattr(event, "tag", None):
        return f"the tag {reprlib.repr(tag)}", "plain values", "the value without a tag"
    if re.search("[\ud800-\udfff]", getattr(event, "value", "")):
        return "half a character (a lone surrogate)", "text", "the character itself"
    return None


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), _first)

_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "null": lambda text: None,
    _TAG + "bool": lambda text: text.lower() == "true",
    _TAG + "int": int,
    _TAG + "float": lambda text: float(re.sub(r"\.([inIN])", r"\1", text)),
    _TAG + "str": str,
}


def parse(text: str, place: Callable[[int], str]) -> Document:
    """Read YAML `text`; `place` puts a line number into words.

    Raises `ScenarioError` for anything but one document of plain values.
    """
    lines: dict[KeyPath, int] = {(): 1}
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        value = None if node is None else _construct(node, (), lines)
    except _Refused as refused:
        raise ScenarioError(complaint(place(refused.line), refused.path, **refused.wording)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: escapes of no character
        position = loader.index if loader else getattr(error, "position", 0)
        mark = getattr(error, "problem_mark", None)
        line = mark.line if mark else text.count("\n", 0, position)
        raise ScenarioError(_not_yaml(error, place(line + 1))) from error
    return Document(value, {path: place(line) for path, line in lines.items()})


def _construct(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key: _construct(child, (*path, key), lines) for key, child in _entries(node, path, lines)}
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            lines[(*path, index)] = child.start_mark.line + 1
        return [_construct(child, (*path, index), lines) for index, child in enumerate(node.value)]
    try:
        return _SCALARS[node.tag](node.value)
    except ValueError:  # Python reads no integer of more than 4300 digits
        found = f"a number of {len(node.value)} digits"
        raise _Refused(node.start_mark, path, found=found, expected="a number", write="a smaller one") from None


def _entries(node: yaml.MappingNode, path: KeyPath, lines: dict[KeyPath, int]) -> Iterator[tuple[str, yaml.Node]]:
    for key_node, child in node.value:
        key, mark = key_node.value, key_node.start_mark
        if key_node.tag != _TAG + "str":
            found = f"the key {printable(key)}" if isinstance(key, str) else "a key made of brackets"
            raise _Refused(mark, path, found=found, expected="a word as key", write="a key of the scenario")
        if (*path, key) in lines:
            found = f"the key a second time, after line {lines[(*path, key)]}"
            raise _Refused(mark, (*path, key), found=found, expected="every key once", write="one of the two")
        lines[(*path, key)] = mark.line + 1
        yield key, child


def _not_yaml(error: Exception, place: str) -> str:
    if isinstance(error, ComposerError):  # anchors and aliases are refused earlier, which leaves one kind
        return complaint(place, found="a second document", expected="one scenario in a file", write="no line ---")
    if isinstance(error, ReaderError):
        found = f"the character U+{error.character:04X}"
        return complaint(place, found=found, expected="text", write="nothing in its place")
    problem = getattr(error, "problem", None) or "an escape that is no character"
    write = "spaces to indent, and close every bracket and quotation mark"
    return complaint(place, found=f"no valid YAML ({problem})", expected="key: value", write=write)
