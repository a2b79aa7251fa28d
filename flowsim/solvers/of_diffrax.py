"""Diffrax's own solvers with adaptive steps: Euler has no error estimate, KenCarp and Sil3 want a split field."""

import diffrax

from .registry import SOLVERS

for _solver in (
    diffrax.Tsit5,
    diffrax.Dopri5,
    diffrax.Dopri8,
    diffrax.Bosh3,
    diffrax.Heun,
    diffrax.Kvaerno3,
    diffrax.Kvaerno4,
    diffrax.Kvaerno5,
):
    SOLVERS.register(_solver.__name__)(_solver)
