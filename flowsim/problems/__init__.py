"""Problems: risks to be minimized."""

from .empirical import EmpiricalRisk as EmpiricalRisk
from .minibatches import Draw as Draw, Minibatches as Minibatches, WeightedRisk as WeightedRisk, as_seed as as_seed
from .problem import (
    Problem as Problem,
    check_problem as check_problem,
    has_identity_curvature as has_identity_curvature,
    on_samples as on_samples,
)
from .regression import LinearRegression as LinearRegression
from .regularized import RegularizedRisk as RegularizedRisk
from .risk import Risk as Risk
from .tracing import check_weights as check_weights
