"""Descents with memory, by the update rules of Optax, and with noise: a kind in each file."""

from .adam import Adam as Adam
from .decoupled_decay import DecoupledDecay as DecoupledDecay
from .heavy_ball import HeavyBall as HeavyBall
from .label_noise_sgd import LabelNoiseSGD as LabelNoiseSGD
from .nesterov import Nesterov as Nesterov
from .noisy_descent import NoisyDescent as NoisyDescent
from .rmsprop import RMSProp as RMSProp
from .scalar_rmsprop import ScalarRMSProp as ScalarRMSProp
from .sgd import SGD as SGD
from .transformed import (
    Optax as Optax,
    Transformed as Transformed,
    as_descent as as_descent,
    check_maker as check_maker,
    is_transformation as is_transformation,
)
