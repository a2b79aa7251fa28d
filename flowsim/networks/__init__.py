"""The weight pytrees, and how each is initialized."""

from .linear import DeepLinear as DeepLinear
from .linear_network import LinearNetwork as LinearNetwork
from .perceptron import Perceptron as Perceptron
from .weights import (
    Fixed as Fixed,
    cast as cast,
    records as records,
    split as split,
    stacked as stacked,
    unstacked as unstacked,
    weight_dtype as weight_dtype,
)
