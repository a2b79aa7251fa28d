"""From a YAML file and `--set` options to plain values with their positions; nothing in them is ever executed."""

import difflib
import re
import reprlib
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.reader import ReaderError

from ..kinds.recipes import KeyPath
from ..runtime.errors import UserError
from ..runtime.paths import user_path
from .repairs import repaired

AXES = ("sweep", "over")
OPTION = "--set "
STORED = ("scenario", "environment")
"""The parts of the scenario.yaml of results, which holds a comment too."""


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
    """Return the message of an error: position, key path, what was found, what is expected, what to write instead.

    The middle is left out of what was found if that is longer than 400 characters.
    """
    key = f" {dotted(path)}:" if path else ""
    if len(found) > 400:  # such as a name of a kind, which may be as long as the file
        found = f"{found[:200]} … {found[-200:]}"
    # Text of the scenario may hold separators of lines.
    write = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in write)
    return f"{position}:{key} found {found}; expected {expected}; write {write}"


def dotted(path: KeyPath) -> str:
    """Return `path` as people write it: descent.learning_rates[1]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{printable(part)}" for part in path]
    return "".join(parts).removeprefix(".")


def printable(key: str) -> str:
    """Return `key` itself if it is a plain word, quoted and shortened if it is anything else."""
    return key if re.fullmatch(r"[\w-]{1,40}", key) else reprlib.repr(key)


def option_text(key: str, value: str) -> str:
    """Return the option that gives `key` a value in YAML, quoted where a shell needs it."""
    text = f"{key}={value}"
    if re.fullmatch(r"[\w.,=:/+-]+", text):
        return f"{OPTION}{text}"
    # Double quotes are those of every shell, of Windows too; a $ or ` in them would be replaced.
    return OPTION + (shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"')


def read_document(path: Path, *, most_bytes: int = 2**20) -> Document:
    """Read one YAML file, a scenario or the scenario.yaml of results.

    Raises `ScenarioError` if it is absent, unreadable, too large, or no mapping.
    """
    path = user_path(path)
    example = "data: {kind: gaussian, samples: 50, features: 5} and network: {kind: residual, depth: 10, scale: 0.5}"
    no_scenario = {"expected": "the keys of a scenario", "write": example}
    try:
        with path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ScenarioError(_unreadable(path, error)) from error
    if len(content) > most_bytes:
        raise ScenarioError(complaint(str(path), (), found=f"a file of more than {most_bytes} bytes", **no_scenario))
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content[:4]:
        found = "a file in UTF-16, as > of Windows PowerShell makes it"
        write = f'in PowerShell (Get-Content "{path}") | Set-Content -Encoding utf8 "{path}"'
        raise ScenarioError(complaint(str(path), found=found, expected="a file in UTF-8", write=write))
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
        if isinstance(document.value, str) and (pair := re.match(r"\s*([\w.]+)\s*[:=]\s*(\S+)", document.value)):
            no_scenario = {"expected": "key: value", "write": f"{pair[1]}: {pair[2]}"}
        raise ScenarioError(complaint(document.position(()), (), found=found, **no_scenario))
    if isinstance(document.value.get("scenario"), dict) and document.value.keys() <= {"comment", *STORED}:
        # The scenario.yaml of results: the scenario as it ran.
        inner = {keys[1:]: position for keys, position in document.positions.items() if keys[:1] == ("scenario",)}
        return Document(document.value["scenario"], inner)
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
    folder = path if path.is_dir() else path.parent
    scenarios = {other.stem: str(other) for pattern in ("*.yaml", "*.yml") for other in sorted(folder.glob(pattern))}
    near = list(scenarios) if path.is_dir() else difflib.get_close_matches(path.stem, scenarios, n=1)
    write = scenarios[near[0]] if near else "python -m flowsim new for a list of scenarios to begin with"
    if re.match(r"[a-z_0-9.]+=", str(path)):  # a key with its value, as other programs take it
        write = f"--set {shlex.quote(str(path))}"
    return complaint(str(path), found=found, expected="a scenario file", write=write)


# A plain scalar under the rules of YAML 1.2: 1e-3 is a number, `no` is text.
_WORDS = dict.fromkeys(["", "~", "null", "Null", "NULL"])
_WORDS |= {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class _Loader(yaml.BaseLoader):
    """Reads plain values and their positions. Raises `ScenarioError` for what YAML allows and a scenario does not."""

    level, deepest = 0, 10

    def __init__(self, text: str, position: Callable[[int], str], option: str):
        super().__init__(text)
        self.position, self.option = position, option
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
        for number, (key_node, child) in enumerate(node.value):
            self._refuse_key_alone(node.value[number - 1] if number else None, key_node, child, path)
            key = self._scalar(key_node, path, is_key=True) if isinstance(key_node, yaml.ScalarNode) else None
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

    def _refuse_key_alone(self, before: Any, key_node: yaml.Node, child: yaml.Node, path: KeyPath) -> None:
        """Raise the error about a key without a value that is a value too: {depth:2}, or {scale: 0.5,0.7}.

        `before` is the pair of nodes before this one, if there is one.
        """
        if (
            not all(isinstance(node, yaml.ScalarNode) and node.style is None for node in (key_node, child))
            or child.value
        ):
            return
        mark: Any = key_node.start_mark
        if pair := re.fullmatch(r"([A-Za-z_][\w.]*)\s*[:=]\s*(.+)", key_node.value):
            mended = re.sub(r"(?<=[{,\s])([A-Za-z_][\w.]*)[:=](?=[^\s=])", r"\1: ", mark.buffer.rstrip("\0"))
            write = option_text(self.option, mended) if self.option else f"{pair[1]}: {pair[2]}"
            found, expected = f"the key {printable(key_node.value)} without a value", "a space after the colon"
            raise self.error(key_node, path, found=found, expected=expected, write=write)
        last_key, last = before or (None, None)
        if last_key is not None and isinstance(last, yaml.ScalarNode) and _FLOAT.fullmatch(key_node.value):
            inside, found = (*path, last_key.value), f"{last.value}, {key_node.value} without brackets"
            write, numbers = f"{last_key.value}: [{last.value}, {key_node.value}]", f"[{last.value}, {key_node.value}]"
            if self.option:
                start: Any = last.start_mark
                text = mark.buffer.rstrip("\0")
                write = option_text(self.option, text[: start.pointer] + numbers + text[key_node.end_mark.pointer :])
            raise self.error(key_node, inside, found=found, expected="a list in brackets", write=write)

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath, *, is_key: bool = False) -> Any:
        text = node.value
        if is_key and text != text.strip():
            wording = {"expected": "plain spaces", "write": f"{text.strip()}: behind plain spaces"}
            raise self.error(node, path, found=f"the key {text!r} behind another kind of space", **wording)
        if is_key and node.style:
            return text
        if node.style:  # in quotes, or a block
            mark: Any = node.start_mark
            raw = mark.buffer[mark.pointer + 1 : node.end_mark.pointer - 1] if node.style == '"' else ""
            # In "C:\temp" \t would be a tab, silently: nothing in a scenario needs a control character.
            if "\\" in raw and (not text.isprintable() or re.match(r"[A-Za-z]:\\(?!\\)", raw)):
                found = f"the escapes of double quotes in {reprlib.repr(text)}"
                slashes = raw.replace("\\", "/")
                key = f"{path[-1]}: " if path and isinstance(path[-1], str) else ""
                write = option_text(self.option, slashes) if self.option else f"{key}'{raw}', or {key}'{slashes}'"
                raise self.error(node, path, found=found, expected="single quotes around a path", write=write)
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


def parse(text: str, position: Callable[[int], str], *, key: str = "") -> Document:
    """Read YAML `text`; `position` puts a line number into words, and an option has set a `key` to the text.

    Raises `ScenarioError` for anything but one document of plain values.
    """
    try:
        return _read(text, position, key)
    except ScenarioError:
        raise
    except _SYNTAX as error:
        line = _line_of(error, text)
        if isinstance(error, ComposerError):  # anchors and aliases are refused earlier, which leaves one kind
            wording = {"found": "a second document", "expected": "one scenario in a file", "write": "no line ---"}
        elif isinstance(error, ReaderError):
            wording = {"found": f"the character U+{error.character:04X}", "expected": "text"}
            wording["write"] = "nothing in its place"
        else:
            problem = getattr(error, "problem", None) or "an escape that is no character"
            expected = "single quotes around a path with \\" if "escape" in problem else "key: value"
            wording = {"found": f"no valid YAML ({problem})", "expected": expected}
            wording["write"] = "spaces to indent, and close every bracket and quotation mark"
            opened = getattr(getattr(error, "context_mark", None), "line", line)
            if (repair := repaired(text, [line, line - 1, opened, opened - 1], _error_line)) is not None:
                line, mended = repair
                wording["write"], spaces = mended.strip(), len(mended) - len(mended.lstrip())
                if spaces and mended.strip() == text.split("\n")[line].strip():
                    wording["write"] += f" behind {spaces} spaces"
                if key:  # shells treat \ and quotes differently
                    bare = re.fullmatch(r"'([^'\"]*)'", mended.strip())
                    wording["write"] = option_text(key, bare[1].replace("\\", "/") if bare else mended.strip())
        raise ScenarioError(complaint(position(line + 1), (), **wording)) from error


_SYNTAX = (yaml.YAMLError, ValueError, OverflowError)  # the last two: escapes of no character


def _read(text: str, position: Callable[[int], str], key: str = "") -> Document:
    loader = _Loader(text, position, key)
    try:
        node = loader.get_single_node()
    except _SYNTAX as error:
        error.index = loader.index  # pyright: ignore[reportAttributeAccessIssue]
        raise
    return Document(None if node is None else loader.value(node), loader.positions)


def _line_of(error: Exception, text: str) -> int:
    mark = getattr(error, "problem_mark", None)
    index = getattr(error, "index", getattr(error, "position", 0))
    return mark.line if mark else text.count("\n", 0, index)


def _error_line(text: str) -> int | None:
    """Return the number of the line of the first error in what is to be YAML, `None` for no error."""
    try:
        _read(text, str)
    except ScenarioError:  # of what is YAML, and no scenario
        return None
    except _SYNTAX as error:
        return _line_of(error, text)
    return None


@dataclass(frozen=True)
class Override:
    """A value that takes the place of one in the file: `--set network.scale=0.3`."""

    path: tuple[str, ...]
    value: Any
    position: str
    without_value: bool = False


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Read overrides written `key.path=VALUE`, the value in YAML: `descent.learning_rates=[0.1, 0.2]`.

    Raises `ScenarioError` for what is not YAML, or is set twice. Which keys there are, and which values they take,
    depends on the scenario.
    """
    overrides: dict[tuple[str, ...], Override] = {}
    for text in texts:
        short = text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"
        position = f"{OPTION}{short if short.isprintable() else repr(short)}"
        parts = re.split(r"[,;\s]+(?=[A-Za-z_][\w.]*=)", text.strip())
        if len(parts) > 1 and all("=" in part for part in parts) and not re.search(r"['\"\[\]{}]", text):
            write = " ".join(option_text(*part.split("=", 1)) for part in parts)
            raise ScenarioError(complaint(position, found=f"{len(parts)} values", expected="KEY=VALUE", write=write))
        key, equals, value = text.partition("=")
        if not equals and (pair := re.fullmatch(r"\s*([\w.]+)\s*:\s*(.+)", text)):
            write = option_text(*pair.groups())
            raise ScenarioError(complaint(position, found="a colon", expected="KEY=VALUE", write=write))
        path = tuple(key.strip().split("."))
        if path[:2] == AXES and len(path) > 3:
            path = (*AXES, ".".join(path[2:]))
        parsed = parse(value, lambda line, position=position: position, key=key.strip()).value
        if path in overrides:
            found = f"a second value, after {overrides[path].position}"
            wording = {"found": found, "expected": "one value for a key", "write": "one of the two"}
            raise ScenarioError(complaint(position, path, **wording))
        overrides[path] = Override(path, parsed, position, without_value=not value.strip())
    return tuple(overrides.values())
