"""The edge of stability of a descent, as runs are stored and drawn with it."""

import math

from ..dynamics import Descent
from ..probes import PreconditionedSharpness
from .runs import SHARPNESS, Edge


def edge_of(optimizer: Descent) -> Edge:
    """Return up to which curvature a descent is stable: NaN where it does not know.

    That of the sharpness, or of the preconditioned sharpness where it has a preconditioner.
    """
    threshold = optimizer.stability_threshold()
    number = math.nan if threshold is None else float(threshold)
    return Edge(number, PreconditionedSharpness().label.name if optimizer.preconditioned else SHARPNESS)


def own_edge_of(optimizer: Descent, learning_rate: float) -> Edge | None:
    """Return the edge of a descent, `None` where it is that of gradient descent, the sharpness 2/η."""
    edge = edge_of(optimizer)
    return None if edge == Edge(2 / learning_rate) else edge
