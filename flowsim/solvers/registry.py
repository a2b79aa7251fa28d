"""The solvers by name."""

import inspect

import diffrax

from ..kinds import Registry


def _is_solver(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, diffrax.AbstractAdaptiveSolver) and not inspect.isabstract(kind)


SOLVERS: Registry[type[diffrax.AbstractAdaptiveSolver]] = Registry(
    "a solver",
    accepts=_is_solver,
    expected="a diffrax.AbstractAdaptiveSolver with all of its methods",
)
