"""Recipes: how networks are built from the options in YAML, each kind in a file of its own."""

# Errors and the JSON Schema list the kinds in this order.
# isort: off
from .recipe import (
    NETWORKS as NETWORKS,
    NetworkRecipe as NetworkRecipe,
    network_recipe as network_recipe,
    shape_errors as shape_errors,
)
from .residual import ResidualNetwork as ResidualNetwork
from .mlp import PerceptronNetwork as PerceptronNetwork
from .convolutional import ConvolutionalNetwork as ConvolutionalNetwork
from .residual_mlp import ResidualPerceptronNetwork as ResidualPerceptronNetwork
