"""What a prediction costs: the losses of `EmpiricalRisk`, and what a loss of your own subclasses."""

from .cross_entropy import CrossEntropy as CrossEntropy
from .huber import Huber as Huber
from .logistic import Logistic as Logistic
from .loss import LOSSES as LOSSES, Loss as Loss, differentiated_curvature as differentiated_curvature
from .pointwise import PointwiseLoss as PointwiseLoss
from .squared_error import SquaredError as SquaredError
