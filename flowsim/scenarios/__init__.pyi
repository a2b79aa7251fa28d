from .document import (
    ScenarioError as ScenarioError,
    header_comment as header_comment,
    parse_overrides as parse_overrides,
    read_document as read_document,
)
from .reading import (
    in_hours as in_hours,
    read_scenario as read_scenario,
    resolved as resolved,
    scenario_json_schema as scenario_json_schema,
)
from .runner import build as build, default_device as default_device, environment as environment, run as run
from .scenario import Scenario as Scenario
from .theory import Cell as Cell, check_theory as check_theory, theory_cells as theory_cells
