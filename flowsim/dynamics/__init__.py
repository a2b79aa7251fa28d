"""One vector field, integrated and discretized: gradient flow, gradient descents, and the loop of both."""

from .branches import BranchPoint as BranchPoint
from .descend import (
    default_record_steps as default_record_steps,
    descend as descend,
)
from .descent import DESCENTS as DESCENTS, Descent as Descent
from .dynamics import DYNAMICS as DYNAMICS, Attempt as Attempt, Clock as Clock, Dynamics as Dynamics
from .flow import GradientFlow as GradientFlow
from .gradient_descent import GradientDescent as GradientDescent
from .integrate import (
    MAX_STEPS as MAX_STEPS,
    check_end_time as check_end_time,
    flow_of as flow_of,
    integrate as integrate,
)
from .learning_rates import (
    LEARNING_RATES as LEARNING_RATES,
    CosineDecay as CosineDecay,
    LearningRate as LearningRate,
    StepDecay as StepDecay,
    WarmUp as WarmUp,
    check_learning_rate as check_learning_rate,
)
from .limit import is_beyond as is_beyond, outcome_by_curvature as outcome_by_curvature
from .norm_flow import NormFlow as NormFlow
from .optimizers import (
    SGD as SGD,
    Adam as Adam,
    DecoupledDecay as DecoupledDecay,
    HeavyBall as HeavyBall,
    LabelNoiseSGD as LabelNoiseSGD,
    Nesterov as Nesterov,
    NoisyDescent as NoisyDescent,
    Optax as Optax,
    RMSProp as RMSProp,
    ScalarRMSProp as ScalarRMSProp,
    Transformed as Transformed,
    as_descent as as_descent,
    check_maker as check_maker,
    is_transformation as is_transformation,
)
from .outcome import Outcome as Outcome, decide as decide
from .repetitions import Repetitions as Repetitions, repeat as repeat
from .step_times import StepTimes as StepTimes
from .stopping import (
    Stopping as Stopping,
    finest_gradient_norm as finest_gradient_norm,
    objective_floor as objective_floor,
    outcome_by_gradient as outcome_by_gradient,
    stopping_for as stopping_for,
)
from .trajectory import Trajectory as Trajectory
