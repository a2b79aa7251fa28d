"""Descent with large steps on separable classes: Wu, Bartlett, Telgarsky and Yu (2024), *Large stepsize gradient
descent for logistic loss: non-monotonicity of the loss improves optimization efficiency* (COLT, arXiv 2402.15926).

A plug-in: nothing else in flowsim knows of it. In a scenario: `figure: flowsim.papers.wu_2024:RiskOverTime`.
"""

from .figure import RiskOverTime as RiskOverTime
