"""Descent with large steps on separable classes (Wu et al. 2024); README.md says how it is reproduced."""

from .figure import RiskOverTime as RiskOverTime
