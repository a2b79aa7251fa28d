"""Many gradient descents at once, each exactly as if it ran alone."""

from . import deep_linear as deep_linear, perceptron as perceptron  # each registers its kernel
from .descent import Ends as Ends, descend_batch as descend_batch
