"""Scenarios: YAML, its schema and its errors; a scenario becomes a run."""

from .forecast import in_hours as in_hours, passes_in_words as passes_in_words
from .reading import (
    ScenarioError as ScenarioError,
    parse_overrides as parse_overrides,
    read_scenario as read_scenario,
    resolved as resolved,
    scenario_json_schema as scenario_json_schema,
)
from .runner import build as build, default_device as default_device, environment as environment, run as run
from .scenario import Scenario as Scenario
from .theory import Cell as Cell, check_theory as check_theory, theory_cells as theory_cells
