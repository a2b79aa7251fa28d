"""The weight pytrees, how each is initialized, and what YAML says of them."""

from .deep_residual import ResidualNetwork as ResidualNetwork
from .linear import DeepLinear as DeepLinear
from .linear_network import LinearNetwork as LinearNetwork
from .mlp import PerceptronNetwork as PerceptronNetwork
from .perceptron import Perceptron as Perceptron
from .recipe import NETWORKS as NETWORKS, NetworkRecipe as NetworkRecipe, shape_refusals as shape_refusals
from .weights import (
    Fixed as Fixed,
    cast as cast,
    records as records,
    split as split,
    stacked as stacked,
    unstacked as unstacked,
    weight_dtype as weight_dtype,
)
