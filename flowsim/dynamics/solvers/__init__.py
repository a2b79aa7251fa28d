"""Integrators made for gradient flows, as Diffrax solvers."""

from .chebyshev import RungeKuttaChebyshev as RungeKuttaChebyshev
from .choice import default_solver as default_solver
from .low_rank import LowRankExtrapolation as LowRankExtrapolation
from .switching import StabilitySwitching as StabilitySwitching
