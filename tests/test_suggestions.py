"""What a message says to write is tried, at its place: it is accepted there."""

import re
import shlex

import yaml

from flowsim.kinds import KeyPath
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario
from flowsim.scenarios.document import parse
from flowsim.scenarios.keys import place_of

LINE = re.compile(r"(?P<position>.*?):( (?P<path>\S+):)? found (?P<found>.*); expected .*; write (?P<write>.*)")


def path_of(text: str | None) -> KeyPath:
    """Return the path of a key as messages write it."""
    parts = re.findall(r"'([^']*)'|\[(\d+)\]|([\w-]+)", text or "")
    return tuple(int(index) if index else quoted or word for quoted, index, word in parts)


def complaints(path, overrides=()) -> list[re.Match[str]]:
    try:
        read_scenario(path, parse_overrides(overrides))
    except ScenarioError as error:
        return [line for line in map(LINE.fullmatch, str(error).splitlines()) if line is not None]
    return []


def put(content, path: KeyPath, value):
    """Return plain `content` with `value` at `path`."""
    if not path:
        return value
    if isinstance(path[0], int):
        entries = content if isinstance(content, list) else [content]
        return [put(entry, path[1:], value) if i == path[0] else entry for i, entry in enumerate(entries)]
    section = content if isinstance(content, dict) else {}
    return section | {path[0]: put(section.get(path[0]), path[1:], value)}


def drop(content, path: KeyPath):
    """Return plain `content` without the key at `path`."""
    if len(path) == 1:
        return {key: value for key, value in content.items() if key != path[0]}
    return put(content, path[:1], drop(content[path[0]], path[1:])) if isinstance(path[0], str) else content


def tried(path, overrides, message) -> list[str] | None:
    """Return what is still wrong at the place of a message after its first suggestion; `None` for one in prose."""
    place, write = path_of(message["path"]), message["write"].removesuffix(", without quotes")
    if message["position"].endswith(" sweep.over"):
        place = ("sweep", "over", write.partition(": ")[0])
    text = path.read_text(encoding="utf-8-sig")
    first = re.split(", such as ", write)[-1].split(", or ")[0]
    if "--set " in write:
        words = [word for word in shlex.split(first) if word != "--set"]
        keys = [word.partition("=")[0] for word in words]
        wrong = message["position"].removeprefix("--set ").removesuffix(" sweep.over")
        others = [text for text in overrides if text.partition("=")[0] not in keys and text != wrong]
        if message["found"].startswith("nothing"):
            others = [text for text in overrides if text.partition("=")[0] not in keys]
        left = complaints(path, [*others, *words])
    elif "found no valid YAML" in message[0]:
        number = int(message["position"].rpartition(":")[2]) - 1
        lines = text.split("\n")
        line, _, spaces = first.partition(" behind ")
        indent = " " * int(spaces.split()[0]) if spaces else re.match(r"\s*", lines[number])[0].replace("\t", "")  # pyright: ignore
        lines[number] = indent + line if write.startswith(first) else lines[number]
        path.write_text("\n".join(lines))
        left = [line for line in complaints(path, overrides) if line["position"] == message["position"]]
        return [line[0] for line in left if "found no valid YAML" in line[0]]
    else:
        content = parse(text, str).value if message["path"] else {}
        if "found an unknown key" in message[0]:
            content = drop(content, place)
        for part in first.split(" and "):
            part, _, section = part.partition(" in the section ")
            key, colon, value = part.partition(": ")
            if first == "nothing in its place":
                break
            target = (*section.split("."), key) if section else place_of(key, place, content) if colon else place
            if target is None or not re.fullmatch(r"[\w.]+", key):
                return None
            content = put(content, target, parse(value if colon else part, str).value)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        left = complaints(path, overrides)
    return [line[0] for line in left if path_of(line["path"])[: len(place)] == place]
