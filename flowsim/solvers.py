"""Integrators made for gradient flows, as Diffrax solvers."""

from .dynamics import Work as Work
from .dynamics.solvers import (
    SOLVERS as SOLVERS,
    LowRankExtrapolation as LowRankExtrapolation,
    Proposal as Proposal,
    ProposedSteps as ProposedSteps,
    ProposingSolver as ProposingSolver,
    RungeKuttaChebyshev as RungeKuttaChebyshev,
    StabilitySwitching as StabilitySwitching,
    StiffnessSwitching as StiffnessSwitching,
    default_solver as default_solver,
)
