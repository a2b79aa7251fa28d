"""The names of `flowsim.columns` under the path by which users' figures import them."""

from ..columns.runs import (
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
