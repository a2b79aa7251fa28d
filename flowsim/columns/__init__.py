"""Named columns of arrays: what the core and the lab share of runs. The lab stores them as a data set of xarray."""

from .columns import Column as Column, Columns as Columns, LabelledArrays as LabelledArrays
from .runs import (
    FLOW as FLOW,
    GRADIENT_DESCENT as GRADIENT_DESCENT,
    GRADIENT_FLOW as GRADIENT_FLOW,
    Edge as Edge,
    Recorded as Recorded,
    RecordedRun as RecordedRun,
    Run as Run,
    place_of as place_of,
    read_runs as read_runs,
    run_coordinates as run_coordinates,
    runs_of as runs_of,
)
from .schema import (
    BOUNDS as BOUNDS,
    BRANCH as BRANCH,
    CRITICAL as CRITICAL,
    CURVATURE as CURVATURE,
    DYNAMICS as DYNAMICS,
    FAILED as FAILED,
    LEARNING_RATE as LEARNING_RATE,
    MEASURES as MEASURES,
    NOT_ASKED as NOT_ASKED,
    RECORD as RECORD,
    RUN as RUN,
    SHARPNESS as SHARPNESS,
    THRESHOLD as THRESHOLD,
    CriticalStatus as CriticalStatus,
    attributes as attributes,
)
from .trajectories import (
    ComparedRun as ComparedRun,
    trajectories_of as trajectories_of,
    trajectory_columns as trajectory_columns,
)
