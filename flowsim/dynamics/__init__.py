"""One vector field, integrated and discretized."""

from . import solvers as solvers
from .batch import Ends as Ends, descend_lanes as descend_lanes
from .central_flow import CentralFlow as CentralFlow
from .descend import (
    default_record_steps as default_record_steps,
    descend as descend,
    steps_until as steps_until,
    whole_if_close as whole_if_close,
)
from .descent import DESCENTS as DESCENTS, Descent as Descent, check_learning_rate as check_learning_rate
from .descent_model import MODELS as MODELS, DescentModel as DescentModel
from .dynamics import DYNAMICS as DYNAMICS, Attempt as Attempt, Clock as Clock, Dynamics as Dynamics
from .edge_flow import EdgeFlow as EdgeFlow
from .field import check_step_count as check_step_count, checked_parts as checked_parts
from .gradient_descent import GradientDescent as GradientDescent
from .gradient_flow import GradientFlow as GradientFlow
from .integrate import integrate as integrate
from .minibatches import Draw as Draw, Minibatches as Minibatches
from .optimizers import (
    SGD as SGD,
    Adam as Adam,
    HeavyBall as HeavyBall,
    Nesterov as Nesterov,
    Optax as Optax,
    RMSProp as RMSProp,
    Transformed as Transformed,
    as_descent as as_descent,
    is_transformation as is_transformation,
)
from .outcome import Outcome as Outcome
from .solvers import SOLVERS as SOLVERS, memory_of as memory_of
from .step_control import (
    SharpnessLimitedController as SharpnessLimitedController,
    stability_interval as stability_interval,
)
from .stepper import usable_solver as usable_solver
from .stopping import Stopping as Stopping, objective_floor as objective_floor, stopping_for as stopping_for
from .trajectory import Trajectory as Trajectory
from .verdict import first_verdict as first_verdict, settled_verdict as settled_verdict
from .work import Work as Work
