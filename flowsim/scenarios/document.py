"""From a YAML file and `--set` options to plain values with their positions; nothing in them is ever executed."""

import difflib
import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.reader import ReaderError

from ..kinds import KeyPath
from ..runtime.errors import UserError
from ..runtime.paths import user_path

AXES = ("sweep", "over")


class ScenarioError(UserError, ValueError):
    """A scenario that cannot be run; every line of it says where, what was found, and what to write."""


@dataclass(frozen=True)
class Document:
    """Plain values, and for every key path the position (file and line, or `--set` option) that set it."""

    value: Any
    positions: dict[KeyPath, str]

    def position(self, path: KeyPath) -> str:
        """Return where `path` stands, or the nearest section around it that stands anywhere."""
        return next(self.positions[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.positions)


def complaint(position: str, path: KeyPath = (), *, found: str, expected: str, write: str) -> str:
    """Return the message of an error: position, key path, what was found, what is expected, what to write instead."""
    key = f" {dotted(path)}:" if path else ""
    return f"{position}:{key} found {found}; expected {expected}; write {write}"


def dotted(path: KeyPath) -> str:
    """Return `path` as people write it: descent.learning_rates[1]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def printable(key: str) -> str:
    """Return `key` itself if it is a plain word, quoted and shortened if it is anything else."""
    return key if re.fullmatch(r"[\w-]{1,40}", key) else reprlib.repr(key)


def read_document(path: Path, *, most_bytes: int = 2**20) -> Document:
    """Read one YAML file. Raises `ScenarioError` if it is absent, unreadable, too large, or no mapping."""
    path = user_path(path)
    no_scenario = {"expected": "the keys of a scenario", "write": "at least data: and network:"}
    try:
        with path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ScenarioError(_unreadable(path, error)) from error
    if len(content) > most_bytes:
        raise ScenarioError(complaint(str(path), (), found=f"a file of more than {most_bytes} bytes", **no_scenario))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{content[error.start]:02x}, which is not UTF-8"
        message = complaint(f"{path}:{line}", found=found, expected="text", write="the file in UTF-8")
        raise ScenarioError(message) from error
    document = parse(text, lambda line: f"{path}:{line}")
    if not isinstance(document.value, dict):
        found = "an empty file" if document.value is None else "a file that holds no keys"
        raise ScenarioError(complaint(document.position(()), (), found=found, **no_scenario))
    return document


def header_comment(path: Path) -> str:
    """Return the comment with which a scenario file begins, without its marks: its title, then what it shows.

    It ends at the first line that is no comment. A line for an editor's language server is no part of it. It is empty
    where there is none, and for what can be read only once, such as a pipe.
    """
    path = user_path(path)
    if not path.is_file():
        return ""
    found: list[str] = []
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        if line.startswith("#"):
            found += [] if "yaml-language-server:" in line else [line.lstrip("#").strip()]
        elif found or line.strip() not in ("", "---"):
            break
    return "\n".join(found).strip()


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


# A plain scalar under the rules of YAML 1.2: 1e-3 is a number, `no` is text.
_WORDS = dict.fromkeys(["", "~", "null", "Null", "NULL"])
_WORDS |= {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class _Loader(yaml.BaseLoader):
    """Reads plain values and their positions. Raises `ScenarioError` for what YAML allows and a scenario does not."""

    level, deepest = 0, 10

    def __init__(self, text: str, position: Callable[[int], str]):
        super().__init__(text)
        self.position = position
        self.positions: dict[KeyPath, str] = {(): position(1)}

    def error(self, place: Any, path: KeyPath = (), **wording: str) -> ScenarioError:
        """Return the error about an event or a node."""
        return ScenarioError(complaint(self.position(place.start_mark.line + 1), path, **wording))

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # Looks at an event before anything is built from it: a bomb of aliases or brackets never unfolds.
        event: Any = self.peek_event()
        if self.level > self.deepest:
            levels = f"at most {self.deepest} levels"
            raise self.error(event, found="deeper nesting", expected=levels, write="fewer brackets")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.error(event, found="an anchor or alias", expected="plain values", write="the value itself")
        if tag := getattr(event, "tag", None):
            found = f"the tag {reprlib.repr(tag)}"
            raise self.error(event, found=found, expected="plain values", write="the value without a tag")
        if re.search("[\ud800-\udfff]", getattr(event, "value", "")):
            found = "half a character (a lone surrogate)"
            raise self.error(event, found=found, expected="text", write="the character itself")
        self.level += 1
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def value(self, node: yaml.Node, path: KeyPath = ()) -> Any:
        """Return the plain value of a node at `path`, and enter the positions of all that is inside."""
        if isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                self.positions[(*path, index)] = self.position(child.start_mark.line + 1)
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, child in node.value:
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                text = key_node.value
                found = f"the key {printable(text)}" if isinstance(text, str) else "a key made of brackets"
                raise self.error(key_node, path, found=found, expected="a word as key", write="a key of the scenario")
            inside = (*path, key)
            if key in lines:
                found = f"the key a second time, after line {lines[key]}"
                raise self.error(key_node, inside, found=found, expected="every key once", write="one of the two")
            lines[key] = key_node.start_mark.line + 1
            self.positions[inside] = self.position(lines[key])
            values[key] = self.value(child, inside)
        return values

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text = node.value
        if node.style:  # in quotes, or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not _WHOLE.fullmatch(text):
            return float(re.sub(r"\.([inIN])", r"\1", text)) if _FLOAT.fullmatch(text) else text
        try:
            return int(text)
        except ValueError:  # Python reads no integer of more than 4300 digits
            found = f"a number of {len(text)} digits"
            raise self.error(node, path, found=found, expected="a number", write="a smaller one") from None


def parse(text: str, position: Callable[[int], str]) -> Document:
    """Read YAML `text`; `position` puts a line number into words.

    Raises `ScenarioError` for anything but one document of plain values.
    """
    loader = None
    try:
        loader = _Loader(text, position)
        node = loader.get_single_node()
        return Document(None if node is None else loader.value(node), loader.positions)
    except ScenarioError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: escapes of no character
        index = loader.index if loader else getattr(error, "position", 0)
        mark = getattr(error, "problem_mark", None)
        line = mark.line if mark else text.count("\n", 0, index)
        raise ScenarioError(_not_yaml(error, position(line + 1))) from error


def _not_yaml(error: Exception, position: str) -> str:
    if isinstance(error, ComposerError):  # anchors and aliases are refused earlier, which leaves one kind
        return complaint(position, found="a second document", expected="one scenario in a file", write="no line ---")
    if isinstance(error, ReaderError):
        found = f"the character U+{error.character:04X}"
        return complaint(position, found=found, expected="text", write="nothing in its place")
    problem = getattr(error, "problem", None) or "an escape that is no character"
    write = "spaces to indent, and close every bracket and quotation mark"
    return complaint(position, found=f"no valid YAML ({problem})", expected="key: value", write=write)


@dataclass(frozen=True)
class Override:
    """A value that takes the place of one in the file: `--set network.scale=0.3`."""

    path: tuple[str, ...]
    value: Any
    position: str


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Read overrides written `key.path=VALUE`, the value in YAML: `descent.learning_rates=[0.1, 0.2]`.

    Raises `ScenarioError` for what has no value, is not YAML, or is set twice. Whether there is such a key depends on
    the scenario.
    """
    overrides: dict[tuple[str, ...], Override] = {}
    for text in texts:
        position = f"--set {text if text.isprintable() else repr(text)}"
        key, equals, value = text.partition("=")
        path = tuple(key.strip().split("."))
        if path[:2] == AXES and len(path) > 3:
            path = (*AXES, ".".join(path[2:]))
        if not equals or not value.strip():
            write = f"{key.strip()}=VALUE, with null for no value"
            raise ScenarioError(complaint(position, found="no value", expected="KEY=VALUE", write=write))
        parsed = parse(value, lambda line, position=position: position).value
        if path in overrides:
            found = f"a second value, after {overrides[path].position}"
            wording = {"found": found, "expected": "one value for a key", "write": "one of the two"}
            raise ScenarioError(complaint(position, path, **wording))
        overrides[path] = Override(path, parsed, position)
    return tuple(overrides.values())
