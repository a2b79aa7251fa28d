"""What a prediction costs, one kind in each file."""

from .cross_entropy import CrossEntropy as CrossEntropy
from .huber import Huber as Huber
from .logistic import Logistic as Logistic
from .loss import LOSSES as LOSSES, Loss as Loss, differentiated_curvature as differentiated_curvature
from .pointwise import PointwiseLoss as PointwiseLoss, as_loss as as_loss
from .squared_error import SquaredError as SquaredError
