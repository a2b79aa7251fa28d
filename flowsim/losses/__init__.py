"""Losses of `EmpiricalRisk`, and the base class for your own."""

from .cross_entropy import CrossEntropy as CrossEntropy
from .huber import Huber as Huber
from .logistic import Logistic as Logistic
from .loss import LOSSES as LOSSES, Loss as Loss, differentiated_curvature as differentiated_curvature
from .pointwise import PointwiseLoss as PointwiseLoss
from .squared_error import SquaredError as SquaredError
