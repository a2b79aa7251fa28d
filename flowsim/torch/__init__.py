"""PyTorch modules and losses as networks and risks: lowered to JAX once, by `torch.export`. PyTorch is optional."""

from .loss import risk as risk
from .lowered import Lowered as Lowered
from .module import load as load, network as network
