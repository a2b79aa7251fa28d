"""Sweeps: a grid of runs, in blocks that any worker can compute and that are never lost."""

from .block import plan as plan
from .cluster import ClusterError as ClusterError
from .compute import Failure as Failure
from .run import (
    PendingSweep as PendingSweep,
    Planned as Planned,
    Sweep as Sweep,
    SweepRun as SweepRun,
    run_sweep as run_sweep,
    run_sweeps as run_sweeps,
    sweeps_ahead as sweeps_ahead,
)
from .store import BlockStore as BlockStore
from .workers import Workers as Workers, default_jobs as default_jobs, workers as workers
