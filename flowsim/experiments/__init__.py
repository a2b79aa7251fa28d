"""A scenario becomes results on disk."""

from .reading import (
    ScenarioError as ScenarioError,
    parse_overrides as parse_overrides,
    read_scenario as read_scenario,
    resolved as resolved,
    scenario_json_schema as scenario_json_schema,
)
from .runner import (
    build as build,
    default_device as default_device,
    environment as environment,
    run as run,
)
from .scenario import Scenario as Scenario
from .store import (
    SWEEP as SWEEP,
    ResultFolder as ResultFolder,
    StoreError as StoreError,
    open_results as open_results,
    refuse_unwritable as refuse_unwritable,
)
from .sweep import (
    FOLDER as FOLDER,
    BlockStore as BlockStore,
    ClusterError as ClusterError,
    PendingSweep as PendingSweep,
    Progress as Progress,
    SweepResults as SweepResults,
    Workers as Workers,
    default_jobs as default_jobs,
    run_sweep as run_sweep,
    sweeps_ahead as sweeps_ahead,
    workers as workers,
)
from .theory import (
    Cell as Cell,
    CheckedCell as CheckedCell,
    TheoryResults as TheoryResults,
    check_theory as check_theory,
    theory_cells as theory_cells,
)
