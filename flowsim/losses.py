"""What a prediction costs: the losses of `EmpiricalRisk`, and what a loss of your own subclasses."""

from .problems.losses import (
    LOSSES as LOSSES,
    CrossEntropy as CrossEntropy,
    Huber as Huber,
    Logistic as Logistic,
    Loss as Loss,
    PointwiseLoss as PointwiseLoss,
    SquaredError as SquaredError,
    differentiated_curvature as differentiated_curvature,
)
