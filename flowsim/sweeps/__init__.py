"""Sweeps: a grid of runs, in blocks that any worker can compute and that are never lost."""

from .ahead import PendingSweep as PendingSweep, sweeps_ahead as sweeps_ahead
from .block import plan as plan
from .cluster import ClusterError as ClusterError
from .compute import Failure as Failure
from .run import (
    Planned as Planned,
    SweepResults as SweepResults,
    SweepRun as SweepRun,
    run_sweep as run_sweep,
    run_sweeps as run_sweeps,
)
from .store import BlockStore as BlockStore, NoStore as NoStore, Store as Store
from .workers import Workers as Workers, default_jobs as default_jobs, workers as workers
