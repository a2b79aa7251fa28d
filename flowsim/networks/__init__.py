"""Networks, their initialization, and their options in YAML."""

from .convolution import Convolution as Convolution, with_slices as with_slices
from .image_network import Convolutional as Convolutional, ConvolutionalNetwork as ConvolutionalNetwork
from .linear import DeepLinear as DeepLinear, LinearNetwork as LinearNetwork, ResidualNetwork as ResidualNetwork
from .numbered_layers import (
    Layered as Layered,
    NumberedLayers as NumberedLayers,
    numbered_layers as numbered_layers,
)
from .perceptron import Perceptron as Perceptron, PerceptronNetwork as PerceptronNetwork
from .recipe import (
    NETWORKS as NETWORKS,
    NetworkRecipe as NetworkRecipe,
    network_recipe as network_recipe,
    shape_errors as shape_errors,
)
from .residual_perceptron import (
    ResidualPerceptron as ResidualPerceptron,
    ResidualPerceptronNetwork as ResidualPerceptronNetwork,
)
from .weights import (
    Fixed as Fixed,
    FlattenedParameters as FlattenedParameters,
    cast as cast,
    records as records,
    split as split,
    stacked as stacked,
    strongly_typed as strongly_typed,
    unstacked as unstacked,
    warn_of_single_precision as warn_of_single_precision,
    weight_dtype as weight_dtype,
)
