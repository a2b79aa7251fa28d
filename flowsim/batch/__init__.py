"""Many gradient descents at once, each exactly as if it ran alone."""

from . import deep_linear as deep_linear, perceptron as perceptron, regularized as regularized  # which register kernels
from .descent import Ends as Ends, descend_batch as descend_batch
