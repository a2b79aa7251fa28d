"""What is minimized."""

from .empirical import EmpiricalRisk as EmpiricalRisk, squared_error as squared_error
from .protocol import Problem as Problem
from .regression import LinearRegression as LinearRegression
