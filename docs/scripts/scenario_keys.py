"""Write the pages of a scenario's keys from the JSON Schema by which scenarios are read."""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from flowsim.scenarios import scenario_json_schema

HEAD = """# Keys of a scenario

A scenario is one YAML file: see [how to write one](../how_to/scenario.md). This page is made from the JSON Schema by
which scenarios are checked; `python -m flowsim --schema` prints that schema for editors. Only `data` and `network` must
be there. Whatever has a `kind` may be one of your own, `my_module:MyKind`. Pages of their own have
[`data`, `network` and `loss`](scenario_kinds.md) and [`record`](scenario_probes.md).
"""
KINDS = """# Keys of a scenario: data, network and loss

What is trained on what. [The other keys](scenario_keys.md).
"""
PROBES = """# Keys of a scenario: record, a to m

What is recorded beside what always is, and its kinds from a to m; those [from n to z](scenario_probes_n_to_z.md).
[The other keys](scenario_keys.md), [probes of your own](../how_to/probes.md).
"""
MORE_PROBES = """# Keys of a scenario: record, n to z

The kinds of `record` from n to z; those [from a to m](scenario_probes.md).

"""

Node = dict[str, Any]


def made() -> Iterator[tuple[str, str]]:
    """Yield the pages: a section for every key at the top, with the keys below it."""
    schema = scenario_json_schema()
    below = {name: list(_below(node, schema)) for name, node in schema["properties"].items()}
    probes = sorted(below["record"])
    below["record"] = [(kind, text) for kind, text in probes if kind < "n"]
    sections = {name: _section(name, node, below[name]) for name, node in schema["properties"].items()}
    yield "reference/scenario_probes.md", PROBES + sections.pop("record")
    yield "reference/scenario_probes_n_to_z.md", MORE_PROBES + "\n\n".join(text for kind, text in probes if kind >= "n")
    yield "reference/scenario_kinds.md", KINDS + "".join(sections.pop(name) for name in ("data", "network", "loss"))
    yield "reference/scenario_keys.md", HEAD + "".join(sections.values())


def _section(name: str, node: Node, below: list[tuple[str, str]]) -> str:
    parts = [f"\n## `{name}`\n", _said(node), f"Default: {_value(node['default'])}." if "default" in node else ""]
    if "examples" in node:
        parts.append(f"Example: `{name}: {_yaml(node['examples'][0])}`.")
    parts += [text for _, text in below]
    return "\n\n".join(part for part in parts if part) + "\n"


def _below(node: Node, schema: Node) -> Iterator[tuple[str, str]]:
    """Yield the tables of the keys under `node`: that of its section, or those of its kinds, each with its kind."""
    for one in _alternatives(node, schema):
        keys = one.get("properties", {})
        kind = keys.get("kind", {}).get("const", "")
        rows = [(name, key) for name, key in keys.items() if name != "kind"]
        parts = [f"### `kind: {kind}`\n\n{_said(one)}"] if kind else []
        parts += [_table(rows, one.get("required", []), schema)] if rows else []
        yield kind, "\n\n".join(parts)


def _alternatives(node: Node, schema: Node) -> Iterator[Node]:
    """Yield the objects that `node` may be, references followed, each once."""
    if "$ref" in node:
        yield from _alternatives(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    elif "properties" in node:
        yield node
    for word in ("anyOf", "oneOf"):
        for one in node.get(word, []):
            yield from _alternatives(one, schema)
    if isinstance(node.get("items"), dict):
        yield from _alternatives(node["items"], schema)


def _table(rows: list[tuple[str, Node]], required: list[str], schema: Node) -> str:
    lines = ["| key | takes | default | what it says |", "|---|---|---|---|"]
    for name, key in rows:
        default = "*must be given*" if name in required else _value(key.get("default")) if "default" in key else ""
        lines.append(f"| `{name}` | {_kind(key, schema)} | {default} | {_cell(_said(key))} |")
    return "\n".join(lines)


def _kind(key: Node, schema: Node) -> str:
    """Return in words what a key takes."""
    if "enum" in key:
        return " or ".join(f"`{value}`" for value in key["enum"])
    if "const" in key:
        return f"`{key['const']}`"
    if "$ref" in key:
        return "a section"
    found = [_kind(one, schema) for word in ("anyOf", "oneOf") for one in key.get(word, [])]
    if found:
        return " or ".join(dict.fromkeys(found))
    names = {"number": "a number", "integer": "a whole number", "string": "a word", "boolean": "true or false"}
    names |= {"array": "a list", "object": "a section", "null": "null"}
    return names.get(key.get("type", ""), "anything") + _range(key)


def _range(key: Node) -> str:
    low, high = key.get("minimum", key.get("exclusiveMinimum")), key.get("maximum", key.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    words = [] if low is None else [f"{'from' if 'minimum' in key else 'above'} {low:g}"]
    words += [] if high is None else [f"{'to' if 'maximum' in key else 'below'} {high:g}"]
    return f", {' '.join(words)}"


def _said(node: Node) -> str:
    return node.get("description", "").replace("*", r"\*")


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", r"\|")


def _value(value: Any) -> str:
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").strip() if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
