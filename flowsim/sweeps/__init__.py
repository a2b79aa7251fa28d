"""Sweeps: a grid of runs, in blocks that any worker can compute and that are never lost."""

from .cluster import ClusterError as ClusterError
from .compute import Failure as Failure
from .run import (
    PendingSweep as PendingSweep,
    Sweep as Sweep,
    SweepPlan as SweepPlan,
    SweepRun as SweepRun,
    run_sweep as run_sweep,
    run_sweeps as run_sweeps,
    sweeps_ahead as sweeps_ahead,
)
from .scenario_recipe import scenario_blocks as scenario_blocks
from .store import BlockStore as BlockStore
from .workers import Workers as Workers, default_jobs as default_jobs, workers as workers
