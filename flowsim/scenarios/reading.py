"""From a YAML file and `--set` options to a scenario that keeps the schema, or to one clear message."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..comparison.plan import DEFAULT_STEPS
from ..kinds.recipes import KeyPath, within
from ..kinds.registry import OUTSIDE, look_in, shadowed
from ..results.store import plain
from ..runtime.errors import UserError
from ..runtime.paths import user_path
from .document import (
    Document,
    Override,
    ScenarioError as ScenarioError,
    complaint,
    parse_overrides as parse_overrides,
    read_document,
)
from .keys import AXES, keys, override
from .points import PointError, points
from .remedies import first_accepted, suggestion
from .scenario import Scenario
from .wording import complaints, custom_complaint, unknown_key


def read_scenario(
    path: str | Path, overrides: Iterable[Override] = (), *, notice: Callable[[str], None] = lambda text: None
) -> Scenario:
    """Read the scenario in a YAML file.

    A key of the file that an overridden `kind` does not have is left out. Modules that it names are looked for in its
    folder too, from now on.

    Args:
        path: The file.
        overrides: What stands in place of what the file says, from `parse_overrides`.
        notice: Called with every part that takes long, before the points of a sweep are checked, which may be one.

    Returns:
        The scenario, checked.

    Raises:
        ScenarioError: One line for each thing wrong, for a file that cannot be read, is not YAML, or breaks the schema,
            and for a data file that is not there.
    """
    try:
        path = user_path(path)
    except UserError as error:
        raise ScenarioError(str(error)) from None
    look_in(path.parent)
    written, overrides = read_document(path), tuple(overrides)
    document = override(written, overrides)
    _check_overrides(overrides, document)
    _check_modules(document, path.parent)
    try:
        scenario = Scenario.model_validate(document.value)
    except ValidationError as error:
        raise ScenarioError("\n".join(complaints(error, document))) from None
    for part in _long_parts(scenario):
        notice(f"{path}: {part}")
    for error in within(("data",), scenario.data.absences(path.parent)):
        raise ScenarioError(custom_complaint(error, document))
    _check_points(scenario, document)
    return scenario


def _long_parts(
    scenario: Scenario,
    *,
    longer_than: float = 600.0,
    seconds_per_point: float = 5e-3,
    seconds_per_start: float = 0.02,
    seconds_per_step: float = 2e-6,
) -> Iterator[str]:
    """Yield of every part of a scenario that takes a core more than ten minutes, about how long it takes at least.

    The seconds are those of the fastest parts on one core.
    """
    parts: dict[str, float] = {}
    if (sweep := scenario.sweep) is not None:
        points = sweep.grid.size
        parts[f"the {points} points of the sweep, before the first run,"] = seconds_per_point * points
        parts[f"the {points * sweep.starts} starts of the sweep"] = seconds_per_start * points * sweep.starts
    if scenario.theory is not None:
        parts[f"the {scenario.theory.flows} flows of the theory"] = scenario.theory.seconds()
    if scenario.lemma_3 is not None:
        parts[f"{scenario.lemma_3.draws} initializations of lemma_3"] = scenario.lemma_3.seconds()
    steps = scenario.descent.all_steps(scenario.flow.t1)
    parts[f"{steps} steps of descent, unless it converges before,"] = seconds_per_step * steps
    for part, seconds in parts.items():
        if seconds > longer_than:
            yield f"{part} may take {in_hours(seconds)} of one core or more"


def in_hours(seconds: float) -> str:
    """Return a time in words: 3 s, 20 minutes, 5 hours, 4 days."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def resolved(scenario: Scenario) -> dict[str, Any]:
    """Return `scenario` in plain lists, mappings, numbers and text, every default filled in."""
    descent = scenario.descent
    if descent.steps is None and math.isinf(scenario.flow.t1):
        # The same for all learning rates, it is one number, as it was before it could depend on t1.
        descent = descent.model_copy(update={"steps": DEFAULT_STEPS})
    return plain(scenario.model_copy(update={"descent": descent}).model_dump())


def scenario_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Scenario.model_json_schema()


def _check_points(scenario: Scenario, document: Document) -> None:
    """Raise `ScenarioError` for an axis that is no key, a value that its key does not take, and values that do not fit.

    And for a search for critical learning rates at a point whose minimum is not known.
    """
    if scenario.sweep is None:
        return
    for axis in scenario.sweep.over:
        if axis not in keys(AXES, document.value):
            raise ScenarioError(unknown_key(document, (*AXES, axis)))
    try:
        found = points(scenario)
    except PointError as error:
        raise ScenarioError(_bad_point(error.values, error.error, document)) from None
    unknown = [point.scenario for point in found if not point.scenario.knows_minimum]
    if scenario.sweep.critical and unknown:
        path, found = ("sweep", "critical"), unknown[0].hides_minimum
        expected = "the squared error" if unknown[0].network.is_linear() else "a linear one"
        wording = {"expected": f"{expected}, whose minimum is known", "write": "critical: null"}
        if unknown[0].least_squares:
            wording = {
                "expected": "none, as the minimum is not known with it",
                "write": "weight_decay: 0, or critical: null",
            }
        raise ScenarioError(complaint(document.position(path), path, found=found, **wording))


def _bad_point(values: Mapping[str, Any], error: ValidationError, document: Document) -> str:
    """Return what is wrong with one value of an axis, or else with the combination of the values of several."""
    positions = {axis: f"{document.position((*AXES, axis))} {'.'.join(AXES)}" for axis in values}
    overrides = [Override(tuple(axis.split(".")), value, positions[axis]) for axis, value in values.items()]
    if len(values) == 1 or any(item["type"] != "refused" for item in error.errors()):
        return "\n".join(complaints(error, override(document, overrides), axes=values))
    found = ", ".join(f"{axis}={value}" for axis, value in values.items())
    wording = {"expected": "values that fit together", "write": "axes without this combination"}
    return complaint(document.position(AXES), AXES, found=found, **wording)


def _check_overrides(overrides: Iterable[Override], document: Document) -> None:
    """Raise `ScenarioError` for a key that the scenario does not have, and for one without a value."""
    for given in overrides:
        path = given.path
        for n in range(len(path)):
            if path[n] not in keys(path[:n], document.value):
                raise ScenarioError(unknown_key(document, path[: n + 1], override=given))
        if given.without_value:
            field = keys(path[:-1], document.value)[path[-1]]
            examples = [[example] if path[:-1] == AXES else example for example in field.examples or ()]
            values = first_accepted(document.value, path, [*examples, None, [], {}])
            write = suggestion(document.value, given.position, path, path, *values) if values else "a value after ="
            raise ScenarioError(complaint(given.position, found="no value", expected="KEY=VALUE", write=write))


def _check_modules(document: Document, folder: Path) -> None:
    """Raise `ScenarioError` for a module beside the scenario in whose place Python takes another one of that name."""
    for path, name in _texts(document.value):
        try:
            found = shadowed(name, folder) if re.fullmatch(OUTSIDE, name) else None
        except (Exception, SystemExit):  # a module that cannot be imported: reported where the section is validated
            found = None
        if found is not None:
            wording = {"expected": f"the one in {found[0].parent}", "write": "a name that no other module has"}
            raise ScenarioError(complaint(document.position(path), path, found=f"{name!r} in {found[1]}", **wording))


def _texts(content: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield every text in a plain document, after its path."""
    if isinstance(content, str):
        yield path, content
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inside:
        yield from _texts(value, (*path, key))
