from .convolution import Convolution as Convolution, with_slices as with_slices
from .image_network import Convolutional as Convolutional
from .layered import (
    Layered as Layered,
    NumberedLayers as NumberedLayers,
    numbered_layers as numbered_layers,
)
from .linear import DeepLinear as DeepLinear, LinearNetwork as LinearNetwork
from .perceptron import Perceptron as Perceptron
from .recipes import (
    NETWORKS as NETWORKS,
    ConvolutionalNetwork as ConvolutionalNetwork,
    NetworkRecipe as NetworkRecipe,
    PerceptronNetwork as PerceptronNetwork,
    ResidualNetwork as ResidualNetwork,
    ResidualPerceptronNetwork as ResidualPerceptronNetwork,
    network_recipe as network_recipe,
    shape_errors as shape_errors,
)
from .residual_perceptron import ResidualPerceptron as ResidualPerceptron
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
