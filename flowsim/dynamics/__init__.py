"""One vector field, integrated and discretized."""

from . import solvers as solvers
from .batch import Ends as Ends, descend_lanes as descend_lanes
from .descent import default_record_steps as default_record_steps, descend as descend
from .flow import integrate as integrate
from .step_control import (
    SharpnessLimitedController as SharpnessLimitedController,
    stability_interval as stability_interval,
)
from .stopping import Outcome as Outcome, Stopping as Stopping, arrival as arrival
from .trajectory import Trajectory as Trajectory
