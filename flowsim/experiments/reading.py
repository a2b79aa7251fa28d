"""From a YAML file and `--set` options to a scenario that keeps the schema, or to one clear message."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .document import Document, ScenarioError as ScenarioError, complaint, parse, read_document
from .scenario import Scenario
from .settings import FileData
from .values import KeyPath
from .wording import complaints, keys, unknown_key

_AXES = ("sweep", "over")


@dataclass(frozen=True)
class Override:
    """A value that takes the place of one in the file: `--set network.scale=0.3`."""

    path: tuple[str, ...]
    value: Any
    place: str


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Read overrides written `key.path=VALUE`, the value in YAML: `descent.learning_rates=[0.1, 0.2]`.

    Raises `ScenarioError` for what has no value, is no key of a scenario, is not YAML, or is set twice.
    """
    overrides: dict[tuple[str, ...], Override] = {}
    for text in texts:
        override = _override(text)
        if override.path in overrides:
            found = f"a second value, after {overrides[override.path].place}"
            wording = {"found": found, "expected": "one value for a key", "write": "one of the two"}
            raise ScenarioError(complaint(override.place, override.path, **wording))
        overrides[override.path] = override
    return tuple(overrides.values())


def read_scenario(path: str | Path, overrides: Iterable[Override] = ()) -> Scenario:
    """Read the scenario in the YAML file `path`, with `overrides` in place of what the file says.

    A key of the file that an overridden `kind` does not have is left out. Raises `ScenarioError`, one line
    for each thing wrong, for a file that cannot be read, is not YAML, or breaks the schema, and for a data
    file that is not there.
    """
    document = _overridden(read_document(Path(path)), overrides)
    try:
        scenario = Scenario.model_validate(document.value)
    except ValidationError as error:
        raise ScenarioError("\n".join(complaints(error, document))) from None
    _refuse_absent_data(scenario, Path(path).parent, document)
    _refuse_bad_points(scenario, document)
    return scenario


def with_values(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """Return `scenario` with other `values` for some of its keys, written network.scale, and without its sweep.

    A key that another `kind` does not have is left out. Raises `pydantic.ValidationError` for values that break the
    schema, together or with the rest.
    """
    plain = scenario.model_dump(exclude_unset=True, exclude={"sweep", "figure"})
    overrides = [Override(tuple(key.split(".")), value, key) for key, value in values.items()]
    return Scenario.model_validate(_overridden(Document(plain, {(): ""}), overrides).value)


def resolved(scenario: Scenario) -> dict[str, Any]:
    """Return `scenario` in plain lists, mappings, numbers and text, every default filled in."""
    return _plain(scenario.model_dump())


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def _override(text: str) -> Override:
    place = f"--set {text if text.isprintable() else repr(text)}"
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if path[:2] == _AXES and len(path) > 3:
        path = (*_AXES, ".".join(path[2:]))
    for n in range(len(path)):
        if path[n] not in (known := keys(path[:n])):
            raise ScenarioError(unknown_key(place, path[: n + 1], known))
    if not equals or not value.strip():
        write = f"{key.strip()}=VALUE, with null for no value"
        raise ScenarioError(complaint(place, found="no value", expected="KEY=VALUE", write=write))
    return Override(path, parse(value, lambda line: place).value, place)


def _overridden(document: Document, overrides: Iterable[Override]) -> Document:
    value, places = copy.deepcopy(document.value), dict(document.places)
    # Sections before their keys, kinds before the keys that depend on them: the order given does not matter.
    for override in sorted(overrides, key=lambda given: (len(given.path), given.path[-1] != "kind")):
        *sections, key = override.path
        holder = value
        for section in sections:
            holder = holder.setdefault(section, {})
            places.setdefault((section,), override.place)
        if not isinstance(holder, dict):
            continue  # the file has no section here, which is reported with its line
        if key == "kind":
            _leave_out_foreign_keys(holder, tuple(sections), override.value)
        holder[key] = copy.deepcopy(override.value)
        places = {path: place for path, place in places.items() if path[: len(override.path)] != override.path}
        places[override.path] = override.place
    return Document(value, places)


def _leave_out_foreign_keys(section: dict[str, Any], path: KeyPath, kind: Any) -> None:
    before, after = keys(path, section.get("kind")), keys(path, kind)
    for key in set(section).intersection(before):
        # `features` is a number for one kind of data and names for another: same word, different key.
        if key not in after or before[key].annotation != after[key].annotation:
            del section[key]


def _refuse_bad_points(scenario: Scenario, document: Document) -> None:
    """Refuse an axis of the sweep that is no key, a value that its key does not take, and values that do not fit."""
    axes = scenario.sweep.over if scenario.sweep else {}
    for axis in axes:
        place = document.place((*_AXES, axis))
        if axis not in (known := keys(_AXES)):
            raise ScenarioError(unknown_key(place, (*_AXES, axis), known))
    for combination in product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        try:
            point = with_values(scenario, values)
        except ValidationError as error:
            raise ScenarioError(_bad_point(values, error, document)) from None
        if scenario.sweep and scenario.sweep.critical and not point.network.linear:
            path = ("sweep", "critical")
            wording = {"expected": "a linear one, whose minimum is known", "write": "critical: null"}
            raise ScenarioError(complaint(document.place(path), path, found="a nonlinear network", **wording))


def _bad_point(values: Mapping[str, Any], error: ValidationError, document: Document) -> str:
    """Return what is wrong with one value of an axis, or else with the combination of the values of several."""
    places = {axis: f"{document.place((*_AXES, axis))} {'.'.join(_AXES)}" for axis in values}
    overrides = [Override(tuple(axis.split(".")), value, places[axis]) for axis, value in values.items()]
    if len(values) == 1 or any(item["type"] != "refused" for item in error.errors()):
        return "\n".join(complaints(error, _overridden(document, overrides)))
    found = ", ".join(f"{axis}={value}" for axis, value in values.items())
    wording = {"expected": "values that fit together", "write": "axes without this combination"}
    return complaint(document.place(_AXES), _AXES, found=found, **wording)


def _refuse_absent_data(scenario: Scenario, folder: Path, document: Document) -> None:
    if not isinstance(scenario.data, FileData) or (folder / scenario.data.path).is_file():
        return
    path = ("data", "path")
    found = f"{scenario.data.path!r}, which is no file in {folder.resolve()}"
    wording = {"expected": "a .csv or .npz file", "write": "its path as seen from the folder of the scenario"}
    raise ScenarioError(complaint(document.place(path), path, found=found, **wording))
