"""What a step of a solver keeps in memory."""

import diffrax

from .proposal import ProposingSolver

_BESIDE_STAGES = 4


def memory_of(solver: diffrax.AbstractSolver, weights: int) -> int | None:
    """Return about how many arrays of the size of so many weights a step keeps; `None` where nobody knows.

    A Runge–Kutta method of Diffrax keeps its stages, and an implicit one a matrix over all weights besides.
    """
    if isinstance(solver, ProposingSolver):
        return solver.memory()
    if not isinstance(solver, diffrax.AbstractRungeKutta):
        return None
    matrix = weights if isinstance(solver, diffrax.AbstractImplicitSolver) else 0
    tableau = solver.tableau
    several = isinstance(tableau, diffrax.MultiButcherTableau)
    stages = sum(one.num_stages for one in tableau.tableaus) if several else tableau.num_stages
    return stages + _BESIDE_STAGES + matrix
