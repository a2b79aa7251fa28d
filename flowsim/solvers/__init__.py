"""Integrators made for gradient flows, as Diffrax solvers, and all solvers by name."""

from .chebyshev import RungeKuttaChebyshev as RungeKuttaChebyshev
from .choice import default_solver as default_solver
from .hessian import HessianExtrapolation as HessianExtrapolation
from .low_rank import LowRankExtrapolation as LowRankExtrapolation
from .solver import (
    SOLVERS as SOLVERS,
    Proposal as Proposal,
    ProposedSteps as ProposedSteps,
    ProposingSolver as ProposingSolver,
    Work as Work,
)
from .stiffness import StiffnessSwitching as StiffnessSwitching
from .switching import StabilitySwitching as StabilitySwitching
