"""The points of the sweep of a scenario: a scenario for every combination of the values of its axes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pydantic import ValidationError

from ..comparison.models import GRADIENT
from .document import Document, Override
from .grid import name_of
from .keys import override
from .scenario import Scenario


@dataclass(frozen=True)
class Point:
    """A point of the sweep of a scenario: its index in the grid, and the scenario there.

    `coordinates` are the values by their axes, as the scenario holds them: 1.0 where 1 was written.
    """

    index: tuple[int, ...]
    coordinates: Mapping[str, Any]
    scenario: Scenario

    @property
    def name(self) -> str:
        """The coordinates in words."""
        return name_of(self.coordinates)


class PointError(ValueError):
    """The `values` of a point break the schema, together or with the rest of the scenario, as `error` says."""

    def __init__(self, values: Mapping[str, Any], error: ValidationError):
        super().__init__(str(error))
        self.values, self.error = values, error


def points(scenario: Scenario) -> tuple[Point, ...]:
    """Return every point of the sweep of a scenario, the last axis running fastest.

    They are validated when they are first asked for, and kept with the scenario and its copies. Raises `PointError`.
    """
    kept = vars(scenario)  # where `functools.cached_property` keeps what it has made, and a copy takes it along
    # A copy with other sections has other points; held here, what the key names by address stays.
    made_of = [getattr(scenario, name) for name in type(scenario).model_fields if name not in ("sweep", "figure")]
    made_of.append(None if scenario.sweep is None else scenario.sweep.over)
    before, found = kept.get("points", ((), ()))
    if len(before) != len(made_of) or any(one is not other for one, other in zip(before, made_of, strict=True)):
        found = tuple(_points(scenario))
        kept["points"] = made_of, found
    return found


def _points(scenario: Scenario) -> Iterator[Point]:
    if scenario.sweep is None:
        return
    axes = scenario.sweep.over
    # Models follow the descents of the sweep, of which a point knows nothing.
    flow = scenario.flow.model_copy(update={"models": (GRADIENT,)})
    for index, values in scenario.sweep.grid.points():
        # All else stays the objects that it is: sections that no axis is in, and what other keys of a section hold.
        content = {name: getattr(scenario, name) for name in scenario.model_fields_set - {"sweep", "figure"}}
        content |= {"flow": flow} if scenario.flow.of_descent else {}
        for section in {axis.partition(".")[0] for axis in axes if "." in axis} & content.keys():
            content[section] = {key: getattr(content[section], key) for key in content[section].model_fields_set}
        overrides = [Override(tuple(axis.split(".")), value, axis) for axis, value in values.items()]
        try:
            found = Scenario.model_validate(override(Document(content, {(): ""}), overrides).value)
        except ValidationError as error:
            raise PointError(values, error) from None
        coordinates = {axis: attrgetter(axis)(found) for axis in axes}
        yield Point(index, coordinates, found)
