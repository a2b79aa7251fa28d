"""A scenario becomes results on disk."""

from ..kinds import refusal as refusal
from .ahead import Ahead as Ahead
from .figure import FIGURES as FIGURES, Figure as Figure, figures_of as figures_of
from .forecast import in_hours as in_hours, passes_in_words as passes_in_words
from .outlook import Outlook as Outlook, outlook as outlook
from .pace import Pace as Pace, measure_pace as measure_pace
from .reading import (
    ScenarioError as ScenarioError,
    parse_overrides as parse_overrides,
    read_scenario as read_scenario,
    resolved as resolved,
    scenario_json_schema as scenario_json_schema,
)
from .results import Results as Results, open_results as open_results
from .runner import (
    build as build,
    default_device as default_device,
    environment as environment,
    run as run,
)
from .scenario import Scenario as Scenario
from .store import (
    BLOCKS as BLOCKS,
    SWEEP as SWEEP,
    THEORY as THEORY,
    ResultFolder as ResultFolder,
    StoreError as StoreError,
    difference as difference,
    refuse_obstacles as refuse_obstacles,
    refuse_unwritable as refuse_unwritable,
    result_folder as result_folder,
    write_atomically as write_atomically,
)
from .sweep import (
    BlockStore as BlockStore,
    ClusterError as ClusterError,
    Failure as Failure,
    NoStore as NoStore,
    PendingSweep as PendingSweep,
    Planned as Planned,
    Store as Store,
    SweepResults as SweepResults,
    SweepRun as SweepRun,
    Workers as Workers,
    default_jobs as default_jobs,
    run_sweep as run_sweep,
    run_sweeps as run_sweeps,
    sweeps_ahead as sweeps_ahead,
    workers as workers,
)
from .template import Template as Template, templates as templates
from .theory import (
    Cell as Cell,
    check_theory as check_theory,
    theory_cells as theory_cells,
)
from .theory_dataset import theory_from_dataset as theory_from_dataset, theory_to_dataset as theory_to_dataset
from .theory_results import CheckedFlow as CheckedFlow, TheoryResults as TheoryResults
