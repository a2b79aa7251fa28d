"""All statements of the paper that speak of one flow, checked on it."""

from collections.abc import Collection
from typing import Any

from ..networks import DeepLinear
from ..problems import LinearRegression
from .minimizers import minimizer_statements
from .path import FlowPath, follow
from .rates import rate_statements
from .residual import residual_statements
from .small_scale import conservation, small_scale_statements
from .statement import Statements

SUBJECTS = {
    "minimizers": minimizer_statements,
    "conservation": lambda path: [conservation(path)],
    "small_scale": small_scale_statements,
    "residual": residual_statements,
    "rates": rate_statements,
}
"""What can be asked for, by subject: Theorems 1 and 2; Lemma 1; section 4; section 5; Lemmas 7 and 8."""


def check(
    network: DeepLinear, problem: LinearRegression, *, subjects: Collection[str] = tuple(SUBJECTS), **flow_options: Any
) -> Statements:
    """Integrate the flow from `network` to its limit, and return what the statements of the paper come to on it.

    `flow_options` go to `follow`. Raises `ValueError` for an unknown subject, and as `follow` does.
    """
    return statements(follow(network, problem, **flow_options), subjects=subjects)


def statements(path: FlowPath, *, subjects: Collection[str] = tuple(SUBJECTS)) -> Statements:
    """Return the statements about the given `subjects` on a path, in the order of the paper.

    Raises `ValueError` for an unknown subject.
    """
    for subject in subjects:
        if subject not in SUBJECTS:
            raise ValueError(f"{subject!r} is no subject of the theory: expected some of {', '.join(SUBJECTS)}")
    chosen = [found for name, found in SUBJECTS.items() if name in subjects]
    return Statements(tuple(statement for found in chosen for statement in found(path)))
