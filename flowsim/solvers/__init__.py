"""Integrators made for gradient flows, as Diffrax solvers, and all solvers by name."""

from . import of_diffrax as of_diffrax
from .chebyshev import RungeKuttaChebyshev as RungeKuttaChebyshev
from .choice import default_solver as default_solver
from .low_rank import LowRankExtrapolation as LowRankExtrapolation
from .proposal import Proposal as Proposal, ProposedSteps as ProposedSteps, ProposingSolver as ProposingSolver
from .registry import SOLVERS as SOLVERS
from .stiffness import StiffnessSwitching as StiffnessSwitching
from .switching import StabilitySwitching as StabilitySwitching
from .work import Work as Work
