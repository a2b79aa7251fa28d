"""Integrators made for gradient flows, as Diffrax solvers."""

from .dynamics.solvers import (
    LowRankExtrapolation as LowRankExtrapolation,
    RungeKuttaChebyshev as RungeKuttaChebyshev,
    StabilitySwitching as StabilitySwitching,
    default_solver as default_solver,
)
