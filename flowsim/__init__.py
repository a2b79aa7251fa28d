"""Gradient flow of neural networks, integrated to its limit, beside gradient descent and theory."""

import importlib
import types

from . import signals as signals, starting as starting  # first of all: see there

# isort: split
from . import curvature as curvature, losses as losses, solvers as solvers, theory as theory
from .comparison import (
    Comparison as Comparison,
    Interrupted as Interrupted,
    SharpnessAlong as SharpnessAlong,
    compare as compare,
)
from .curvature import sharpness as sharpness, sharpness_gradient as sharpness_gradient
from .dynamics import (
    SGD as SGD,
    Adam as Adam,
    CentralFlow as CentralFlow,
    Descent as Descent,
    DescentModel as DescentModel,
    Dynamics as Dynamics,
    EdgeFlow as EdgeFlow,
    GradientDescent as GradientDescent,
    GradientFlow as GradientFlow,
    HeavyBall as HeavyBall,
    Nesterov as Nesterov,
    Optax as Optax,
    Outcome as Outcome,
    RMSProp as RMSProp,
    SharpnessLimitedController as SharpnessLimitedController,
    Stopping as Stopping,
    Trajectory as Trajectory,
    descend as descend,
    integrate as integrate,
)
from .edge_statements import RunStatements as RunStatements, edge_statements as edge_statements
from .experiments import open_results as open_results
from .flow_limits import FlowLimits as FlowLimits
from .networks import (
    Convolution as Convolution,
    Convolutional as Convolutional,
    DeepLinear as DeepLinear,
    Fixed as Fixed,
    Perceptron as Perceptron,
    ResidualPerceptron as ResidualPerceptron,
)
from .probes import Label as Label, Moment as Moment, Probe as Probe
from .problems import (
    EmpiricalRisk as EmpiricalRisk,
    LinearRegression as LinearRegression,
    Problem as Problem,
    Risk as Risk,
)
from .progress import Progress as Progress
from .sweeping import Sweep as Sweep, sweep as sweep


def __getattr__(name: str) -> types.ModuleType:
    """Return `flowsim.report`, which imports Matplotlib, where it is first asked for."""
    if name == "report":
        return importlib.import_module(f"{__name__}.report")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
