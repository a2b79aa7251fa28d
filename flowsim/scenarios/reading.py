"""From a YAML file and `--set` options to a scenario that keeps the schema, or to one clear message."""

import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from ..comparison.compare import steps_of_descent
from ..kinds import KeyPath, within
from ..kinds.outside import look_in, shadowed
from ..kinds.registry import OUTSIDE
from .document import Document, ScenarioError as ScenarioError, complaint, parse, read_document
from .forecast import long_parts
from .keys import AXES, choices, keys
from .scenario import Scenario
from .wording import complaints, refused, unknown_key


@dataclass(frozen=True)
class Override:
    """A value that takes the place of one in the file: `--set network.scale=0.3`."""

    path: tuple[str, ...]
    value: Any
    place: str


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Read overrides written `key.path=VALUE`, the value in YAML: `descent.learning_rates=[0.1, 0.2]`.

    Raises `ScenarioError` for what has no value, is not YAML, or is set twice. Whether there is such a key depends on
    the scenario.
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


def read_scenario(
    path: str | Path, overrides: Iterable[Override] = (), *, notice: Callable[[str], None] = lambda text: None
) -> Scenario:
    """Read the scenario in the YAML file `path`, with `overrides` in place of what the file says.

    `notice` hears of every part that takes long, before the points of a sweep are checked, which may be one.

    A key of the file that an overridden `kind` does not have is left out. Modules that it names are looked for in its
    folder too, from now on. Raises `ScenarioError`, one line for each thing wrong, for a file that cannot be read, is
    not YAML, or breaks the schema, and for a data file that is not there.
    """
    look_in(Path(path).parent)
    written, overrides = read_document(Path(path)), tuple(overrides)
    document = _overridden(written, overrides)
    _refuse_unknown_keys(overrides, document)
    _refuse_shadowed_modules(document, Path(path).parent)
    try:
        scenario = Scenario.model_validate(document.value)
    except ValidationError as error:
        raise ScenarioError("\n".join(complaints(error, document))) from None
    steps = scenario.descent.all_steps(scenario.flow.t1)
    for part in long_parts(scenario.sweep, scenario.theory, scenario.lemma_3, steps):
        notice(f"{path}: {part}")
    _refuse(within(("data",), scenario.data.absences(Path(path).parent)), document)
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
    descent = scenario.descent
    if descent.steps is None and math.isinf(scenario.flow.t1):
        # The same for all learning rates, it is one number, as it was before it could depend on t1.
        descent = descent.model_copy(update={"steps": steps_of_descent(1.0, None, math.inf)})
    return _plain(scenario.model_copy(update={"descent": descent}).model_dump())


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
    if path[:2] == AXES and len(path) > 3:
        path = (*AXES, ".".join(path[2:]))
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
            holder = _entered(holder, section)
            places.setdefault((section,), override.place)
        if not isinstance(holder, dict):
            continue  # the file has no section here, which is reported with its line
        if key == "kind":
            _leave_out_foreign_keys(holder, tuple(sections), override.value)
        holder[key] = copy.deepcopy(override.value)
        places = {path: place for path, place in places.items() if path[: len(override.path)] != override.path}
        places[override.path] = override.place
    return Document(value, places)


def _entered(holder: Any, section: str) -> Any:
    """Return what stands in a section of `holder`, which is made if need be, or None where there can be none."""
    if not isinstance(holder, dict):
        return None
    if isinstance(holder.get(section), str) and section in choices() and choices()[section].word:
        holder[section] = {"kind": holder[section]}  # a kind without options, written as its name alone
    return holder.setdefault(section, {})


def _leave_out_foreign_keys(section: dict[str, Any], path: KeyPath, kind: Any) -> None:
    before, after = (keys(path, {path[0]: {"kind": name}}) for name in (section.get("kind"), kind))
    for key in set(section).intersection(before):
        # `features` is a number for one kind of data and names for another: same word, different key.
        if key not in after or before[key].annotation != after[key].annotation:
            del section[key]


def _refuse_bad_points(scenario: Scenario, document: Document) -> None:
    """Refuse an axis of the sweep that is no key, a value that its key does not take, and values that do not fit."""
    axes = scenario.sweep.over if scenario.sweep else {}
    for axis in axes:
        place = document.place((*AXES, axis))
        if axis not in (known := keys(AXES, document.value)):
            raise ScenarioError(unknown_key(place, (*AXES, axis), known))
    for combination in product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        try:
            point = with_values(scenario, values)
        except ValidationError as error:
            raise ScenarioError(_bad_point(values, error, document)) from None
        if scenario.sweep and scenario.sweep.critical and not point.least_squares:
            path = ("sweep", "critical")
            found = f"the loss {point.loss.kind}" if point.network.is_linear() else "a nonlinear network"
            expected = "the squared error" if point.network.is_linear() else "a linear one"
            wording = {"expected": f"{expected}, whose minimum is known", "write": "critical: null"}
            raise ScenarioError(complaint(document.place(path), path, found=found, **wording))


def _bad_point(values: Mapping[str, Any], error: ValidationError, document: Document) -> str:
    """Return what is wrong with one value of an axis, or else with the combination of the values of several."""
    places = {axis: f"{document.place((*AXES, axis))} {'.'.join(AXES)}" for axis in values}
    overrides = [Override(tuple(axis.split(".")), value, places[axis]) for axis, value in values.items()]
    if len(values) == 1 or any(item["type"] != "refused" for item in error.errors()):
        return "\n".join(complaints(error, _overridden(document, overrides)))
    found = ", ".join(f"{axis}={value}" for axis, value in values.items())
    wording = {"expected": "values that fit together", "write": "axes without this combination"}
    return complaint(document.place(AXES), AXES, found=found, **wording)


def _refuse_unknown_keys(overrides: Iterable[Override], document: Document) -> None:
    for override in overrides:
        path = override.path
        for n in range(len(path)):
            if path[n] not in (known := keys(path[:n], document.value)):
                raise ScenarioError(unknown_key(override.place, path[: n + 1], known))


def _refuse_shadowed_modules(document: Document, folder: Path) -> None:
    """Refuse a module beside the scenario in whose place Python takes another one of the same name."""
    for path, name in _places(document.value):
        try:
            found = shadowed(name, folder) if re.fullmatch(OUTSIDE, name) else None
        except Exception:  # a module that cannot be imported, which is said where the section is checked
            found = None
        if found is not None:
            wording = {"expected": f"the one in {found[0].parent}", "write": "a name that no other module has"}
            raise ScenarioError(complaint(document.place(path), path, found=f"{name!r} in {found[1]}", **wording))


def _places(content: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every text in a plain document, after its place."""
    if isinstance(content, str):
        yield path, content
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inside:
        yield from _places(value, (*path, key))


def _refuse(refusals: Iterable[PydanticCustomError], document: Document) -> None:
    for error in refusals:
        raise ScenarioError(refused(error, document))
