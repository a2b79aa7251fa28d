"""The weight pytrees, how each is initialized, and what YAML says of them."""

from .convolution import Convolution as Convolution, with_slices as with_slices
from .deep_residual import ResidualNetwork as ResidualNetwork
from .flat import Places as Places
from .image_network import Convolutional as Convolutional, ConvolutionalNetwork as ConvolutionalNetwork
from .linear import DeepLinear as DeepLinear
from .linear_network import LinearNetwork as LinearNetwork
from .mlp import PerceptronNetwork as PerceptronNetwork
from .own_module import network_recipe as network_recipe
from .perceptron import Perceptron as Perceptron
from .recipe import NETWORKS as NETWORKS, NetworkRecipe as NetworkRecipe, shape_refusals as shape_refusals
from .residual_perceptron import (
    ResidualPerceptron as ResidualPerceptron,
    ResidualPerceptronNetwork as ResidualPerceptronNetwork,
)
from .weights import (
    Fixed as Fixed,
    cast as cast,
    records as records,
    split as split,
    stacked as stacked,
    unstacked as unstacked,
    weight_dtype as weight_dtype,
)
