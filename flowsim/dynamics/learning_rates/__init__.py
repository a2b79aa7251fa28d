"""Learning rates that change in the time of a run: a kind in each file."""

from .cosine_decay import CosineDecay as CosineDecay
from .learning_rate import (
    LEARNING_RATES as LEARNING_RATES,
    LearningRate as LearningRate,
    Scalar as Scalar,
    check_learning_rate as check_learning_rate,
    checked_rate as checked_rate,
    is_of_function as is_of_function,
    is_scheduled as is_scheduled,
    is_settled as is_settled,
    largest_rate as largest_rate,
    nominal_rate as nominal_rate,
    rate_and_slope as rate_and_slope,
    rate_at as rate_at,
    rate_from as rate_from,
    with_rate as with_rate,
)
from .step_decay import StepDecay as StepDecay
from .warm_up import WarmUp as WarmUp
