"""Gradient flow of neural networks, integrated to its limit, beside gradient descent and theory."""

from . import solvers as solvers, theory as theory
from .comparison import Comparison as Comparison, compare as compare
from .curvature import sharpness as sharpness
from .dynamics import (
    Outcome as Outcome,
    SharpnessLimitedController as SharpnessLimitedController,
    Stopping as Stopping,
    Trajectory as Trajectory,
    descend as descend,
    integrate as integrate,
)
from .experiments import open_results as open_results
from .networks import DeepLinear as DeepLinear, Fixed as Fixed, Perceptron as Perceptron
from .problems import EmpiricalRisk as EmpiricalRisk, LinearRegression as LinearRegression
