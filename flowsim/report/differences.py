"""What differs between scenarios: the keys that are not the same, by dotted names as in YAML, and their table."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from ..formatting.terminal import empty_table, printable

Scenarios = Mapping[str, Mapping[str, Any]]
_ABSENT = "–"


def differences(scenarios: Scenarios) -> dict[str, dict[str, Any]]:
    """Return the keys that are not the same in all `scenarios`, as "network.scale", and their values by scenario.

    A scenario that does not have a key is not among its values; one that is empty is not known, and left out.
    """
    flat = {name: dict(_flattened(scenario)) for name, scenario in scenarios.items() if scenario}
    found = {key: {name: keys[key] for name, keys in flat.items() if key in keys} for key in _keys(flat.values())}
    return {key: values for key, values in found.items() if not _is_same(values, len(flat))}


def differences_table(scenarios: Scenarios) -> Table | Text | None:
    """Return the table of the keys that differ, a column for each scenario; a text where none does.

    `None` where fewer than two are known.
    """
    if sum(map(bool, scenarios.values())) < 2:
        return None
    found = differences(scenarios)
    if not found:
        return Text("the scenarios are the same")
    table = empty_table("what differs between the scenarios", [], gap=2)
    table.add_column("", no_wrap=True)
    for name in scenarios:
        table.add_column(printable(name))
    for key, values in found.items():
        table.add_row(printable(key), *(_as_yaml(values[name]) if name in values else _ABSENT for name in scenarios))
    return table


def _flattened(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _flattened(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _keys(flat: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return all keys, those of one section together."""
    keys = list(dict.fromkeys(key for one in flat for key in one))
    sections = list(dict.fromkeys(key.split(".")[0] for key in keys))
    return sorted(keys, key=lambda key: sections.index(key.split(".")[0]))


def _is_same(values: Mapping[str, Any], count: int) -> bool:
    """Tell whether all of so many scenarios have the same value."""
    return len(values) == count and len(set(map(_as_yaml, values.values()))) <= 1


def _as_yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"))
    return printable(text.removesuffix("\n").removesuffix("\n...").strip())
