"""What a prediction costs: the losses of `EmpiricalRisk`, and what a loss of your own subclasses."""

from .problems.losses import (
    LOSSES as LOSSES,
    Loss as Loss,
    PointwiseLoss as PointwiseLoss,
    SquaredError as SquaredError,
    differentiated_curvature as differentiated_curvature,
)
