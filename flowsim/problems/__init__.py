"""What is minimized."""

from .empirical import EmpiricalRisk as EmpiricalRisk, squared_error as squared_error
from .regression import LinearRegression as LinearRegression
